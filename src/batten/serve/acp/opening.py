"""Opens sessions that use the client's files and terminals."""

from functools import partial

import msgspec

from batten.agent.deps import RunDeps
from batten.agent.settings import RunSettings
from batten.protocols.acp.methods import ClientCapabilities
from batten.serve.acp.documents import ClientDocuments
from batten.serve.acp.patience import PatientPeer
from batten.serve.acp.peer import AcpPeer
from batten.serve.acp.preview import preview
from batten.serve.acp.renderer import AcpRenderer
from batten.serve.acp.requests import RESOLVERS, ClientRequests
from batten.serve.acp.session import OpenSession
from batten.serve.acp.sources import Sources
from batten.serve.acp.terminals import ClientTerminals
from batten.serve.stdio import Stdio
from batten.tools.lent import Lent
from batten.wiring.opener import SessionOpener

SURFACE = "acp"


class Opening:
    """Opens one session."""

    def __init__(
        self,
        opener: SessionOpener,
        peer: AcpPeer,
        stdio: Stdio,
        lent: ClientCapabilities,
    ) -> None:
        self._opener = opener
        self._peer = peer
        self._stdio = stdio
        self._lent = lent
        self._renderer: AcpRenderer | None = None
        self._requests: ClientRequests | None = None
        self._opened: OpenSession | None = None

    async def open(
        self,
        workspace: str,
        servers: dict[str, object],
        resume: str | None = None,
        *,
        fork: bool = False,
        beside: tuple[str, ...] = (),
    ) -> OpenSession:
        """`fork`: a new session that shares the history of `resume`. `beside`: directories that
        the client adds to those of the command line.
        """
        spec = msgspec.structs.replace(
            self._opener.base,
            surface=SURFACE,
            resume=resume,
            fork=fork,
            workspace=workspace,
            add_dirs=(*self._opener.base.add_dirs, *beside),
            resolvers=RESOLVERS,
            client_servers=servers,
            elicits=self._lent.forms or self._lent.urls,
            equip=self._equip,
        )
        opened = await self._opener.open(spec)
        assert self._renderer is not None
        self._opened = OpenSession(opened, self._renderer, self._peer, self._stdio, spec.environ)
        assert self._requests is not None
        self._requests.take = self._opened.take
        try:
            await self._opened.prepare()
        except BaseException:
            await self._opened.leave()
            raise
        return self._opened

    def _equip(self, deps: RunDeps, settings: RunSettings) -> RunDeps:
        sources = Sources(deps.journal, deps.redactor, deps.seal_key)
        self._renderer = AcpRenderer(self._peer, deps.workspace_path, sources)
        self._renderer.redact = deps.redactor.text
        peer = PatientPeer(self._peer, settings.request_seconds)
        deps = msgspec.structs.replace(deps, lent=self._lends(deps, peer))
        self._requests = ClientRequests(
            self._peer,
            self._renderer,
            self._stdio.group,
            self._session_id,
            can=self._lent,
            patience_s=settings.request_seconds,
            remember=lambda verdict, pattern: self._session().remember(verdict, pattern),
            preview=partial(preview, deps),
        )
        return msgspec.structs.replace(deps, requests=self._requests)

    def _lends(self, deps: RunDeps, peer: PatientPeer) -> Lent:
        """Providers for the capabilities that the client declared."""
        lent, group = self._lent, self._stdio.group
        documents = terminals = None
        if lent.reads or lent.writes:
            documents = ClientDocuments(peer, self._session_id, lent, group)
        if lent.terminal:
            terminals = ClientTerminals(peer, self._session_id, deps.workspace_path, group)
        return Lent(documents, terminals)

    def _session(self) -> OpenSession:
        assert self._opened is not None
        return self._opened

    def _session_id(self) -> str:
        return self._session().session_id
