"""Variables that make programs run something: `GIT_SSH_COMMAND`, `BASH_ENV`, `LESSOPEN`, `PATH`.

Only to deny and to ask: what a value runs is added to the commands of a line. No rule allows a
command with an assignment that is not known to be harmless.
"""

import re
from collections.abc import Callable

from batten.agent.rules.embedded import commands_in
from batten.agent.rules.git_settings import named_setting, setting_runs
from batten.agent.rules.inner import ANYTHING, SHELLS, Commands, text_runs
from batten.agent.rules.shell import HOLE, Unclear, is_known, name_set


def _line(value: str) -> Commands:
    """A command line, or a program: `GIT_SSH_COMMAND`, `PAGER`."""
    return text_runs(value, 0).commands


def _opener(value: str) -> Commands:
    """`LESSOPEN`: a line behind the marks that say how its output is read."""
    return _line(value.lstrip("|-"))


def _shell(value: str) -> Commands:
    """The shell that runs lines: another program in its place."""
    return () if value.rpartition("/")[2] in SHELLS else _line(value)


def _function(value: str) -> Commands:
    """A function as bash passes it on: `() { …; }`."""
    return _line(value.removeprefix("()").strip())


def _prompt(value: str) -> Commands:
    """A text whose substitutions the shell carries out each time that it shows it."""
    from batten.agent.rules.reader import Reader

    if not is_known(value):
        return (ANYTHING,)
    if "$" not in value and "`" not in value:
        return ()
    try:
        return Reader(value).document()
    except Unclear:
        return _line(value)


def _mails(value: str) -> Commands:
    """`MAILPATH`: files, each with the prompt that is shown when it grows."""
    return _prompt(value.partition("?")[2])


def _file(value: str) -> Commands:
    """A file of commands, of settings that run some, or of code. Shells expand its name."""
    return () if value in ("", "/dev/null") else (*_prompt(value), ANYTHING)


def _home(value: str) -> Commands:
    """A folder with settings."""
    return () if value[:1] in ("/", "~", HOLE, "") else (ANYTHING,)


def _folders(value: str) -> Commands:
    """Folders of programs or code. The usual ones are absolute, or those of a project's tools."""
    entries = value.split(":")
    return (ANYTHING,) if value and any(map(_is_anywhere, entries)) else ()


def _is_anywhere(folder: str) -> bool:
    if re.search(r"(?:node_modules/\.bin|venv/bin)/?$", folder):
        return False
    return folder[:1] not in ("/", "~", HOLE) or folder.startswith(("/tmp", "/var/tmp", "/dev/"))


def _options_of(program: str) -> Callable[[str], Commands]:
    """Options that a program takes from the variable as from its command line."""
    return lambda value: (*_line(f"{program} {value}"), *((ANYTHING,) if HOLE in value else ()))


def _loads(options: str) -> Callable[[str], Commands]:
    """Options of an interpreter: those of this pattern load a file of code."""
    return lambda value: (
        *commands_in(value),
        *((ANYTHING,) if HOLE in value or re.search(options, value) else ()),
    )


def _any_setting(value: str) -> Commands:
    """The value of a setting of git whose name stands elsewhere."""
    return () if value == "*" else (*setting_runs("", value), *setting_runs("alias.a", value))


def _settings(value: str) -> Commands:
    """`GIT_CONFIG_PARAMETERS`: quoted settings of git."""
    found = re.findall(r"'([^'=]*)(?:=|'=')([^']*)'", value)
    return tuple(command for key, each in found for command in setting_runs(key, each))


