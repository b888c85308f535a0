"""The platform's own gateway: Chat Completions, with the ids of the run in each request."""

from collections.abc import Mapping
from typing import Any

from batten.contract.identity import current_ids, gateway_metadata, identity_of
from batten.models.contract import ModelRequest
from batten.models.openai_chat import ChatDialect


class GatewayDialect(ChatDialect):
    """`metadata` joins the usage that the gateway counts to the run's own records."""

    def __init__(self, provider: str, base: str, *, key: str, environ: Mapping[str, str]) -> None:
        organization = identity_of(environ).get("organization_id", "")
        headers = {"x-organization-id": organization} if organization else {}
        super().__init__(provider, base, key=key, native_schema=False, headers=headers)

    def body(self, request: ModelRequest) -> dict[str, Any]:
        return {**super().body(request), "metadata": gateway_metadata(current_ids.get())}
