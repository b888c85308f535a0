"""Runs that clients describe with `POST /runs`: created, ended in time, cancelled, cloned."""
