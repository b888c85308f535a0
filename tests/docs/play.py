"""Runs the Python in its argument, which may wait at its top level as the pages do."""

import ast
import asyncio
import inspect
import sys

code = compile(sys.argv[1], "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
made = eval(code, {"__name__": "__main__"})
if inspect.iscoroutine(made):
    asyncio.run(made)
