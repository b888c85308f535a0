"""Reads files that a person or a client attaches to a prompt: regular ones, up to a limit."""

from batten.contract.errors import CallerError, NotFound
from batten.settings.regular import NotRegular, read_regular

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image types that models accept."""
READ_AS_TEXT = "image/svg+xml"
_LONGEST_ERROR = 256


def read_attached(path: str, most: int) -> bytes:
    """The bytes of a file. Raises `NotFound` if there is none, `CallerError` for any other fault,
    also for a file of more than `most` bytes.
    """
    try:
        data = read_regular(path, most + 1)
    except NotRegular as error:
        raise NotFound("it is no regular file") from error
    except IsADirectoryError as error:
        raise NotFound("it is a directory") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound("there is no such file") from error
    except (OSError, ValueError) as error:
        raise CallerError(f"it cannot be read: {error}"[:_LONGEST_ERROR]) from error
    if len(data) > most:
        raise CallerError(f"it is larger than {most} bytes", code="too_large")
    return data
