"""Sessions in which several agents decide together (MACP): values and tables, no I/O, no clock.

A mode is a table of rows (phase, message, who, next phases) with the checks that a table cannot
express. A session is a fold of accepted messages; a policy judges the commitment that ends it.
"""
