"""Opens sessions for one client, with what it lends them."""

from collections.abc import Mapping
from functools import partial

import msgspec

from batten.agent.rig import Rig
from batten.agent.settings import RunSettings
from batten.protocols.acp.methods import ClientCapabilities
from batten.serve.acp.documents import ClientDocuments
from batten.serve.acp.link import Link
from batten.serve.acp.patches import patch_reader
from batten.serve.acp.patience import Patience
from batten.serve.acp.preview import preview
from batten.serve.acp.requests import RESOLVERS, ClientRequests
from batten.serve.acp.session import OpenSession
from batten.serve.acp.terminals import ClientTerminals
from batten.serve.acp.view import AcpView
from batten.serve.acp.watch import Watch
from batten.serve.hosting import Host, Wanted
from batten.serve.stdio import Stdio
from batten.tools.lent import Lent

SURFACE = "acp"


class Opening:
    """One session on its way to being open."""

    def __init__(
        self,
        host: Host,
        link: Link,
        stdio: Stdio,
        watch: Watch,
        lent: ClientCapabilities,
        environ: Mapping[str, str],
    ) -> None:
        self._host = host
        self._link = link
        self._stdio = stdio
        self._watch = watch
        self._lent = lent
        self._environ = environ
        self._view: AcpView | None = None
        self._opened: OpenSession | None = None

    async def open(
        self, workspace: str, servers: dict[str, object], resume: str | None = None
    ) -> OpenSession:
        wanted = Wanted(
            surface=SURFACE,
            resume=resume,
            workspace=workspace,
            settings={"resolvers": RESOLVERS},
            mcp_servers=servers,
            elicits=self._lent.forms or self._lent.urls,
            equip=self._equip,
        )
        hosted = await self._host.open(wanted)
        assert self._view is not None
        self._opened = OpenSession(
            hosted, self._view, self._link, self._stdio, self._watch, self._environ
        )
        try:
            await self._opened.prepare()
        except BaseException:
            await self._opened.leave()
            raise
        return self._opened

    def _equip(self, rig: Rig, settings: RunSettings) -> Rig:
        patches = patch_reader(rig.journal, rig.redactor, rig.seal_key)
        self._view = AcpView(self._link, rig.workspace_path, patches)
        patience = Patience(settings.request_seconds)
        rig = msgspec.structs.replace(rig, lent=self._lends(rig, patience))
        requests = ClientRequests(
            self._link,
            self._view,
            self._stdio.group,
            self._session_id,
            can=self._lent,
            patience_s=settings.request_seconds,
            remember=lambda verdict, pattern: self._session().remember(verdict, pattern),
            preview=partial(preview, rig),
        )
        return msgspec.structs.replace(rig, requests=requests)

    def _lends(self, rig: Rig, patience: Patience) -> Lent:
        """Only what the client said it has is ever asked for."""
        lent, group = self._lent, self._stdio.group
        documents = terminals = None
        if lent.reads or lent.writes:
            documents = ClientDocuments(self._link, self._session_id, lent, group, patience)
        if lent.terminal:
            terminals = ClientTerminals(
                self._link, self._session_id, rig.workspace_path, group, patience
            )
        return Lent(documents, terminals)

    def _session(self) -> OpenSession:
        assert self._opened is not None
        return self._opened

    def _session_id(self) -> str:
        return self._session().session_id
