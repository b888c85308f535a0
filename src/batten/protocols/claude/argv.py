"""Translates the SDK's command line to our flags.

It accepts both spellings: `--flag value` of SDK 0.1, `--flag=value` of later ones. A flag that is
not in the table is ours and passes through unchanged.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from batten.contract.errors import CallerError
from batten.contract.flags import plain_booleans
from batten.contract.ids import from_uuid
from batten.protocols.claude.names import our_name
from batten.protocols.claude.permissions import our_mode, rules
from batten.protocols.stream_json import FrameOptions

COMPAT = "claude-code"
_ENTRYPOINT = "CLAUDE_CODE_ENTRYPOINT"
_SDK_VERSION = "CLAUDE_AGENT_SDK_VERSION"
_NESTED = "CLAUDECODE"
"""Set in the shells that Claude Code starts. They inherit the other two; the SDK removes it."""
_OPENING = ["--output-format", "stream-json", "--verbose"]
"""The beginning of every command line of the SDK."""


class Invocation(Struct, kw_only=True):
    """The meaning of a command line."""

    ours: list[str]
    """Flags for our own parser."""
    streams: bool = False
    """Prompts arrive as lines on standard input; otherwise there is one, where ours is."""
    permission_mode: str | None = None
    """Claude Code's name of the mode."""
    may_bypass: bool = False
    asks_client: bool = False
    """Whether the client decides where no rule does."""
    wanted: FrameOptions
    tools: tuple[str, ...] | None = None
    """Our names of the tools to offer; None offers all."""
    denied: tuple[str, ...] = ()
    """Deny rules, in our patterns."""
    mcp_config: list[str]
    strict_mcp: bool = False
    agents: str | None = None
    """Definitions as JSON, or a file with them."""
    resume_at: str | None = None
    """The last frame to keep of a resumed conversation."""
    seamless: bool = False
    notices: list[str]
    """Options that are left out, in words for people."""


