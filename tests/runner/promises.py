"""Which tests show which line of the reference's list for a hosted runner (section 7.7).

Lines of the list that need a served runtime or an HTTP route are shown where those are.
"""

_IDENTITY = "test_identity:"
_REQUEST = "test_request:"
_EXPORT = "test_export:"
_DRAIN = "test_drain:"
_WORK = "test_continuity:"
_RESTORE = "test_restore:"

_ANSWERED = _DRAIN + "test_a_drain_stops_the_runtime_and_answers_what_it_wrote"
_BYTES = _DRAIN + "test_the_manifest_is_answered_in_the_bytes_of_its_file"
_FAILING = _DRAIN + "test_a_runtime_that_does_not_stop_is_told_in_a_manifest_all_the_same"
_OUTSIDE = _EXPORT + "test_what_leads_outside_is_refused_whatever_is_there"
_INVALID = _RESTORE + "test_a_manifest_that_cannot_be_gone_on_from_is_refused_with_the_reason"
_GONE_ON = _RESTORE + "test_what_was_drained_is_gone_on_from"

ELSEWHERE = frozenset({"D5", *(f"D{number}" for number in (*range(33, 42), *range(43, 46)))})
"""Of HTTP, of the stream, or of the session that is served."""

PROMISES: dict[str, tuple[str, ...]] = {
    "D1": (_IDENTITY + "test_flags_say_who_it_is_and_links_to_the_workspace_are_followed",),
    "D2": (_IDENTITY + "test_every_variable_is_read_and_the_first_that_is_not_blank_counts",),
    "D3": (_IDENTITY + "test_a_flag_goes_before_the_environment",),
    "D4": (_IDENTITY + "test_what_cannot_be_served_is_refused_by_name",),
    "D6": (_IDENTITY + "test_a_runner_that_is_ready_says_who_it_is_and_nothing_else",),
    "D7": (_IDENTITY + "test_a_drained_runner_is_not_ready_and_stays_so",),
    "D8": (_IDENTITY + "test_without_its_ids_a_runner_has_no_identity",),
    "D9": (_IDENTITY + "test_a_missing_workspace_makes_it_not_ready_and_changes_no_id",),
    "D10": (
        _ANSWERED,
        _BYTES,
        _DRAIN + "test_clients_are_refused_from_the_moment_a_drain_begins",
    ),
    "D11": (_DRAIN + "test_no_key_of_other_formats_is_in_a_manifest",),
    "D12": (
        _DRAIN + "test_the_manifest_says_what_was_there",
        _EXPORT + "test_the_workspace_a_file_and_other_things_are_told_apart",
    ),
    "D13": (
        _DRAIN + "test_requests_are_counted_where_they_wait",
        _WORK + "test_the_joint_list_of_requests_is_not_what_is_counted",
    ),
    "D14": (_FAILING,),
    "D15": (
        _FAILING,
        _DRAIN + "test_a_runtime_without_a_snapshot_is_stopped_and_one_is_made_up",
    ),
    "D16": (_DRAIN + "test_without_a_runtime_the_flush_is_skipped",),
    "D17": (
        _DRAIN
        + "test_a_manifest_that_cannot_be_written_leaves_evidence_of_what_became_of_the_runtime",
    ),
    "D18": (_WORK + "test_edges_are_recorded_and_no_prompt_leaves_the_snapshot",),
    "D19": (_WORK + "test_the_other_spelling_of_a_graph_is_read_too",),
    "D20": (
        _WORK + "test_edges_that_were_restored_are_counted",
        _WORK + "test_edges_go_from_one_runner_to_the_next",
    ),
    "D21": (_WORK + "test_calls_of_other_kinds_are_counted_beside_edges",),
    "D22": (
        _WORK + "test_what_a_call_came_to_outlasts_it",
        _WORK + "test_which_statuses_are_final",
    ),
    "D23": (
        _WORK + "test_what_a_call_came_to_outlasts_it",
        _WORK + "test_which_statuses_are_final",
    ),
    "D24": (
        _OUTSIDE,
        _DRAIN + "test_a_request_that_is_refused_stops_nothing_but_no_client_comes_any_more",
    ),
    "D25": (_DRAIN + "test_a_drain_of_what_is_not_hosted_does_nothing",),
    "D26": (
        _REQUEST + "test_a_process_that_is_told_to_end_drains_itself_and_says_why",
        _DRAIN + "test_drained_again_there_is_nothing_left_to_stop_and_another_manifest",
    ),
    "D27": (
        _DRAIN + "test_a_hostile_id_leads_no_manifest_elsewhere",
        _DRAIN + "test_a_name_is_plain_and_short_whatever_the_id_is",
        _DRAIN + "test_a_link_in_the_workspace_leads_no_manifest_elsewhere",
    ),
    "D28": (
        _DRAIN
        + "test_the_cursor_is_that_of_what_was_said_last_and_the_snapshot_of_before_the_stop",
    ),
    "D29": (
        _GONE_ON,
        _RESTORE + "test_clients_their_lease_and_their_utilities_are_not_restored",
    ),
    "D30": (
        _RESTORE + "test_an_older_manifest_of_another_make_is_read",
        _RESTORE + "test_the_published_manifest_is_gone_on_from",
    ),
    "D31": (
        _RESTORE + "test_what_was_not_stopped_as_it_should_can_be_looked_at_and_not_attached_to",
    ),
    "D32": (_RESTORE + "test_a_runtime_that_was_not_there_is_not_gone_on_from",),
    "D42": (_OUTSIDE, _INVALID),
}
