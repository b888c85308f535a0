"""Tests of tasks, their queue and its workers."""
