"""Short names of models: a family, which stands for the newest of it that has a price.

So a release of new prices is all it takes to follow the provider.
"""

import re
from collections.abc import Mapping

from batten.models.pricing import patterns

FAMILIES = ("sonnet", "opus", "haiku")


def model_named(name: str, environ: Mapping[str, str]) -> str:
    """A model by its short name; any other name as it is.

    `ANTHROPIC_DEFAULT_…_MODEL` says otherwise than the prices do.
    """
    if name not in FAMILIES:
        return name
    return environ.get(f"ANTHROPIC_DEFAULT_{name.upper()}_MODEL") or _newest(name, environ) or name


def _newest(family: str, environ: Mapping[str, str]) -> str | None:
    """The one with the highest version. What follows a version, such as a day, is none of it."""
    named = re.compile(rf"[=^](claude-{family}-(\d{{1,2}})(?:-(\d{{1,2}}))?)")
    found = [match for one in patterns("anthropic", environ) if (match := named.fullmatch(one))]
    newest = max(found, key=lambda match: (int(match[2]), int(match[3] or 0)), default=None)
    return None if newest is None else newest[1]