def detect(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether the SDK started us as its CLI, or `--compat` requests this mode."""
    for index, word in enumerate(argv):
        if word == "--":
            break
        if word == "--compat" or word.startswith("--compat="):
            named = word.partition("=")[2] or "".join(argv[index + 1 : index + 2])
            return named == COMPAT
    return _by_sdk(environ) and list(argv[:3]) == _OPENING


def asks_version(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether the SDK asks for the version of the CLI."""
    return list(argv) == ["-v"] and _by_sdk(environ)


def _by_sdk(environ: Mapping[str, str]) -> bool:
    return environ.get(_ENTRYPOINT, "").startswith("sdk-") and not environ.get(_NESTED)


def read(argv: Sequence[str], environ: Mapping[str, str]) -> Invocation:
    """Parse a command line; `CallerError` for options that we cannot honour and must not ignore."""
    reading = _Reading()
    reading.invocation.seamless = environ.get(_SDK_VERSION, "").startswith("0.1.")
    words = plain_booleans(_SWITCHES, argv)
    while words:
        word = words.pop(0)
        if word == "--":
            reading.ours("--prompt", words.pop(0) if words else "")
            continue
        name, equals, value = word.partition("=")
        if name in _SWITCHES:
            _SWITCHES[name](reading)
        elif name in _VALUES:
            if not equals:
                if not words:
                    raise CallerError(f"{name} needs a value", code="usage")
                value = words.pop(0)
            _VALUES[name](reading, value)
        else:
            reading.invocation.ours.append(word)
    return reading.finish()


class _Reading:
    """The state of the parser."""

    def __init__(self) -> None:
        self._rules: list[tuple[str, str]] = []
        self.partial = self.hooks = self.replay = False
        self.fork = self.resumes = False
        self.invocation = Invocation(ours=[], wanted=FrameOptions(), mcp_config=[], notices=[])

    def finish(self) -> Invocation:
        invocation = self.invocation
        if invocation.permission_mode is not None:
            invocation.ours += ["--permission-mode", our_mode(invocation.permission_mode)]
            invocation.may_bypass |= invocation.permission_mode == "bypassPermissions"
        for action in ("deny", "allow"):
            invocation.ours += [f"--{kind}={text}" for kind, text in self._rules if kind == action]
        if self.fork and not self.resumes:
            raise CallerError("--fork-session needs --resume or --continue", code="usage")
        if invocation.resume_at is not None and not self.fork:
            raise CallerError(
                "--resume-session-at needs --fork-session: a conversation is never cut here, "
                "but a branch of it can start earlier",
                code="usage",
            )
        invocation.wanted = FrameOptions(
            partial_messages=self.partial, hook_events=self.hooks, user_messages=self.replay
        )
        return invocation

    def ours(self, flag: str, value: str) -> None:
        self.invocation.ours.append(f"{flag}={value}")

    def allow(self, text: str) -> None:
        self._rules += [("allow", rule.pattern) for rule in rules("allow", text)]

    def deny(self, text: str) -> None:
        found = [rule.pattern for rule in rules("deny", text)]
        self._rules += [("deny", pattern) for pattern in found]
        self.invocation.denied += tuple(found)

    def output_format(self, text: str) -> None:
        if text != "stream-json":
            self.refuse(f"--output-format {text}: Claude Code's frames are stream-json")

    def input_format(self, text: str) -> None:
        self.invocation.streams = text == "stream-json"

    def tools(self, text: str) -> None:
        if text == "default":
            return
        names = [name for word in text.split(",") if (name := our_name(word.strip()))]
        self.invocation.tools = tuple(names)

    def mode(self, text: str) -> None:
        our_mode(text)
        self.invocation.permission_mode = text

    def prompt_tool(self, name: str) -> None:
        if name != "stdio":
            raise CallerError(
                f"--permission-prompt-tool {name}: only `stdio` is supported, which asks the "
                "client's can_use_tool",
                code="usage",
            )
        self.invocation.asks_client = True

    def resume(self, name: str) -> None:
        self.resumes = True
        self.ours("--resume", session_name(name))

    def settings_sources(self, text: str) -> None:
        """Project instructions belong to the project's settings, as in Claude Code."""
        sources = [word.strip() for word in text.split(",") if word.strip()]
        if "project" not in sources:
            self.invocation.ours.append("--no-instructions")
        self.ours("--setting-sources", ",".join(sources))

    def thinking(self, kind: str) -> None:
        if kind == "disabled":
            self.ours("--thinking-tokens", "0")

    def switch(self, flag: str) -> None:
        self.invocation.ours.append(flag)

    def notice(self, text: str) -> None:
        self.invocation.notices.append(text)

    def refuse(self, text: str) -> None:
        raise CallerError(text, code="usage")


def session_name(name: str) -> str:
    """Our spelling of a session named by a UUID; other names pass unchanged."""
    try:
        return from_uuid(name, "chat")
    except ValueError:
        return name


def _continue(reading: _Reading) -> None:
    reading.resumes = True
    reading.switch("--continue")


def _fork(reading: _Reading) -> None:
    reading.fork = True
    reading.switch("--fork-session")


def _bypass(reading: _Reading) -> None:
    reading.invocation.permission_mode = "bypassPermissions"


def _set(name: str) -> Callable[[_Reading], None]:
    return lambda reading: setattr(reading, name, True)


def _of_invocation(name: str) -> Callable[[_Reading], None]:
    return lambda reading: setattr(reading.invocation, name, True)


def _nothing(reading: _Reading) -> None:
    """A flag without effect here."""


def _ignored(reading: _Reading, value: str) -> None:
    """A flag without effect here."""


def _as(flag: str) -> Callable[[_Reading, str], None]:
    return lambda reading, value: reading.ours(flag, value)


def _left_out(flag: str, why: str) -> Callable[[_Reading, str], None]:
    return lambda reading, value: reading.notice(f"{flag} {value}: {why}")


def _refused(text: str) -> Callable[[_Reading], None]:
    return lambda reading: reading.refuse(text)


_SWITCHES: dict[str, Callable[[_Reading], None]] = {
    "--verbose": _nothing,
    "--debug": _nothing,
    "--debug-to-stderr": _nothing,
    "--continue": _continue,
    "-c": _continue,
    "--fork-session": _fork,
    "--include-partial-messages": _set("partial"),
    "--include-hook-events": _set("hooks"),
    "--replay-user-messages": _set("replay"),
    "--strict-mcp-config": _of_invocation("strict_mcp"),
    "--allow-dangerously-skip-permissions": _of_invocation("may_bypass"),
    "--dangerously-skip-permissions": _bypass,
    "--session-mirror": _refused(
        "--session-mirror: a session_store is not written to; the journal is the store"
    ),
}

_VALUES: dict[str, Callable[[_Reading, str], None]] = {
    "--compat": _ignored,
    "--output-format": _Reading.output_format,
    "--input-format": _Reading.input_format,
    "--system-prompt": _as("--system"),
    "--system-prompt-file": _as("--system-prompt-file"),
    "--append-system-prompt": _as("--append-system-prompt"),
    "--tools": _Reading.tools,
    "--allowedTools": _Reading.allow,
    "--allowed-tools": _Reading.allow,
    "--disallowedTools": _Reading.deny,
    "--disallowed-tools": _Reading.deny,
    "--max-turns": _as("--max-turns"),
    "--max-budget-usd": _as("--max-budget-usd"),
    "--model": _as("--model"),
    "--fallback-model": _as("--fallback-model"),
    "--permission-prompt-tool": _Reading.prompt_tool,
    "--permission-mode": _Reading.mode,
    "--resume": _Reading.resume,
    "-r": _Reading.resume,
    "--session-id": lambda reading, value: reading.ours("--session-id", session_name(value)),
    "--settings": _as("--settings"),
    "--setting-sources": _Reading.settings_sources,
    "--plugin-dir": _as("--plugin-dir"),
    "--mcp-config": lambda reading, value: reading.invocation.mcp_config.append(value),
    "--max-thinking-tokens": _as("--thinking-tokens"),
    "--thinking": _Reading.thinking,
    "--json-schema": _as("--json-schema"),
    "--agents": lambda reading, value: setattr(
        reading.invocation, "agents", value.removeprefix("@")
    ),
    "--resume-session-at": lambda reading, value: setattr(reading.invocation, "resume_at", value),
    "--resume-drops-turn": lambda reading, value: reading.refuse(
        "Resume rejected by --resume-drops-turn: a conversation is never cut here"
    ),
    "--add-dir": _as("--add-dir"),
    "--task-budget": _left_out("--task-budget", "the model is not told of a budget of tokens"),
    "--betas": _left_out("--betas", "no beta is asked for"),
    "--effort": _left_out("--effort", "the effort is the model's own"),
    "--thinking-display": _ignored,
    "--debug-file": _ignored,
}
