"""The suite of a shared runtime, spoken over HTTP to a hosted runner."""

from pathlib import Path

import pytest

from tests.maestro.test_runtime import *  # noqa: F403
from tests.maestro.test_runtime_drain import *  # noqa: F403
from tests.maestro.test_runtime_requests import *  # noqa: F403
from tests.maestro.test_runtime_sharing import *  # noqa: F403
from tests.maestro.test_runtime_work import *  # noqa: F403
from tests.runner.remote import RemoteStage

IN_PROCESS = (
    "test_a_drain_after_a_shutdown_has_nothing_to_stop_and_says_so",  # asks after its end
    "test_a_run_that_does_not_end_is_given_up_and_the_drain_says_so",  # a tool in process
    "test_a_runner_works_in_its_own_workspace_and_no_other",  # arguments of a function
    "test_a_session_is_gone_on_with_after_its_process_left_without_a_word",  # the same
    "test_a_session_that_the_journal_does_not_have_is_not_made_up",  # in test_http_restore
    "test_an_error_of_the_embedder_is_raised_as_it_is",
    "test_leaving_while_a_run_works_ends_it_and_every_stream",  # an end without a drain
    "test_what_has_begun_is_carried_out_whoever_stops_waiting_for_it",  # cancels a task
    "test_what_is_kept_is_bounded_however_much_is_said",  # counts objects
    "test_what_variables_say_is_read_once_and_checked",
    "test_who_is_no_runner_cannot_be_drained",
    "test_who_reads_at_once_misses_nothing",  # the machine decides whether a process keeps up
    "test_who_is_not_heard_of_is_gone_with_its_lease_and_what_it_started",  # sets the clock
)
for _name in IN_PROCESS:
    del globals()[_name]


@pytest.fixture
def stage(tmp_path: Path) -> RemoteStage:
    return RemoteStage(tmp_path)
