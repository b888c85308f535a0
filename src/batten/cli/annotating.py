"""`batten annotate`: adds what another process knows about a run to the run's events."""

import os
from argparse import Namespace
from contextlib import closing
from typing import Any

import msgspec

from batten.cli.inspection import open_journal
from batten.cli.parsing import UsageError
from batten.contract.errors import CallerError
from batten.contract.facts import EXTERNAL, Unknown
from batten.contract.reports import REPORTS, read_report
from batten.journal.recorder import redact_fact
from batten.redact.redactor import Redactor
from batten.serve.output import put
from batten.session.naming import named_run


async def annotate_run(options: Namespace) -> int:
    """Add a report to a run, also after its end."""
    type_ = EXTERNAL + options.type.removeprefix(EXTERNAL)
    if type_ not in REPORTS:
        known = ", ".join(name.removeprefix(EXTERNAL) for name in REPORTS)
        raise UsageError(f"no report is named {options.type!r}; there are: {known}")
    try:
        data = msgspec.json.decode(options.data, type=dict[str, Any])
        read_report(type_, data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UsageError(f"DATA is not a JSON object: {error}") from None
    except CallerError as error:
        raise UsageError(str(error)) from None
    with closing(open_journal(read_only=False)) as journal:
        row = await named_run(journal, options.run_id)
        redactor = Redactor.from_environment(os.environ)
        fact = redact_fact(Unknown(type_, {**data, "by": "operator"}), redactor)
        [stored] = await journal.append(row.run_id, [fact], fence=None)
    put(f"{row.run_id}: event {stored.sequence} is {type_}")
    return 0
