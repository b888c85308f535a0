"""The surfaces of `batten serve` and `batten hosted-runner`, in the order of the documentation,
without their services.
"""

from batten import __version__
from batten.serve.http.hecate.surface import hecate
from batten.serve.http.macp.surface import macp
from batten.serve.http.metrics import Metrics
from batten.serve.http.rows import rows
from batten.serve.http.runner.surface import ABOUT, runner_surfaces
from batten.serve.http.sinks.surface import sinks
from batten.serve.http.system import System, with_system
from batten.serve.http.table import Surface


def published() -> tuple[Surface, ...]:
    """What `docs/http.md` and `schemas/openapi.json` are generated from."""
    surfaces = (hecate(None), rows(None), *sinks(None), *macp(None))
    return with_system(surfaces, System(version=__version__, metrics=Metrics()))


def published_runner() -> tuple[Surface, ...]:
    """The same for a hosted runner, and `schemas/runner-openapi.json`."""
    return runner_surfaces(None, (), System(version=__version__, metrics=Metrics(), about=ABOUT))
