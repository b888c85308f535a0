"""What is measured of runs: names, units and buckets of the GenAI semantic conventions where these
have them.
"""

from msgspec import Struct

from batten.sinks.otel.encoding import Attributes, Point

_TOKENS = tuple(float(4**power) for power in range(14))
_SECONDS = tuple(0.01 * 2**power for power in range(14))


class Metric(Struct, frozen=True):
    name: str
    unit: str
    about: str
    bounds: tuple[float, ...] | None
    """Of a histogram; None for a counter."""

    def point(self, value: float, times: tuple[int, int], attributes: Attributes) -> Point:
        """One measurement, with its beginning and end in nanoseconds."""
        return Point(
            metric=self.name,
            unit=self.unit,
            about=self.about,
            bounds=self.bounds,
            value=value,
            start_ns=times[0],
            end_ns=times[1],
            attributes=attributes,
        )


TOKEN_USAGE = Metric("gen_ai.client.token.usage", "{token}", "Tokens of a model call.", _TOKENS)
CALL_DURATION = Metric(
    "gen_ai.client.operation.duration", "s", "Duration of a model call.", _SECONDS
)
TOOL_DURATION = Metric("batten.tool.duration", "s", "Duration of a tool call.", _SECONDS)
RUNS = Metric("batten.runs", "{run}", "Runs that ended.", None)
RUN_DURATION = Metric("batten.run.duration", "s", "Duration of a run.", _SECONDS)
