"""`batten trust`: shows the content that a workspace would enable, and records the user's trust."""

import os
from argparse import Namespace

from batten.cli import current_directory
from batten.cli.auditing import record
from batten.cli.parsing import UsageError, agrees
from batten.contract.errors import CallerError
from batten.contract.marks import one_line
from batten.serve.output import put, say
from batten.serve.words import redacting
from batten.settings.copies import remove_unused
from batten.settings.supplied import survey
from batten.settings.trust import (
    Content,
    every_trusted,
    record_trust,
    revoke_trust,
    trusted_in,
)
from batten.wiring.home import absolute, batten_home


def trust_workspace(options: Namespace) -> int:
    home = batten_home(os.environ, current_directory())
    if options.list:
        return _list(home, None if options.directory is None else _directory(options.directory))
    workspace = _directory(options.directory or ".")
    if options.revoke:
        return _revoke(home, workspace)
    return _trust(home, workspace, is_sure=options.yes)


def _trust(home: str, workspace: str, *, is_sure: bool) -> int:
    contents, problems = survey(workspace, os.environ)
    for problem in problems:
        say(f"batten: {one_line(problem)}")
    known = trusted_in(home, workspace)
    new = [content for content in contents if known.get(content.name) != content.digest]
    if not new:
        what = "everything is trusted already" if contents else "nothing here needs to be trusted"
        put(f"{one_line(workspace)}: {what}")
        return 0
    put(f"{one_line(workspace)} would turn on:")
    for content in new:
        _show(content, is_changed=content.name in known)
    nobody = "nobody is there to ask; --yes trusts what is shown"
    if not is_sure and not agrees("Trust this content?", nobody):
        put("nothing was changed")
        return 1
    record_trust(home, workspace, {content.name: content.digest for content in new})
    record("policy.changed", "workspace", workspace, trusted=[content.name for content in new])
    remove_unused(home)
    put("trusted, until it changes")
    return 0


def _show(content: Content, *, is_changed: bool) -> None:
    changed = "  (changed since it was trusted)" if is_changed else ""
    put(f"  {one_line(content.name)}  sha256:{content.digest}{changed}")
    for one in content.brings:
        put(f"    {one.kind}: {one_line(redacting(os.environ)(one.what))}")


def _list(home: str, only: str | None) -> int:
    """Print trusted content, and whether it has changed since."""
    for workspace, digests in sorted(every_trusted(home).items()):
        if only in (None, workspace):
            put(one_line(workspace))
            for name, state in _states(workspace, digests).items():
                put(f"  {one_line(name)}  sha256:{digests[name]}  {state}")
    return 0


def _states(workspace: str, digests: dict[str, str]) -> dict[str, str]:
    try:
        contents = survey(workspace, os.environ)[0]
    except CallerError as error:
        return dict.fromkeys(sorted(digests), f"not read: {one_line(str(error))}")
    now = {content.name: content.digest for content in contents}
    states = {True: "trusted", False: "changed since, not trusted"}
    return {
        name: states[now[name] == digests[name]] if name in now else "no longer there"
        for name in sorted(digests)
    }


def _revoke(home: str, workspace: str) -> int:
    names = revoke_trust(home, workspace)
    if names:
        record("policy.changed", "workspace", workspace, revoked=list(names))
    remove_unused(home)
    for name in names:
        put(f"no longer trusted: {one_line(name)}")
    if not names:
        put(f"{one_line(workspace)}: nothing was trusted")
    return 0


def _directory(path: str) -> str:
    real = os.path.realpath(absolute(path, current_directory()))
    if not os.path.isdir(real):
        raise UsageError(f"{path} is not a directory")
    try:
        real.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the name of {real!r} is not UTF-8 text") from error
    return real
