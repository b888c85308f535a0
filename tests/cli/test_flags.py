"""Flags: what is wrong with one is said on one line, with the exit code for it."""

import pytest

from batten.cli import FLAG_VARIABLES
from batten.contract.errors import CallerError
from batten.contract.numbers import seconds_of
from tests.agent.stage import bash, say
from tests.models.server import answer
from tests.models.wire import anthropic_turn

from .invoking import Shell, serving


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--output-format", "xml"], "invalid choice: 'xml'"),
        (["--permission-mode", "yolo"], "invalid choice: 'yolo'"),
        (["--max-turns", "-1"], "'-1' is not a whole number of at least 0"),
        (["--workspace", ""], "argument --workspace: the path is empty"),
        (["--record="], "argument --record: the path is empty"),
        (["--json-schema", " "], "argument --json-schema: the path is empty"),
        (["--debug-file", ""], "argument --debug-file: the path is empty"),
        (["--max-turns=--"], "'--' is not a whole number of at least 0"),
        (["--output-format=--"], "invalid choice: '--'"),
        (["--max-turns", "many"], "'many' is not a whole number"),
        (["--max-turns", "1.5"], "'1.5' is not a whole number"),
        (["--max-turns", "9" * 30], "is not a whole number"),
        (["--max-turns", "\uff11\uff12"], "is not a whole number"),
        (["--max-turns", "\u0663"], "is not a whole number"),
        (["--max-turns", "1_0"], "is not a whole number"),
        (["--max-turns", " 3 "], "is not a whole number"),
        (["--max-budget-usd", "\u0661.5"], "is not an amount in US dollars"),
        (["--max-seconds", "1_0.0"], "is not a number of seconds above 0"),
        (["--resume", ""], "--resume needs the name of a session or run; it is empty"),
        (["--resume="], "--resume needs the name of a session or run; it is empty"),
        (["-r", " "], "--resume needs the name of a session or run; it is empty"),
        (["--branch", ""], "--branch needs the name of a session or run; it is empty"),
        (["--session-id", ""], "--session-id needs the name"),
        (["--max-budget-usd", "-1"], "is not an amount in US dollars"),
        (["--max-budget-usd", "nan"], "is not an amount in US dollars"),
        (["--max-budget-usd", "inf"], "is not an amount in US dollars"),
        (["--max-budget-usd", "1e300"], "is not an amount in US dollars"),
        (["--max-seconds", "0"], "is not a number of seconds above 0"),
        (["--max-seconds", "soon"], "is not a number of seconds above 0"),
        (["--request-seconds", "1e30"], "is not a number of seconds above 0"),
        (["--max-output-tokens", "0"], "is not a whole number of at least 1"),
        (["--temperature", "2.1"], "'2.1' is not a temperature from 0 to 2"),
        (["--temperature", "-0.1"], "is not a temperature from 0 to 2"),
        (["--thinking-tokens", "-5"], "is not a whole number"),
        (["--allow", ""], "names no tool"),
        (["--deny", "Bash("], "not closed by a parenthesis"),
        (["--ask", "Bash()"], "matches nothing"),
        (["--json-schema", "{"], "is not JSON"),
        (["--json-schema", '["a"]'], "must be a JSON object"),
        (
            ["--json-schema", '{"properties": {"n": {"pattern": "("}}}'],
            'is not a JSON Schema: properties.n.pattern: "(" is not a "regex"\n',
        ),
        (["--branch", "run_x", "--resume", "last"], "--branch starts a new session from a run"),
        (["--branch", "run_x", "--continue"], "--branch starts a new session from a run"),
        (["--workspace", "/nowhere/at/all"], "is not a directory"),
        (["--tools", "Hammer"], "no tool is named 'Hammer'"),
        (["--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["--max-turn", "1"], "unrecognized arguments"),
        (["--model"], "expected one argument"),
    ],
)
def test_a_flag_with_a_wrong_value_is_a_usage_error_in_words(
    shell: Shell, flags: list[str], words: str
) -> None:
    said = shell("-p", "go", "--model", shell.stage.scenario([say("well")]), *flags)
    assert (said.code, said.out) == (64, b"")
    assert words in said.err
    assert shell.run_ids() == []


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--model", "nobody/nothing"], 78, "no model 'nobody/nothing'"),
        (["--model", "scripted/nowhere.json"], 78, "no such scenario file"),
        (["--json-schema", "nowhere.json"], 1, "cannot read nowhere.json"),
        (["--mcp-config", "nowhere.json"], 1, "cannot read nowhere.json"),
        (["--resume", "chat_nobody"], 66, "no session or run is named chat_nobody"),
        (["--branch", "run_nobody"], 66, "no run is named run_nobody"),
        (["--continue"], 66, "there is no session in"),
    ],
)
def test_what_is_missing_has_the_exit_code_for_that(
    shell: Shell, flags: list[str], code: int, words: str
) -> None:
    said = shell("-p", "go", "--model", shell.stage.scenario([say("well")]), *flags)
    assert said.code == code
    assert words in said.err


