"""The model of a task's next run, and the permission mode of a task that names none."""

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from batten.agent.rules.verdict import Mode
from batten.contract.errors import CallerError, NoCredentials
from batten.contract.facts import TaskCreated
from batten.control.layers import LayersOfWorkspaces
from batten.control.specification import asked_models
from batten.models.registry import PLACES, full_provider, has_place
from batten.settings.contract import Settings
from batten.wiring.settings import run_settings
from batten.wiring.spec import SessionSpec

NOT_CONFIGURED = "model_not_configured"
_MOST_CHOSEN = 256

_Asked = tuple[str, str | UnsetType, str | UnsetType]
"""A workspace, and the model and provider that a task asks for."""
_Model = tuple[str | None, str | None]


class ChosenModels:
    """What the settings of the service and of a workspace say about models."""

    def __init__(self, base: SessionSpec, home: str) -> None:
        self._base = base
        self._home = home
        self._layers = LayersOfWorkspaces(base, home)
        self._chosen: dict[_Asked, tuple[Settings, _Model]] = {}
        """What was chosen last, and by which settings."""

    def mode(self) -> Mode:
        """The permission mode of a task that names none."""
        spec = replace(self._base, needs_model=False)
        return run_settings(spec, None, self._layers.of(self._home)).mode

    def of(self, workspace: str, task: TaskCreated) -> _Model:
        """The provider and model of the next run. Raises `CallerError` if there is none."""
        if task.execution_kind != "agent_loop":
            return None, None
        found = self._layers.of(workspace)
        asked = workspace, task.requested_model, task.requested_provider
        known = self._chosen.get(asked)
        if known is not None and known[0] is found:
            return known[1]
        chosen = self._choose(task, found)
        if len(self._chosen) >= _MOST_CHOSEN:
            self._chosen.clear()
        self._chosen[asked] = found, chosen
        return chosen

    def _choose(self, task: TaskCreated, found: Settings) -> _Model:
        spec = replace(self._base, models=asked_models(self._base, task))
        if task.requested_model and task.requested_provider is not UNSET:
            spec = replace(spec, provider=task.requested_provider)
        try:
            settings = run_settings(replace(spec, resolvers=("operator",)), None, found)
        except NoCredentials as error:
            raise CallerError(error.message, code=NOT_CONFIGURED) from error
        provider, _, model = settings.models[0].partition("/")
        asked = task.requested_provider
        if asked and not task.requested_model and full_provider(asked) != provider:
            raise CallerError(
                f"requested_provider {asked!r} needs a requested_model: the model of the service is"
                f" {provider}/{model}",
                code=NOT_CONFIGURED,
            )
        place = PLACES.get(provider)
        needs_key = () if place is None else place.key_variables
        if needs_key and not has_place(provider, {**spec.environ, **found.env}):
            raise CallerError(
                f"the service has no key for {provider}; set {' or '.join(needs_key)} in its"
                " environment, or ask for another model",
                code=NOT_CONFIGURED,
            )
        return provider, model
