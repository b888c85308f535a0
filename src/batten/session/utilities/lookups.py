"""Finds and reads files for a client, without a run."""

import asyncio

from batten.contract.errors import CallerError
from batten.contract.utilities import FoundFile, FoundFiles, ReadLines
from batten.session.utilities.paths import file_below, working_directory
from batten.workspace import files
from batten.workspace.fuzzy import DEFAULT_LIMIT, Finder
from batten.workspace.root import Root

_LONGEST_QUERY = 4096


class Lookups:
    """Searches and reads files in one workspace."""

    def __init__(self, root: Root, most_bytes: int = files.MAX_TEXT_BYTES) -> None:
        self._root = root
        self._most_bytes = most_bytes
        self._finder = Finder()

    async def search(self, query: str, cwd: str | None, limit: int | None) -> FoundFiles:
        """Files by a few letters of their path, the best matches first."""
        if len(query) > _LONGEST_QUERY:
            raise CallerError(
                f"query has {len(query)} characters; at most {_LONGEST_QUERY} are searched for"
            )
        place = working_directory(self._root, cwd)
        found = await self._finder.search(
            place, query, limit=DEFAULT_LIMIT if limit is None else limit
        )
        return FoundFiles(
            query=query.strip(),
            cwd=place.path,
            files=tuple(FoundFile(hit.path, hit.score) for hit in found.hits),
            truncated=found.truncated,
        )

    async def read(
        self, path: str, cwd: str | None, offset: int | None, limit: int | None
    ) -> ReadLines:
        """A page of a text file."""
        directory = working_directory(self._root, cwd)
        place, relative = file_below(self._root, directory, path)
        try:
            page = await asyncio.to_thread(
                files.read_text,
                place,
                offset=1 if offset is None else offset,
                limit=files.DEFAULT_LINES if limit is None else limit,
                max_bytes=self._most_bytes,
            )
        except CallerError as error:
            if error.code != "binary_file":
                raise
            raise CallerError(f"utility_file_read only supports text files: {path}") from error
        return ReadLines(
            path=place.path,
            relative_path=relative,
            cwd=directory.path,
            content=page.content,
            start_line=page.start_line,
            end_line=page.end_line,
            total_lines=page.total_lines,
            truncated=page.truncated,
        )
