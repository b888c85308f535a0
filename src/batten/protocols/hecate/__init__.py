"""Hecate: tasks, runs, approvals and artifacts over HTTP, and streams of stored events.

Pure: types of request and response bodies, functions from rows and facts to them, frames of
streams, and the rules of cursors. Rows are described by Protocols, so that any store fits.
"""

PREFIX = "/hecate/v1"
