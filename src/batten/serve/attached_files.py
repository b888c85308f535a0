"""Reads files that a person or a client attaches to a prompt: regular ones, up to a limit."""

import os
import stat

from batten.contract.errors import CallerError, NotFound

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image types that models accept."""
READ_AS_TEXT = "image/svg+xml"
_LONGEST_ERROR = 256


def read_regular(path: str, most: int) -> bytes:
    """The bytes of a file. Raises `NotFound` if there is none, `CallerError` for any other fault,
    also for a file of more than `most` bytes.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NotFound("it is no regular file")
            data = file.read(most + 1)
    except IsADirectoryError as error:
        raise NotFound("it is a directory") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound("there is no such file") from error
    except (OSError, ValueError) as error:
        raise CallerError(f"it cannot be read: {error}"[:_LONGEST_ERROR]) from error
    if len(data) > most:
        raise CallerError(f"it is larger than {most} bytes", code="too_large")
    return data


def _without_waiting(path: str, flags: int) -> int:
    """Opening a FIFO without a writer must not block; `read_regular` rejects it afterwards."""
    return os.open(path, flags | os.O_NONBLOCK)
