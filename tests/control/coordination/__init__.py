"""Tests of coordination sessions in the journal."""
