"""Merging: one law for any number of scopes, and one for those nobody trusts."""

from functools import reduce
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batten.agent.rules.rule import Rule
from batten.agent.rules.verdict import Mode, decide
from batten.settings.contract import HookConfig, RuleConfig, Scope
from batten.settings.layer import Layer, PluginPath, merged, restrained
from batten.tools.todo import TodoWrite

SCOPES: tuple[Scope, ...] = ("managed", "user", "project", "local", "flag")
names = st.sampled_from(["a", "b", "c"])
texts = st.sampled_from(["1", "2", "3"])
switches = st.none() | st.booleans()
actions: st.SearchStrategy[Any] = st.sampled_from(["allow", "ask", "deny"])
servers: st.SearchStrategy[dict[str, dict[str, Any]]] = st.dictionaries(
    names,
    st.fixed_dictionaries(
        {},
        optional={"command": texts, "args": st.lists(texts), "env": st.dictionaries(names, texts)},
    ),
)


def rules_of(scope: Scope) -> st.SearchStrategy[tuple[RuleConfig, ...]]:
    # `todo_write` is the only tool here: a pattern speaks of the call or it does not.
    patterns = st.sampled_from(["todo_write", "todo_*", "other", "*"])
    made = st.builds(RuleConfig, action=actions, pattern=patterns, scope=st.just(scope))
    return st.lists(made, max_size=3).map(tuple)


def layers_of(scope: Scope) -> st.SearchStrategy[Layer]:
    hooks = st.builds(HookConfig, event=st.just("Stop"), matcher=names, scope=st.just(scope))
    return st.builds(
        Layer,
        sources=st.just((scope,)),
        model=st.none() | texts,
        fallback_models=st.none() | st.lists(texts, max_size=2).map(tuple),
        permission_mode=st.none() | texts,
        enforce=st.booleans(),
        rules=rules_of(scope),
        hooks=st.lists(hooks, max_size=2).map(tuple),
        disable_all_hooks=switches,
        allow_managed_hooks_only=switches,
        http_urls=st.lists(texts, max_size=2).map(tuple),
        http_env_vars=st.lists(texts, max_size=2).map(tuple),
        mcp_servers=servers,
        env=st.dictionaries(names, texts),
        plugins=st.lists(st.builds(PluginPath, texts, st.just(scope)), max_size=2).map(tuple),
    )


every_scope = st.tuples(*map(layers_of, SCOPES))


@given(layers_of("user"), layers_of("project"), layers_of("flag"))
def test_it_does_not_matter_which_neighbours_are_merged_first(
    weak: Layer, middle: Layer, strong: Layer
) -> None:
    assert merged(merged(weak, middle), strong) == merged(weak, merged(middle, strong))


@given(layers_of("user"))
def test_a_layer_that_says_nothing_changes_nothing(layer: Layer) -> None:
    assert merged(Layer(), layer) == layer == merged(layer, Layer())


@given(every_scope)
def test_the_strongest_that_speaks_wins_and_lists_are_joined(layers: tuple[Layer, ...]) -> None:
    whole = reduce(merged, layers)
    strongest_first = layers[::-1]

    def first(field: str) -> Any:
        said = (getattr(layer, field) for layer in strongest_first)
        return next((value for value in said if value is not None), None)

    for field in (
        *("model", "fallback_models", "permission_mode"),
        *("disable_all_hooks", "allow_managed_hooks_only"),
    ):
        assert getattr(whole, field) == first(field)
    for field in ("rules", "hooks", "http_urls", "http_env_vars", "plugins"):
        joined = tuple(one for layer in strongest_first for one in getattr(layer, field))
        assert getattr(whole, field) == joined
    assert whole.sources == SCOPES
    assert whole.enforce is any(layer.enforce for layer in layers)
    for name in "abc":
        said = [layer.env[name] for layer in strongest_first if name in layer.env]
        assert whole.env.get(name) == (said[0] if said else None)


@given(every_scope)
def test_of_a_server_the_strongest_word_on_each_key_wins(layers: tuple[Layer, ...]) -> None:
    whole = reduce(merged, layers)
    for name in "abc":
        entries = [layer.mcp_servers[name] for layer in layers[::-1] if name in layer.mcp_servers]
        assert (name in whole.mcp_servers) is bool(entries)
        for key in ("command", "args"):
            said = [entry[key] for entry in entries if key in entry]
            assert whole.mcp_servers.get(name, {}).get(key) == (said[0] if said else None)
        env: dict[str, str] = {}
        for entry in entries[::-1]:
            env |= entry.get("env", {})
        assert whole.mcp_servers.get(name, {}).get("env", {}) == env


RESTRICTION = {"allow": 0, "ask": 1, "deny": 2}


def verdict(rules: tuple[RuleConfig, ...], mode: Mode) -> str:
    asked = [Rule(rule.action, rule.pattern, rule.scope) for rule in rules]
    return decide(TodoWrite(), {"todos": []}, rules=asked, mode=mode).verdict


@given(every_scope, st.sets(st.sampled_from(["project", "local"]), min_size=1),
       st.sampled_from(["default", "acceptEdits", "plan", "auto", "dontAsk"]))  # fmt: skip
def test_a_workspace_nobody_trusts_can_forbid_and_never_permit(
    layers: tuple[Layer, ...], untrusted: set[Scope], mode: Mode
) -> None:
    without = [layer for layer in layers if layer.sources[0] not in untrusted]
    kept = [restrained(one) if one.sources[0] in untrusted else one for one in layers]
    before = reduce(merged, without)
    after = reduce(merged, kept)
    found = verdict(after.rules, mode)
    assert RESTRICTION[found] >= RESTRICTION[verdict(before.rules, mode)]
    for field in ("model", "permission_mode", "hooks", "mcp_servers", "env", "plugins",
                  "disable_all_hooks", "allow_managed_hooks_only", "http_urls"):  # fmt: skip
        assert getattr(after, field) == getattr(before, field)


@given(every_scope, rules_of("local"))
def test_what_an_untrusted_workspace_denies_is_denied(
    layers: tuple[Layer, ...], more: tuple[RuleConfig, ...]
) -> None:
    denial = RuleConfig(action="deny", pattern="todo_write", scope="local")
    local = restrained(Layer(sources=("local",), rules=(*more, denial)))
    rules = reduce(merged, [*layers[:3], local]).rules
    assert verdict(rules, "default") == "deny"
