"""The vocabulary: ids, facts, envelopes, commands, requests, outcomes and errors.

Nothing here performs I/O, and nothing here imports another room of the house.
"""
