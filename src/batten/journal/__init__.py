"""The ordered, gap-free facts of every run, and the store of all of them."""
