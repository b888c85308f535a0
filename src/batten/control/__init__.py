"""Tasks, their queue and its workers: runs for clients that do not execute them."""
