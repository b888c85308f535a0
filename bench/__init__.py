"""The cost of Batten, measured beside the least possible cost."""
