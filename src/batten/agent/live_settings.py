"""Settings that a client may change during a run: permissions and models."""

from batten.agent.rules.rule import Rule
from batten.agent.rules.verdict import Mode
from batten.agent.settings import RunSettings


class LiveSettings:
    """Shared by the runs of a session and their children; each decision reads it anew."""

    def __init__(self, mode: Mode, rules: tuple[Rule, ...], models: tuple[str, ...]) -> None:
        self.mode: Mode = mode
        self.rules = rules
        self.models = models

    def follow(self, settings: RunSettings) -> None:
        """Use these settings from now on."""
        self.mode, self.rules, self.models = settings.mode, settings.rules, settings.models

    def add_rule(self, rule: Rule) -> None:
        if rule not in self.rules:
            self.rules = (rule, *self.rules)


def live_settings_of(settings: RunSettings) -> LiveSettings:
    return LiveSettings(settings.mode, settings.rules, settings.models)
