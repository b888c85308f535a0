"""Where a scenario is: a file of this machine. Importing this is cheap."""

from batten.contract.errors import CallerError

_ELSEWHERE = ("http", "https", "gs", "s3")


def check_place(path: str) -> None:
    """Raise `CallerError` if a scenario is named by an address.

    The message leaves out what may be secret in an address: its query and its user.
    """
    scheme, is_address, rest = path.partition("://")
    if not is_address or scheme.lower() not in _ELSEWHERE:
        return
    host, slash, place = rest.partition("?")[0].partition("#")[0].partition("/")
    shown = f"{scheme}://{host.rpartition('@')[2]}{slash}{place}"
    raise CallerError(
        f"the scenario {shown} is not a file of this machine; download it, and name the file",
        code="config",
    )