@pytest.mark.parametrize(
    ("name", "value"), [("BATTEN_WATCHDOG_S", "soon"), ("BATTEN_WATCHDOG_S", "-1"),
                        ("BATTEN_MODEL_TIMEOUT_S", "soon"), ("BATTEN_PRICES", "/nowhere.json")]
)  # fmt: skip
@pytest.mark.parametrize("form", ["text", "stream-json"])
def test_a_wrong_setting_of_the_environment_is_a_matter_of_configuration(
    shell: Shell, name: str, value: str, form: str
) -> None:
    shell.set(**{name: value, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"})
    model = "anthropic/claude-sonnet-4-5"
    said = shell("-p", "go", "--model", model, "--output-format", form)
    assert said.code == 78
    assert name in said.err
    assert all(row["outcome"] is not None for row in shell("runs", "--json").frames())


@pytest.mark.parametrize("text", ["-1", "0", "nan", "1e400", "9" * 26])
def test_a_time_that_nobody_can_wait_is_no_time(text: str) -> None:
    with pytest.raises(CallerError, match="BATTEN_MODEL_IDLE_S is"):
        seconds_of({"BATTEN_MODEL_IDLE_S": text}, "BATTEN_MODEL_IDLE_S", 90.0)


@pytest.mark.parametrize("text", ["", "[]"])
def test_a_price_file_that_is_none_is_told_before_there_is_a_run(shell: Shell, text: str) -> None:
    prices = shell.stage.workspace / "prices.json"
    prices.write_text(text)
    shell.set(BATTEN_PRICES=str(prices))
    said = shell.print(shell.stage.scenario([say("well")]))
    assert (said.code, said.out) == (78, b"")
    assert "prices.json is not a price file" in said.err
    assert shell.run_ids() == []


def test_an_empty_variable_is_as_good_as_none(shell: Shell) -> None:
    seconds = ("LEASE_S", "WATCHDOG_S", "MODEL_TIMEOUT_S", "MODEL_IDLE_S", "STDIN_S")
    variables = [*FLAG_VARIABLES.values(), *(f"BATTEN_{name}" for name in seconds)]
    with serving(shell, [answer(anthropic_turn("well"))]):
        shell.set(**dict.fromkeys(variables, ""))
        said = shell("-p", "go", "--model", "anthropic/claude-sonnet-4-5", stdin=b"piped")
    assert (said.code, said.out, said.err) == (0, b"well\n", "")


def test_bypassing_permissions_must_be_allowed_by_a_flag_of_its_own(shell: Shell) -> None:
    model = shell.stage.scenario([bash("touch made")], [say("well")])
    flags = ("--permission-mode", "bypassPermissions", "--deny", "*")
    refused = shell.print(model, *flags)
    assert (refused.code, refused.out) == (64, b"")
    assert "--allow-dangerously-skip-permissions" in refused.err
    assert shell.run_ids() == []
    assert shell.print(model, *flags, "--allow-dangerously-skip-permissions").code == 0
    assert (shell.stage.workspace / "made").exists()


def test_a_resumed_session_does_not_bring_the_bypass_along(shell: Shell) -> None:
    model = shell.stage.scenario([say("well")])
    shell.set(BATTEN_ALLOW_DANGEROUSLY_SKIP_PERMISSIONS="1")
    assert shell.print(model, "--permission-mode", "bypassPermissions").code == 0
    shell.set(BATTEN_ALLOW_DANGEROUSLY_SKIP_PERMISSIONS="0")
    again = ("-p", "more", "--continue")
    assert shell(*again).code == 64
    assert shell(*again, "--permission-mode", "default").code == 0


def test_a_rule_that_denies_counts_in_whatever_order_it_is_given(shell: Shell) -> None:
    model = shell.stage.scenario([bash("touch made")], [say("well")])
    shell.print(model, "--deny", "Bash(touch *)", "--allow", "Bash")
    assert not (shell.stage.workspace / "made").exists()
    shell.print(model, "--allow", "Bash", "--deny", "Bash(touch *)")
    assert not (shell.stage.workspace / "made").exists()
    shell.print(model, "--allow", "Bash", "--deny", "Bash(rm *)")
    assert (shell.stage.workspace / "made").exists()


def test_a_model_without_its_provider_is_known_by_its_name(shell: Shell) -> None:
    shell.set(ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL="http://127.0.0.1:9")
    said = shell(
        "-p",
        "x",
        "--model",
        "claude-sonnet-4-5",
        "--max-turns",
        "0",
        "--output-format",
        "stream-json",
    )
    assert said.frames()[0]["model"] == "anthropic/claude-sonnet-4-5"
    (run,) = shell("runs", "--json").frames()
    assert (run["provider"], run["model"]) == ("anthropic", "claude-sonnet-4-5")


NOTHING_IS_ASKED = ["--max-turns", "0", "--output-format", "stream-json"]
KEYS = {f"{name}_API_KEY": "k" for name in ("ANTHROPIC", "OPENAI", "OPENROUTER")}


@pytest.mark.parametrize(
    ("flags", "environ", "model"),
    [
        (["--provider", "openai"], {}, "openai/gpt-5.5"),
        (["--provider", "openai"], {"BATTEN_MODEL": "anthropic/claude-x"}, "openai/gpt-5.5"),
        (["--provider", "openai"], {"BATTEN_MODEL": "openai/gpt-4o"}, "openai/gpt-4o"),
        (["--provider", "ollama"], {"BATTEN_MODEL": "llama3"}, "ollama/llama3"),
        (["--provider", "claude"], {}, "anthropic/claude-sonnet-4-6"),
        (
            ["--provider", "openrouter", "--model", "meta-llama/llama-3"],
            {},
            "openrouter/meta-llama/llama-3",
        ),
        (["--provider", "openrouter", "--model", "openai/gpt-4o"], {}, "openai/gpt-4o"),
    ],
)
def test_the_model_is_one_of_the_provider_that_is_named(
    shell: Shell, flags: list[str], environ: dict[str, str], model: str
) -> None:
    shell.set(**KEYS, **environ)
    said = shell("-p", "x", *NOTHING_IS_ASKED, *flags)
    assert (said.code, said.frames()[0]["model"]) == (75, model)


def test_a_session_goes_on_with_a_model_of_the_provider_that_is_named(shell: Shell) -> None:
    shell.set(**KEYS)
    shell("-p", "x", *NOTHING_IS_ASKED)
    said = shell("-p", "x", "--resume", "last", "--provider", "openai", *NOTHING_IS_ASKED)
    assert said.frames()[0]["model"] == "openai/gpt-5.5"


@pytest.mark.parametrize(
    ("provider", "told"), [("opneai", "there are: anthropic, openai,"), ("groq", "groq/MODEL")]
)
def test_a_provider_without_a_usual_model_is_not_replaced_by_another(
    shell: Shell, provider: str, told: str
) -> None:
    shell.set(**KEYS)
    said = shell("-p", "x", "--provider", provider)
    assert said.code == 78
    assert told in said.err


def test_the_model_of_the_environment_is_used_when_none_is_named(shell: Shell) -> None:
    shell.set(BATTEN_MODEL=shell.stage.scenario([say("from the environment")]))
    assert shell("-p", "go").out == b"from the environment\n"


def test_help_lists_every_flag_and_every_command(shell: Shell) -> None:
    said = shell("--help")
    assert said.code == 0
    text = said.out.decode()
    for flag in (
        "--print", "--prompt", "--output-format", "--model", "--fallback-model",
        "--permission-mode", "--allow-dangerously-skip-permissions", "--allow", "--deny", "--ask",
        "--tools", "--max-turns",
        "--max-budget-usd", "--max-seconds", "--json-schema", "--system",
        "--append-system-prompt", "--no-instructions", "--workspace", "--sandbox",
        "--sandbox-network", "--mcp-config", "--record", "--resume", "--continue", "--branch",
        "--ask-operator", "--request-seconds", "--progress", "--version",
    ):  # fmt: skip
        assert flag in text
    for command in (
        "runs", "show", "events", "artifacts", "diff", "revert", "requests", "answer", "verify",
        "prune", "scenario", "stats", "delete", "export", "import", "backup",
    ):  # fmt: skip
        assert f"\n  {command:<12} " in text
        of_command = shell(command, "--help")
        assert of_command.code == 0
        assert of_command.out.decode().startswith(f"usage: batten {command}")


@pytest.mark.parametrize("flag", ["--version", "-v"])
def test_the_version_is_told(shell: Shell, flag: str) -> None:
    said = shell(flag)
    assert (said.code, said.out.decode().split()[1]) == (0, "(Batten)")


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("revert", "RUN"),
        ("apply", "RUN"),
        ("reject", "RUN"),
        ("answer", "REQUEST, {allow,deny}"),
        ("keys", "{create,list,revoke,rotate}"),
        ("sinks", "{list,dead,log,replay,drop,run}"),
    ],
)
def test_only_what_a_command_needs_is_named_as_missing(
    shell: Shell, command: str, missing: str
) -> None:
    said = shell(command)
    assert said.code == 64
    assert said.err == (
        f"batten: the following arguments are required: {missing}\ntry: batten {command} --help\n"
    )


