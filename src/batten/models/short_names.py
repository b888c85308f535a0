"""Short names of models: a family name stands for its newest model that has a price.

New price data is enough to follow a provider's releases.
"""

import re
from collections.abc import Mapping

from batten.models.pricing import rows

FAMILIES = ("sonnet", "opus", "haiku")


def model_named(name: str, environ: Mapping[str, str]) -> str:
    """The model for a short name; any other name unchanged.

    `ANTHROPIC_DEFAULT_…_MODEL` overrides the choice by price data.
    """
    if name not in FAMILIES:
        return name
    return environ.get(f"ANTHROPIC_DEFAULT_{name.upper()}_MODEL") or _newest(name, environ) or name


def _newest(family: str, environ: Mapping[str, str]) -> str | None:
    """The model with the highest version, which excludes a trailing date."""
    named = re.compile(rf"[=^](claude-{family}-(\d{{1,2}})(?:-(\d{{1,2}}))?)")
    names = [one for row in rows("anthropic", environ) for one in row.names]
    found = [m for one in names if isinstance(one, str) and (m := named.fullmatch(one))]
    newest = max(found, key=lambda match: (int(match[2]), int(match[3] or 0)), default=None)
    return None if newest is None else newest[1]
