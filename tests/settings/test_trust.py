"""Trust: what a workspace brings does nothing until exactly that content is trusted."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.agent.rules.rule import Rule
from batten.agent.rules.verdict import decide
from batten.contract.errors import CallerError
from batten.settings.contract import RuleConfig, Settings
from batten.settings.skills import skill_body
from batten.settings.supplied import survey
from batten.settings.trust import every_trusted, record_trust, revoke_trust, trusted_in
from tests.agent.rules.tools import shell

from .given import HOOK, Machine, write, write_skill

EVERYTHING: dict[str, Any] = {
    "model": "p/m",
    "fallback_models": ["p/n"],
    "permissions": {
        "allow": ["Bash"],
        "deny": ["WebFetch"],
        "ask": ["Edit"],
        "default_mode": "dontAsk",
        "enforce": True,
    },
    "hooks": {"Stop": [HOOK]},
    "mcp_servers": {"db": {"command": "db"}},
    "env": {"PATH": "/evil"},
    "disable_all_hooks": False,
    "allow_managed_hooks_only": False,
    "allowed_http_hook_urls": ["*"],
    "http_hook_allowed_env_vars": ["TOKEN"],
    "plugins": ["tools/audit"],
}


@pytest.mark.parametrize("scope", ["project", "local"])
def test_of_content_that_is_not_trusted_only_what_forbids_counts(
    machine: Machine, scope: Any
) -> None:
    machine.plugin(machine.workspace / "tools/audit", hooks={"Stop": [HOOK]})
    path = machine.say(scope, EVERYTHING)
    settings = machine.read()
    (problem,) = settings.problems
    assert settings == Settings(
        sources=(),
        may_bypass=False,
        rules=(
            RuleConfig(action="deny", pattern="WebFetch", scope=scope),
            RuleConfig(action="ask", pattern="Edit", scope=scope),
        ),
        problems=(problem,),
    )
    assert problem == (
        f"not trusted and left out: .batten/{path.name} (1 hook, 1 MCP server, 1 allow rule, "
        "1 permission mode, 1 variable, 1 plugin, 2 models, 2 settings, 1 address of hooks, "
        "1 variable in headers); `batten trust` shows it and turns it on"
    )


@pytest.mark.parametrize("scope", ["project", "local"])
def test_everything_counts_once_it_is_trusted(machine: Machine, scope: str) -> None:
    machine.plugin(machine.workspace / "tools/audit", hooks={"Stop": [HOOK]})
    machine.say(scope, EVERYTHING)
    machine.trust()
    settings = machine.read()
    assert settings.problems == ()
    assert settings.model == "p/m"
    assert settings.permission_mode == "dontAsk"
    assert len(settings.rules) == 3
    assert [hook.scope for hook in settings.hooks] == ["plugin", scope]
    assert settings.env == {"PATH": "/evil"}
    assert [plugin.name for plugin in settings.plugins] == ["audit"]


@pytest.mark.parametrize("scope", ["managed", "user", "flag"])
def test_scopes_outside_the_workspace_need_no_trust(machine: Machine, scope: str) -> None:
    machine.plugin(machine.workspace / "tools/audit")
    machine.say(scope, {**EVERYTHING, "plugins": [str(machine.workspace / "tools/audit")]})
    settings = machine.read()
    assert settings.problems == ()
    assert (settings.model, len(settings.rules), len(settings.plugins)) == ("p/m", 3, 1)


def test_a_file_that_only_forbids_needs_no_trust(machine: Machine) -> None:
    machine.say("project", {"permissions": {"deny": ["Bash"], "enforce": True}})
    assert machine.read().problems == ()
    assert survey(str(machine.workspace), {}) == ([], [])


def test_content_that_changed_is_not_trusted(machine: Machine) -> None:
    machine.say("project", {"model": "p/a"})
    machine.trust()
    assert machine.read().model == "p/a"
    machine.say("project", {"model": "p/b"})
    settings = machine.read()
    assert settings.model is None
    assert "1 model, changed since it was trusted" in settings.problems[0]
    machine.say("project", {"model": "p/a"})
    assert machine.read().model == "p/a"


def test_one_changed_file_does_not_take_the_others_with_it(machine: Machine) -> None:
    machine.say("project", {"model": "p/a"})
    machine.say("local", {"env": {"A": "1"}})
    machine.trust()
    machine.say("local", {"env": {"A": "2"}})
    settings = machine.read()
    assert (settings.model, settings.env) == ("p/a", {})


def test_trust_in_one_workspace_is_none_in_another(machine: Machine, tmp_path: Path) -> None:
    machine.say("project", {"model": "p/a"})
    machine.trust()
    elsewhere = Machine(tmp_path.resolve() / "elsewhere")
    elsewhere.home = machine.home
    elsewhere.say("project", {"model": "p/a"})
    assert elsewhere.read().model is None


def test_an_untrusted_question_does_not_stand_before_a_denial(machine: Machine) -> None:
    machine.say("user", {"permissions": {"deny": ["Bash(curl *)"], "allow": ["Bash"]}})
    machine.say("project", {"permissions": {"ask": ["Bash"]}})
    found = [Rule(rule.action, rule.pattern, rule.scope) for rule in machine.read().rules]
    assert {(rule.action, rule.source) for rule in found} == {
        ("deny", "user"),
        ("ask", "project"),
        ("allow", "user"),
    }
    for line, verdict in (("curl x", "deny"), ("make", "ask")):
        assert decide(shell(line), {}, rules=found, mode="default").verdict == verdict


def test_servers_of_a_workspace_need_trust(machine: Machine) -> None:
    write(machine.workspace / ".mcp.json", b'{"mcpServers": {"db": {"command": "evil"}}}')
    settings = machine.read()
    assert settings.mcp_servers == {}
    assert "not trusted and left out: .mcp.json (1 MCP server)" in settings.problems[0]
    machine.trust()
    assert machine.read().mcp_servers == {"db": {"command": "evil"}}


def test_settings_win_over_the_servers_beside_them(machine: Machine) -> None:
    write(machine.workspace / ".mcp.json", b'{"mcpServers": {"db": {"command": "a"}}}')
    machine.say("project", {"mcp_servers": {"db": {"command": "b"}}})
    machine.trust()
    assert machine.read().mcp_servers == {"db": {"command": "b"}}


def test_servers_nobody_asked_for_are_not_complained_about(machine: Machine) -> None:
    write(machine.workspace / ".mcp.json", b'{"mcpServers": {"db": {"command": "evil"}}}')
    assert machine.read(without=frozenset({"mcp"})) == Settings()
    assert machine.read(sources=("user",)) == Settings()


@pytest.mark.parametrize("name", [".batten/settings.json", ".mcp.json", ".batten"])
def test_a_link_that_leads_out_of_the_workspace_is_not_followed(
    machine: Machine, name: str
) -> None:
    outside = write(machine.home / "settings.json", b'{"model": "p/m", "mcpServers": {}}')
    link = machine.workspace / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside.parent if name == ".batten" else outside)
    machine.trust()
    settings = machine.read()
    assert settings.model is None
    assert "is a link that leads out of the workspace" in settings.problems[0]


def test_a_link_within_the_workspace_is_followed(machine: Machine) -> None:
    write(machine.workspace / "conf/settings.json", b'{"permissions": {"deny": ["Bash"]}}')
    (machine.workspace / ".batten").symlink_to("conf")
    assert len(machine.read().rules) == 1


def test_a_skill_of_nothing_but_text_needs_no_trust(machine: Machine) -> None:
    folder = machine.workspace / ".batten/skills"
    write_skill(folder, "review")
    write(folder / "review/details.md", b"more")
    settings = machine.read()
    assert [(skill.name, skill.scope) for skill in settings.skills] == [("review", "project")]
    assert settings.problems == ()


@pytest.mark.parametrize("beside", ["run.sh", "scripts/run.md"])
def test_a_skill_with_more_than_text_needs_trust(machine: Machine, beside: str) -> None:
    folder = machine.workspace / ".batten/skills"
    write_skill(folder, "review")
    script = write(folder / "review" / beside, b"echo")
    settings = machine.read()
    assert settings.skills == ()
    assert ".batten/skills/review (1 skill)" in settings.problems[0]
    machine.trust()
    assert [skill.name for skill in machine.read().skills] == ["review"]
    script.write_bytes(b"echo changed")
    assert machine.read().skills == ()


@pytest.mark.parametrize("change", ["bytes", "name", "mode", "new", "gone", "link"])
def test_any_change_below_a_plugin_of_the_workspace_ends_its_trust(
    machine: Machine, change: str
) -> None:
    folder = machine.plugin(machine.workspace / "tools/audit", hooks={"Stop": [HOOK]})
    script = write(folder / "scripts/run.sh", b"echo")
    machine.say("project", {"plugins": ["./tools/audit"]})
    machine.trust()
    assert len(machine.read().plugins) == 1
    match change:
        case "bytes":
            script.write_bytes(b"ohce")
        case "name":
            script.rename(script.with_name("walk.sh"))
        case "mode":
            script.chmod(0o755)
        case "new":
            write(folder / "scripts/new.sh", b"")
        case "gone":
            script.unlink()
        case _:
            script.unlink()
            script.symlink_to(machine.home / "elsewhere")
    settings = machine.read()
    assert (settings.plugins, settings.hooks) == ((), ())
    assert len(settings.problems) == 1


def test_a_plugin_that_leads_out_of_the_workspace_is_not_followed(machine: Machine) -> None:
    machine.plugin(machine.home / "audit")
    (machine.workspace / "audit").symlink_to(machine.home / "audit")
    machine.say("project", {"plugins": ["audit"]})
    machine.trust()
    settings = machine.read()
    assert settings.plugins == ()
    assert "audit is a link that leads out of the workspace" in settings.problems[0]


@pytest.mark.parametrize("named", ["{home}/audit", "../state/audit", "~/state/audit"])
def test_a_plugin_outside_that_the_workspace_names_is_trusted_as_a_whole(
    machine: Machine, named: str
) -> None:
    folder = machine.plugin(machine.home / "audit")
    machine.say("project", {"plugins": [named.format(home=machine.home)]})
    assert machine.read().plugins == ()
    machine.trust()
    assert [plugin.path for plugin in machine.read().plugins] == [str(folder)]
    machine.plugin(folder, hooks={"Stop": [HOOK]})
    settings = machine.read()
    assert (settings.plugins, settings.hooks) == ((), ())
    assert f"{folder} (1 plugin, 1 hook, changed since" in settings.problems[0]


@pytest.mark.parametrize("named", ["/proc/self/cwd/audit", "way/audit", "../workspace/audit"])
def test_a_plugin_of_the_workspace_is_one_however_it_is_named(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.chdir(machine.workspace)
    (machine.workspace / "way").symlink_to(".")
    folder = machine.plugin(machine.workspace / "audit")
    machine.say("project", {"plugins": [named]})
    machine.trust()
    assert [plugin.path for plugin in machine.read().plugins] == [str(folder)]
    machine.plugin(folder, hooks={"Stop": [HOOK]})
    settings = machine.read()
    assert (settings.plugins, settings.hooks) == ((), ())
    assert "left out: audit (1 plugin, 1 hook, changed since" in settings.problems[0]


@pytest.mark.parametrize("named", [".", "..", "/proc/self/cwd", "../workspace", "way", "/"])
def test_a_folder_that_holds_the_workspace_is_no_plugin_of_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.chdir(machine.workspace)
    (machine.workspace / "way").symlink_to(".")
    for folder in (machine.workspace, machine.workspace.parent):
        machine.plugin(folder, hooks={"Stop": [HOOK]})
    machine.say("project", {"plugins": [named]})
    machine.trust()
    settings = machine.read()
    assert (settings.plugins, settings.hooks) == ((), ())
    assert settings.problems[0].endswith("holds the workspace itself")


def test_a_plugin_that_the_user_names_too_needs_no_trust(machine: Machine) -> None:
    folder = machine.plugin(machine.home / "audit")
    machine.say("project", {"plugins": [str(folder)]})
    machine.trust()
    machine.say("user", {"plugins": [str(folder)]})
    machine.plugin(folder, hooks={"Stop": [HOOK]})
    settings = machine.read()
    assert (len(settings.plugins), len(settings.hooks), settings.problems) == (1, 1, ())


def test_a_trusted_skill_that_changes_later_is_not_read(machine: Machine) -> None:
    skills = machine.workspace / ".batten/skills"
    write_skill(skills, "review")
    write(skills / "review/run.sh", b"echo")
    folder = machine.plugin(machine.workspace / "audit", skills=["account"])
    machine.say("project", {"plugins": ["audit"]})
    machine.trust()
    found = machine.read().skills
    assert [skill_body(skill) for skill in found] == ["Do it well."] * 2
    write(skills / "review/run.sh", b"echo changed")
    write_skill(folder / "skills", "account", body="Do something else.")
    review, account = found
    with pytest.raises(CallerError, match="has changed since it was trusted"):
        skill_body(review)
    # Read from the private copy of what was trusted.
    assert skill_body(account) == "Do it well."
    assert "account" not in [skill.name for skill in machine.read().skills]


def test_a_skill_that_comes_to_lead_out_of_the_workspace_is_not_read(machine: Machine) -> None:
    file = write_skill(machine.workspace / ".batten/skills", "review")
    (skill,) = machine.read().skills
    file.unlink()
    file.symlink_to(write_skill(machine.home, "review"))
    with pytest.raises(CallerError, match="is a link that leads out of the workspace"):
        skill_body(skill)


def test_more_rules_than_are_worth_holding_against_every_call_need_trust(machine: Machine) -> None:
    rules = [f"Read(**/{number})" for number in range(500)]
    machine.say("project", {"permissions": {"deny": rules}})
    assert len(machine.read().rules) == 500
    machine.say("project", {"permissions": {"deny": rules, "ask": ["Bash"]}})
    with pytest.raises(CallerError, match=r"\.json has 501 rules that deny or ask") as raised:
        machine.read()
    assert raised.value.code == "config"
    machine.trust()
    assert len(machine.read().rules) == 501


def test_a_folder_too_large_to_be_trusted_is_left_out(machine: Machine) -> None:
    folder = machine.workspace / ".batten/skills"
    write_skill(folder, "many")
    for number in range(1000):
        write(folder / f"many/{number}.txt", b"")
    settings = machine.read()
    assert settings.skills == ()
    assert settings.problems == (
        "a skill is left out: .batten/skills/many has more than 1000 files",
    )


def test_the_file_of_what_is_trusted_is_private(machine: Machine) -> None:
    record_trust(str(machine.home), "/w", {"a": "1"})
    path = machine.home / "trust.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(os.listdir(machine.home)) == ["trust.json", "trust.json.lock"]


def test_a_file_that_others_may_write_is_not_believed(machine: Machine) -> None:
    machine.say("project", {"model": "p/a"})
    machine.trust()
    (machine.home / "trust.json").chmod(0o666)
    with pytest.raises(CallerError, match="can be written by others") as raised:
        machine.read()
    assert raised.value.code == "config"


@pytest.mark.parametrize("data", [b"", b"[]", b'{"workspaces": 5}', b"\xff", b'{"version": 2}'])
def test_a_damaged_file_is_named_and_nothing_is_trusted(machine: Machine, data: bytes) -> None:
    machine.say("project", {"model": "p/a"})
    path = write(machine.home / "trust.json", data)
    path.chmod(0o600)
    with pytest.raises(CallerError, match=r"trust\.json") as raised:
        machine.read()
    assert raised.value.code == "config"


def test_a_damaged_file_is_in_nobodys_way_who_needs_no_trust(machine: Machine) -> None:
    write(machine.home / "trust.json", b"?").chmod(0o600)
    machine.say("user", {"model": "p/a"})
    assert machine.read().model == "p/a"


def test_trust_is_added_replaced_and_revoked(machine: Machine) -> None:
    home = str(machine.home)
    record_trust(home, "/a", {"x": "1", "y": "1"})
    record_trust(home, "/a", {"x": "2"})
    record_trust(home, "/b", {"x": "3"})
    assert trusted_in(home, "/a") == {"x": "2", "y": "1"}
    assert sorted(revoke_trust(home, "/a")) == ["x", "y"]
    assert every_trusted(home) == {"/b": {"x": "3"}}
    assert revoke_trust(home, "/a") == []


RECORDING = """
import sys
from batten.settings.trust import record_trust
for number in range(25):
    record_trust(sys.argv[1], "/workspace", {f"{sys.argv[2]}-{number}": "d"})
