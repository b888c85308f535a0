"""Generators of committed files. Run one from the root: `python -m scripts.generate_schemas`."""