def test_a_port_that_does_not_exist_is_not_taken_for_another(shell: Shell) -> None:
    said = shell("serve", "--port", "74301")
    assert (said.code, "'74301' is not a port: 0 to 65535" in said.err) == (64, True)


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_worker_that_would_execute_nothing_is_refused(shell: Shell, command: str) -> None:
    said = shell(command, "--runs", "0")
    assert (said.code, "'0' is not a whole number of at least 1" in said.err) == (64, True)


@pytest.mark.parametrize("command", ["serve", "worker"])
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--allow-mcp-servers", "all"], "invalid choice: 'all'"),
        (["--allow-mcp-servers", "sandboxed", "--sandbox", "none"], "needs a sandbox"),
        (["--allow-mcp-variable", "AUTH_API_KEYS"], "that is a key of the service itself"),
        (["--allow-mcp-variable", "$PLACE"], "'$PLACE' is no name of a variable"),
        (["--allow-task-dir", ""], "'' is not a directory that is there"),
        (["--allow-task-dir", "no/such"], "'no/such' is not a directory that is there"),
    ],
)
def test_a_service_grants_its_tasks_only_what_it_can_mean(
    shell: Shell, command: str, flags: list[str], words: str
) -> None:
    said = shell(command, *flags)
    assert (said.code, words in said.err) == (64, True), said.err