_KINDS: tuple[tuple[Callable[[str], Commands], str], ...] = (
    (_line, "PROMPT_COMMAND PAGER EDITOR VISUAL BROWSER FCEDIT GIT_SSH GIT_SSH_COMMAND GIT_EDITOR "
            "GIT_PAGER GIT_EXTERNAL_DIFF GIT_PROXY_COMMAND GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS "
            "GIT_SEQUENCE_EDITOR LESSEDIT RSYNC_RSH RSYNC_CONNECT_PROG CVS_RSH "
            "SVN_SSH HGEDITOR HGMERGE MANPAGER CC CXX CPP LD AR AS FC RUSTC RUSTDOC NVCC "
            "HOSTCC TEXEDIT"),
    (_opener, "LESSOPEN LESSCLOSE"),
    (_prompt, "PS0 PS1 PS2 PS3 PS4"),
    (_mails, "MAILPATH"),
    (_shell, "SHELL MAKESHELL CONFIG_SHELL PARALLEL_SHELL npm_config_script_shell "
             "npm_config_shell"),
    (_file, "BASH_ENV ENV ZDOTDIR PYTHONSTARTUP GIT_EXEC_PATH GIT_TEMPLATE_DIR GIT_CONFIG "
            "GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM LD_PRELOAD LD_AUDIT DYLD_INSERT_LIBRARIES "
            "LESSKEY LESSKEYIN WGETRC SYSTEM_WGETRC RIPGREP_CONFIG_PATH OPENSSL_CONF "
            "OPENSSL_ENGINES OPENSSL_MODULES PERL5DB GCONV_PATH GTK_MODULES MAKEFILES "
            "BASH_LOADABLES_PATH PYTHONHOME PHPRC PHP_INI_SCAN_DIR R_PROFILE R_PROFILE_USER "
            "VIMRUNTIME EMACSLOADPATH DOTNET_STARTUP_HOOKS NODE_REPL_EXTERNAL_MODULE XINITRC"),
    (_folders, "PATH LD_LIBRARY_PATH DYLD_LIBRARY_PATH COMPILER_PATH GCC_EXEC_PREFIX"),
    (_home, "HOME XDG_CONFIG_HOME GIT_DIR GIT_COMMON_DIR"),
    (_options_of("tar"), "TAR_OPTIONS"),
    (_options_of("zip"), "ZIPOPT"),
    (_options_of("man"), "MANOPT"),
    (_options_of("parallel"), "PARALLEL"),
    (_options_of("fzf"), "FZF_DEFAULT_OPTS"),
    (_options_of("bat"), "BAT_OPTS"),
    (_options_of("go build"), "GOFLAGS"),
    (_options_of("make"), "MAKEFLAGS GNUMAKEFLAGS MFLAGS"),
    (_loads(r"-r\b|--(?:require|import|loader|experimental-loader|env-file)"),
     "NODE_OPTIONS npm_config_node_options"),
    (_loads(r"(?:^|\s)-?[rI]|--(?:require|enable)"), "RUBYOPT"),
    (_loads(r"(?:^|\s)-?[MmIdD]"), "PERL5OPT"),
    (_loads(r"-(?:javaagent|agent|Xbootclasspath|XX:On|XX:Flags|cp\b|classpath)|@"),
     "JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS JAVA_OPTS MAVEN_OPTS GRADLE_OPTS"),
    (commands_in, "LESS MORE VIMINIT EXINIT GVIMINIT TEXINPUTS BIBINPUTS LUA_INIT ERL_FLAGS "
                  "ERL_AFLAGS ERL_ZFLAGS PYTHONWARNINGS"),
    (_settings, "GIT_CONFIG_PARAMETERS"),
)  # fmt: skip
"""How values run, and the variables of which it is true."""
_TABLE = {name: runs for runs, names in _KINDS for name in name_set(names)}
_PATTERNS: tuple[tuple[str, Callable[[str], Commands]], ...] = (
    (r"BASH_FUNC_.*", _function),
    (r"GIT_CONFIG_KEY_\d+", named_setting),
    (r"GIT_CONFIG_VALUE_\d+", _any_setting),
    (r"npm_config_(?:editor|viewer|browser|git|call|onload_script)", _line),
)
_LIKE_COMMANDS = (
    r"\w+_(?:PAGER|EDITOR|BROWSER|VIEWER|ASKPASS|RSH|SSH|WRAPPER|RUNNER|LINKER|COMMAND"
    r"|EXTERNAL_DIFF|OPENER)"
)
"""Names that programs make up for the same purposes."""


def is_running(name: str) -> bool:
    """Whether programs run something because of the value of this variable."""
    return _kind(_common(name)) is not None


def value_runs(name: str, value: str, words: tuple[str, ...]) -> Commands:
    """What programs run because a variable has this value. `words`: the command it is set for."""
    if name == "ENV" and re.fullmatch(r"\w+", value):
        # A file for shells, and for other programs the name of an environment.
        return (ANYTHING,) if words and words[0].rpartition("/")[2] in SHELLS else ()
    runs = _kind(_common(name))
    return () if runs is None or not value else runs(value)


def _kind(name: str) -> Callable[[str], Commands] | None:
    patterns = (runs for pattern, runs in _PATTERNS if re.fullmatch(pattern, name))
    like = _known_line if re.fullmatch(_LIKE_COMMANDS, name) else None
    return _TABLE.get(name) or next(patterns, like)


def _known_line(value: str) -> Commands:
    """A value that is not known says nothing in a variable that is not either."""
    return () if value.startswith(HOLE) else _line(value)


def _common(name: str) -> str:
    """npm reads its variables in any case."""
    is_npm = name[:11].lower() == "npm_config_"
    return name.lower().replace("-", "_") if is_npm else name
