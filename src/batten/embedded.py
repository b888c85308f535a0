"""Workers inside the program that embeds them: `Worker.start(launch=in_process)`.

A process of its own is the usual place for a worker, and the safer one: what takes it down does
not take the embedder down. Here it starts without a process and is as quick as a call.
"""

from batten.cli.embedding import in_process

__all__ = ["in_process"]
