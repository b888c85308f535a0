"""The vocabulary: ids, facts, envelopes, commands, requests, outcomes and errors.

No module here performs I/O or imports another room.
"""
