"""Views of runs: pure folds of facts, kept with the place they were folded to.

A view is never the truth: whatever is missing, or was made by another version, is folded again from
the journal and gives the same bytes.
"""
