"""Finds the flags that would have allowed a refused call. Each proposal is held against the rules.

Proposals go from narrow to wide: the commands of a line by program and subcommand, the line itself,
the tool. A call that a rule, a hook, a person or a bound of its tool denies has no such flag.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from batten.agent.rules.rule import Rule
from batten.agent.rules.shell import SimpleCommand, name_set
from batten.agent.rules.verdict import Decision, Mode, decide
from batten.contract.errors import CallerError
from batten.tools.contract import JudgedTool, judged

_PLAIN = re.compile(r"[\w./:@%+,-]+", re.ASCII)
"""Words that mean themselves in a shell and in a pattern."""
_SUBCOMMAND = re.compile(r"[a-z][\w:-]*", re.ASCII)
_WITH_SUBCOMMANDS = name_set(
    "apt apt-get aws az brew bun bundle cargo composer conda deno docker dotnet gcloud gem gh git "
    "go gradle helm just kubectl make mvn nix npm npx pip pip3 pipx pnpm podman poetry rake "
    "rustup systemctl terraform tox uv yarn"
)
_SCRIPT_RUNNERS = name_set("bash sh zsh python python3 node ruby perl php")
_LONGEST_LINE = 120
_MOST_COMMANDS = 8


def allowing_flags(
    tool: JudgedTool,
    arguments: dict[str, Any],
    decision: Decision,
    *,
    rules: Sequence[Rule],
    mode: Mode,
    workspace: str,
) -> str:
    """Flags that would have allowed the call, as they are typed; empty if none would."""
    tool = judged(tool)
    if decision.decided_by.startswith(("bounds:", "hook:")):
        return ""
    resolver = decision.decided_by.partition("resolver:")[2]
    if resolver and resolver != "policy":
        return ""

    def verdict(added: Sequence[Rule], in_mode: Mode) -> str:
        judged = decide(tool, arguments, rules=[*rules, *added], mode=in_mode, workspace=workspace)
        return judged.verdict

    if mode == "plan":
        flags = "--permission-mode default"
        usual = verdict((), "default")
        if usual == "ask":
            allow = _allow_flags(tool, arguments, lambda added: verdict(added, "default"))
            return f"{flags} {allow}" if allow else ""
        return flags if usual == "allow" else ""
    if verdict((), mode) == "deny":
        return ""
    allow = _allow_flags(tool, arguments, lambda added: verdict(added, mode))
    return allow or "--ask-operator"  # a rule asks, which no rule that allows can change


def _allow_flags(
    tool: JudgedTool, arguments: dict[str, Any], verdict: Callable[[Sequence[Rule]], str]
) -> str:
    for patterns in _proposals(tool, arguments):
        added = [Rule("allow", pattern) for pattern in patterns]
        try:
            if verdict(added) != "allow":
                continue
            for rule in tuple(added):  # only those that are needed
                others = [other for other in added if other is not rule]
                if others and verdict(others) == "allow":
                    added = others
        except CallerError:
            continue  # no pattern can be written for this subject
        return " ".join(f"--allow {_quoted(rule.pattern)}" for rule in added)
    return ""


def _proposals(tool: JudgedTool, arguments: dict[str, Any]) -> Iterator[list[str]]:
    name, subject = tool.spec.name, tool.subject(arguments)
    if tool.kind == "shell":
        yield from ([f"{name}({each})" for each in line] for line in _of_command(subject))
    elif tool.kind in ("http", "web_fetch"):
        from batten.agent.rules.hosts import host_of

        if host := host_of(subject):
            yield [f"{name}(domain:{host})"]
    elif tool.kind in ("file_write", "edit", "multi_edit", "file_read"):
        paths = subject.split("\n")
        if len(paths) <= _MOST_COMMANDS and all(map(_PLAIN.fullmatch, paths)):
            yield [f"{name}({path})" for path in dict.fromkeys(paths)]
    yield [name]


def _of_command(text: str) -> Iterator[list[str]]:
    from batten.agent.rules.commands import command_line

    line = command_line(text).line
    if line is not None and len(line.commands) <= _MOST_COMMANDS:
        starts = [start for command in line.commands if (start := _start(command))]
        if starts:
            yield [f"{start} *" for start in dict.fromkeys(starts)]
    if len(text) <= _LONGEST_LINE and not re.search(r"['*?\[\]\\]|[^\x20-\x7e]", text):
        yield [text]


def _start(command: SimpleCommand) -> str:
    """The words that say what a command does: its program, with a subcommand or a script."""
    first, second = (*command.words, "", "")[:2]
    if not _PLAIN.fullmatch(first):
        return ""
    program = first.rpartition("/")[2]
    is_subcommand = program in _WITH_SUBCOMMANDS and _SUBCOMMAND.fullmatch(second)
    is_script = program in _SCRIPT_RUNNERS and second[:1] != "-" and _PLAIN.fullmatch(second)
    return f"{first} {second}" if is_subcommand or is_script else first


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"\w+", text, re.ASCII) else f"'{text}'"
