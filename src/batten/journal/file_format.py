"""What the first bytes of a journal's file say of it, read without loading SQLite."""

import os

VERSION = 2
"""The format of the file; `migrating` converts older ones."""
APPLICATION_ID = 0x42544E31
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100


def looks_usable(home: str) -> bool:
    """Whether the journal in `home` has our format, or can be made there. Makes the directory, as
    opening the journal does.
    """
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        with open(os.path.join(home, "journal.db"), "rb") as file:
            header = file.read(_HEADER_BYTES)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        is_absent = isinstance(error, FileNotFoundError) and os.path.isdir(home)
        return is_absent and os.access(home, os.W_OK | os.X_OK)
    return not header or _is_ours(header, size)


def _is_ours(header: bytes, size: int) -> bool:
    page_bytes = int.from_bytes(header[16:18]) or 1
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    # A new file says its version only once its log was copied into it.
    version, application = int.from_bytes(header[60:64]), int.from_bytes(header[68:72])
    is_whole = header.startswith(_MAGIC) and size % page_bytes == 0
    return is_whole and application == APPLICATION_ID and version in (0, VERSION)