"""


def test_two_who_trust_at_once_lose_nothing(machine: Machine) -> None:
    started = [
        subprocess.Popen([sys.executable, "-c", RECORDING, str(machine.home), who])
        for who in ("one", "two", "three")
    ]
    assert [process.wait(30) for process in started] == [0, 0, 0]
    assert len(trusted_in(str(machine.home), "/workspace")) == 75
    assert sorted(os.listdir(machine.home)) == ["trust.json", "trust.json.lock"]
    msgspec.json.decode((machine.home / "trust.json").read_bytes())


def test_trusted_plugin_is_used_from_a_private_copy_of_the_digested_bytes(
    machine: Machine,
) -> None:
    hook = {"handlers": [{"type": "command", "command": "${BATTEN_PLUGIN_ROOT}/guard"}]}
    folder = machine.plugin(machine.workspace / "audit", hooks={"Stop": [hook]}, skills=["tidy"])
    guard = write(folder / "guard", "#!/bin/sh\necho trusted\n")
    guard.chmod(0o755)
    machine.say("project", {"plugins": ["./audit"]})
    machine.trust()
    settings = machine.read()
    # What a command writes now is not what runs.
    guard.write_text("#!/bin/sh\necho exchanged\n")
    write_skill(folder / "skills", "tidy", body="Exchanged.")
    (plugin,) = settings.plugins
    command = settings.hooks[0].handlers[0].command
    assert plugin.path == str(folder)
    assert command.startswith(str(machine.home))
    assert subprocess.check_output([command], text=True) == "trusted\n"
    assert skill_body(settings.skills[0]) == "Do it well."


def test_private_copy_that_was_damaged_is_made_again(machine: Machine) -> None:
    hook = {"handlers": [{"type": "command", "command": "${BATTEN_PLUGIN_ROOT}/guard"}]}
    folder = machine.plugin(machine.workspace / "audit", hooks={"Stop": [hook]})
    write(folder / "guard", "as trusted")
    machine.say("project", {"plugins": ["./audit"]})
    machine.trust()
    copy = Path(machine.read().hooks[0].handlers[0].command)
    copy.chmod(0o600)
    copy.write_text("damaged")
    again = Path(machine.read().hooks[0].handlers[0].command)
    assert (again, again.read_text()) == (copy, "as trusted")


def test_what_is_shown_for_trust_names_the_plugins_own_folder(machine: Machine) -> None:
    hook = {"handlers": [{"type": "command", "command": "${BATTEN_PLUGIN_ROOT}/guard"}]}
    folder = machine.plugin(machine.workspace / "audit", hooks={"Stop": [hook]})
    machine.say("project", {"plugins": ["./audit"]})
    contents, _ = survey(str(machine.workspace), machine.environ)
    assert any(f"{folder}/guard" in one.what for content in contents for one in content.brings)
