"""The protocol's published packages, which have no types."""

from importlib import import_module
from typing import Any

core: Any = import_module("macp.v1.core_pb2")
envelope_types: Any = import_module("macp.v1.envelope_pb2")
sdk: Any = import_module("macp_sdk")
sdk_agent: Any = import_module("macp_sdk.agent")
sdk_policy: Any = import_module("macp_sdk.policy")
published_hash: Any = import_module("macp_sdk.commitment_hash").commitment_hash
