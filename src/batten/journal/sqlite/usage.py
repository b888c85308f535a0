"""Sums of runs, tokens and cost, from the rows and the ledger: no fact is read."""

import msgspec

from batten.journal.removal import Grouping, UsageSum
from batten.journal.sqlite.reader import Reader

_MODEL = "CASE WHEN model = '' THEN '' ELSE provider || '/' || model END"
_NAMES: dict[Grouping, str] = {
    "all": "''",
    "day": "substr(hour, 1, 10)",
    "local_day": "date(hour, 'localtime')",
    "model": _MODEL,
    "workspace": "workspace_path",
}

_OF_RUNS = """
SELECT substr(created_at, 1, 13) || ':00:00.000Z' AS hour,
    coalesce((SELECT provider FROM ledger WHERE ledger.run_id = runs.run_id LIMIT 1), provider, '')
        AS provider,
    coalesce((SELECT model FROM ledger WHERE ledger.run_id = runs.run_id LIMIT 1), model, '')
        AS model, workspace_path, 1 AS runs, 0 AS calls, 0 AS input_tokens,
    0 AS output_tokens, 0 AS cache_read_tokens, 0 AS cache_write_tokens, 0 AS cost_micros_usd,
    cost_unknown FROM runs WHERE kind != 'session' AND {where}
UNION ALL
SELECT substr(created_at, 1, 13) || ':00:00.000Z', ledger.provider, ledger.model, workspace_path,
    0, 1, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens,
    coalesce(ledger.cost_micros_usd, 0), ledger.cost_micros_usd IS NULL
    FROM ledger JOIN runs USING (run_id) WHERE {where}
"""
_COLUMNS = (
    "runs, calls, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens,"
    " cost_micros_usd"
)
_SUMS = ", ".join(f"sum({name})" for name in _COLUMNS.split(", ")) + ", max(cost_unknown)"

KEEP_USAGE = (
    f"INSERT INTO past_usage SELECT hour, provider, model, workspace_path, {_SUMS}"
    f" FROM ({_OF_RUNS.format(where='key = ?1')}) WHERE true"
    " GROUP BY hour, provider, model, workspace_path ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in _COLUMNS.split(", "))
    + ", cost_unknown = max(cost_unknown, excluded.cost_unknown)"
)
"""Adds the usage of the run with this key to that of pruned sessions."""


def usage(reader: Reader, by: Grouping, since: str | None, until: str | None) -> list[UsageSum]:
    """The usage of runs created from `since` until before `until`, in order of name.

    A run counts for the day it was created, and for the model of its first call. Pruned sessions
    are included, to the hour.
    """
    where = "(?1 IS NULL OR created_at >= ?1) AND (?2 IS NULL OR created_at < ?2)"
    past = "(?1 IS NULL OR hour >= ?1) AND (?2 IS NULL OR hour < ?2)"
    found = reader.all(
        f"SELECT {_NAMES[by]} AS name, {_SUMS} FROM ({_OF_RUNS.format(where=where)}"
        f" UNION ALL SELECT * FROM past_usage WHERE {past}) GROUP BY name ORDER BY name",
        (since, until),
    )
    fields = UsageSum.__struct_fields__
    named = [dict(zip(fields, row, strict=True)) for row in found]
    return msgspec.convert(named, list[UsageSum], strict=False)