@pytest.mark.parametrize("command", ["serve", "worker"])
@pytest.mark.parametrize("flags", [["--no-save"], ["--resume", "last"]])
def test_a_service_keeps_its_runs_and_goes_on_with_none_by_itself(
    shell: Shell, command: str, flags: list[str]
) -> None:
    said = shell(command, *flags)
    assert (said.code, said.out) == (64, b"")
    assert said.err.startswith(f"batten: {flags[0]}: ")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--max-turns", "3"], "set it where `batten serve` is started"),
        (["--json-schema", "{}"], "have nothing like it"),
        (["--no-save"], "have nothing like it"),
    ],
)
def test_a_flag_that_reaches_no_service_is_refused_with_what_to_do(
    shell: Shell, flags: list[str], told: str
) -> None:
    said = shell("-p", "go", *flags, "--server", "http://127.0.0.1:9")
    assert said.code == 64
    assert f"{flags[0]} cannot be used with --server: " in said.err
    assert told in said.err


@pytest.mark.parametrize("argv", [["stats", "--server", "x"], ["--server", "x", "verify"]])
def test_a_command_that_asks_no_service_says_so(shell: Shell, argv: list[str]) -> None:
    said = shell(*argv)
    assert said.code == 64
    assert "works on the home of this machine; --server is for -p, answer, " in said.err


@pytest.mark.parametrize("flag", ["--tls-cert", "--tls-key"])
def test_a_certificate_and_its_key_belong_together(shell: Shell, flag: str) -> None:
    said = shell("serve", flag, "some.pem")
    assert (said.code, said.err) == (64, "batten: --tls-cert and --tls-key belong together\n")
