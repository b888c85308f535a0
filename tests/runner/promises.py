"""Which tests show which line of the reference's list for a hosted runner (section 7.7)."""

IDENTITY = "runner.test_identity:"
_EXPORT = "runner.test_export:"
DRAIN = "runner.test_drain:"
_WORK = "runner.test_continuity:"
RESTORE = "runner.test_restore:"
_SERVED = "maestro.test_runtime_drain:"
SHARED = "maestro.test_runtime:"
CROWD = "maestro.test_runtime_sharing:"
HTTP = "runner.test_http:"
AFRESH = "runner.test_http_restore:"
_FAULTS = "runner.test_http_faults:"
CONFIG = "runner.test_config:"
UTILITIES = "maestro.test_runtime_work:"

_ANSWERED = DRAIN + "test_a_drain_stops_the_runtime_and_answers_what_it_wrote"
_BYTES = DRAIN + "test_the_manifest_that_is_answered_is_the_one_in_its_file"
_FAILING = DRAIN + "test_a_runtime_that_does_not_stop_is_told_in_a_manifest_all_the_same"
_OUTSIDE = _EXPORT + "test_what_leads_outside_is_refused_whatever_is_there"
_INVALID = RESTORE + "test_a_manifest_that_cannot_be_gone_on_from_is_refused_with_the_reason"
_GONE_ON = RESTORE + "test_what_was_drained_is_gone_on_from"

PROMISES: dict[str, tuple[str, ...]] = {
    "D1": (CONFIG + "test_every_flag_is_taken",),
    "D2": (CONFIG + "test_every_variable_is_taken_and_the_first_that_is_not_blank_counts",),
    "D3": (CONFIG + "test_a_flag_comes_before_a_variable",),
    "D4": (HTTP + "test_what_is_wrong_at_the_start_is_told_and_nothing_listens",),
    "D5": (
        HTTP + "test_the_api_wants_the_key",
        CONFIG + "test_a_key_is_wanted_unless_it_is_said_that_none_is",
    ),
    "D6": (IDENTITY + "test_a_runner_that_is_ready_says_who_it_is_and_nothing_else",),
    "D7": (IDENTITY + "test_a_drained_runner_is_not_ready_and_stays_so",),
    "D8": (IDENTITY + "test_without_its_ids_a_runner_has_no_identity",),
    "D9": (IDENTITY + "test_a_missing_workspace_makes_it_not_ready_and_changes_no_id",),
    "D10": (
        _ANSWERED,
        _BYTES,
        DRAIN + "test_clients_are_refused_from_the_moment_a_drain_begins",
    ),
    "D11": (DRAIN + "test_no_key_of_other_formats_is_in_a_manifest",),
    "D12": (
        DRAIN + "test_the_manifest_says_what_was_there",
        _EXPORT + "test_the_workspace_a_file_and_other_things_are_told_apart",
    ),
    "D13": (
        DRAIN + "test_requests_are_counted_where_they_wait",
        _WORK + "test_the_joint_list_of_requests_is_not_what_is_counted",
    ),
    "D14": (_FAILING, _FAULTS + "test_an_end_that_the_journal_cannot_take_is_no_clean_drain"),
    "D15": (
        _FAILING,
        DRAIN + "test_a_runtime_without_a_snapshot_is_stopped_and_one_is_made_up",
    ),
    "D16": (DRAIN + "test_without_a_runtime_the_flush_is_skipped",),
    "D17": (
        DRAIN
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
        DRAIN + "test_a_request_that_is_refused_changes_nothing",
    ),
    "D25": (_SERVED + "test_who_is_no_runner_cannot_be_drained",),
    "D26": (AFRESH + "test_a_signal_drains_too",),
    "D27": (
        DRAIN + "test_a_hostile_id_leads_no_manifest_elsewhere",
        DRAIN + "test_a_name_is_plain_and_short_whatever_the_id_is",
        DRAIN + "test_a_link_in_the_workspace_leads_no_manifest_elsewhere",
    ),
    "D28": (
        DRAIN + "test_the_cursor_is_that_of_what_was_said_last_and_the_snapshot_of_before_the_stop",
    ),
    "D29": (
        _GONE_ON,
        AFRESH + "test_an_empty_home_and_another_place_are_enough",
        RESTORE + "test_clients_their_lease_and_their_utilities_are_not_restored",
    ),
    "D30": (
        RESTORE + "test_an_older_manifest_of_another_make_is_read",
        RESTORE + "test_the_published_manifest_is_gone_on_from",
    ),
    "D31": (
        RESTORE + "test_what_was_not_stopped_as_it_should_can_be_looked_at_and_not_attached_to",
    ),
    "D32": (RESTORE + "test_a_runtime_that_was_not_there_is_not_gone_on_from",),
    "D33": (SHARED + "test_a_stream_begins_with_what_is_true_or_with_all_that_was_said",),
    "D34": (CROWD + "test_who_does_not_read_is_told_what_is_true",),
    "D35": (HTTP + "test_headers_of_every_spelling_say_who_sends",),
    "D36": (HTTP + "test_paths_that_only_begin_alike_are_nothing",),
    "D37": (_FAULTS + "test_a_session_whose_process_dies_is_told_and_opened_again",),
    "D38": (SHARED + "test_a_stream_begins_with_what_is_true_or_with_all_that_was_said",),
    "D39": (SHARED + "test_a_controller_and_a_viewer_are_told_who_has_the_lease",),
    "D40": ("runner.test_over_http:test_a_watch_sees_what_happens_for_everybody",),
    "D41": (UTILITIES + "test_a_file_is_read_inside_the_workspace_and_refused_outside",),
    "D42": (_OUTSIDE, _INVALID),
    "D43": (
        "protocols.test_maestro_registry:"
        "test_a_connection_that_closes_leaves_the_others_as_they_are",
    ),
    "D44": (SHARED + "test_a_viewer_says_nothing_and_a_second_controller_needs_to_take_control",),
    "D45": (
        HTTP + "test_a_message_is_refused_with_the_status_of_its_fault",
        HTTP + "test_connections_are_refused_with_the_status_of_their_fault",
        HTTP + "test_a_wrong_request_makes_no_session",
        HTTP + "test_another_session_is_not_served",
    ),
}
