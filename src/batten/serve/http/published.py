"""The surfaces of `batten serve`, in the order of the documentation, without their services."""

from batten import __version__
from batten.serve.http.hecate.surface import hecate
from batten.serve.http.metrics import Metrics
from batten.serve.http.rows import rows
from batten.serve.http.system import System, with_system
from batten.serve.http.table import Surface


def published() -> tuple[Surface, ...]:
    """What `docs/http.md` and `schemas/openapi.json` are generated from."""
    surfaces = (hecate(None), rows(None))
    return with_system(surfaces, System(version=__version__, metrics=Metrics()))
