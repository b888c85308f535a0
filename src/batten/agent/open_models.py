"""The models of a run: opened when needed, closed with the run."""

from collections.abc import Callable

from batten.models.contract import Model


class OpenModels:
    """Called before each turn; opens models that were not needed before."""

    def __init__(
        self, open_model: Callable[[str], Model], names: Callable[[], tuple[str, ...]]
    ) -> None:
        self._open = open_model
        self._names = names
        self._opened: dict[str, Model] = {}

    def __call__(self) -> tuple[Model, ...]:
        return tuple(self._model(name) for name in self._names())

    def _model(self, name: str) -> Model:
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    async def aclose(self) -> None:
        for model in self._opened.values():
            await model.aclose()
