"""HTTP as one table: routes with their types, and the kit that serves, checks and documents them.

A surface is a list of `Route` rows and the service object that their handlers use. `App` makes an
application of surfaces; `serve` runs it on sockets. The kit knows no task and no run.
"""
