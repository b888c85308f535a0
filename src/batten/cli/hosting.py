"""Sessions for the surfaces of `batten headless`: each with its own workspace and tools, all on
one journal.
"""

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from batten.agent.settings import RunSettings
from batten.cli.home import batten_home
from batten.cli.options import run_settings, workspace_of
from batten.cli.surroundings import surroundings
from batten.cli.wiring import Wiring, directory_for_now
from batten.contract.errors import CallerError
from batten.contract.notes import Note
from batten.journal.contract import SessionRow
from batten.journal.sqlite import SqliteJournal
from batten.redact.seal import SealKey
from batten.serve.hosting import Wanted
from batten.serve.renderer import Describe
from batten.session.session import Session, find_session, settings_of
from batten.settings.contract import Settings
from batten.tools.contract import Tool
from batten.workspace.keeper import Keeper


class HostedSession:
    """A session with its wiring."""

    def __init__(self, session: Session, wiring: Wiring) -> None:
        self.session = session
        self._wiring = wiring

    @property
    def describe(self) -> Describe:
        return partial(self._wiring.describe, self.session.settings)

    @property
    def keeper(self) -> Keeper:
        return self._wiring.keeper

    def show_notes(self, show: Callable[[str, Note], None]) -> None:
        self._wiring.show_notes(show)

    async def close(self) -> None:
        await self._wiring.__aexit__(None, None, None)


class SessionHost:
    """Opens sessions as the command line and the client say."""

    def __init__(
        self,
        options: Namespace,
        environ: Mapping[str, str],
        tools: Sequence[Tool],
        *,
        own_process: bool,
    ) -> None:
        self._options = options
        self._environ = environ
        self._tools = tools
        self._home = batten_home(environ)
        self._unsaved = directory_for_now() if options.no_save else None
        store = self._unsaved.path if self._unsaved else self._home
        self.journal = SqliteJournal.open(store, own_process=own_process)

    def close(self) -> None:
        self.journal.close()
        if self._unsaved is not None:
            self._unsaved.remove_now()

    async def open(self, wanted: Wanted) -> HostedSession:
        environ = {**self._environ, **wanted.environ}
        named = wanted.resume or self._options.resume
        earlier = find_session(self.journal, named) if named else None
        options = _options(self._options, wanted)
        workspace = workspace_of(options, earlier.workspace_path if earlier else None)
        found = surroundings(options, environ, workspace, self._home)
        found = msgspec.structs.replace(
            found,
            mcp_servers={**found.mcp_servers, **wanted.mcp_servers},
            permission_mode=found.permission_mode or wanted.usual_mode,
        )
        settings = self._settings(options, environ, earlier, found, wanted)
        wiring = Wiring(self._home, environ, options, self._tools, self.journal)
        try:
            deps = await wiring.deps_for(
                workspace,
                settings,
                found,
                elicits=wanted.elicits,
                lends_tools=wanted.surface == "maestro",
            )
            if wanted.equip is not None:
                deps = wanted.equip(deps, settings)
            if earlier is None:
                session = await Session.open(
                    deps, settings, surface=wanted.surface, session_id=wanted.session_id
                )
            else:
                session = await Session.resume(deps, earlier, settings)
        except BaseException:
            await wiring.__aexit__(None, None, None)
            raise
        return HostedSession(session, wiring)

    def _settings(
        self,
        options: Namespace,
        environ: Mapping[str, str],
        earlier: SessionRow | None,
        found: Settings,
        wanted: Wanted,
    ) -> RunSettings:
        given = settings_of(earlier, self.journal, self._seal_key) if earlier else None
        settings = run_settings(options, environ, given, found)
        try:
            return msgspec.structs.replace(settings, **wanted.settings)
        except TypeError as error:
            raise CallerError(f"these settings cannot be used: {error}") from error

    def _seal_key(self) -> SealKey:
        return SealKey.load(self._home)


def _options(options: Namespace, wanted: Wanted) -> Namespace:
    """The command line with what the client says where that is silent."""
    said = Namespace(**vars(options))
    said.model = options.model or list(wanted.models) or None
    said.workspace = wanted.workspace or options.workspace
    said.bare = options.bare or wanted.bare
    said.permission_mode = options.permission_mode or wanted.mode
    said.rules = [*(options.rules or ()), *wanted.rules] or None
    return said
