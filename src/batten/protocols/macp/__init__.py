"""The MACP control plane: runs as canonical events and as a projection of their state.

Pure: types of bodies, the rules that make canonical events of facts, and folds over those events.
"""
