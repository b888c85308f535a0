"""Which tests show which line of the reference's list of conformance lines (its section 16)."""

_LINES = "protocols.hecate.test_conformance:"
_CURSORS = "protocols.hecate.test_cursors:"
_CREATION = "protocols.hecate.test_creation:"
_STREAMS = "protocols.hecate.test_streams:"
_VIEW = "protocols.hecate.test_view:"
_WIRE = "service.test_protocol:"
_TASKS = "service.test_tasks:"
_ASKED = "service.test_approvals:"
_STATES = "service.test_states:"
_PATCHES = "service.test_patches:"
_ARTIFACTS = "service.test_artifacts:"
_LIVE = "service.test_streams:"
_WORKERS = "service.test_workers:"
_BUDGETS = "control.test_budgets:"
_DELETING = "control.test_deleting:"
_KINDS = "control.test_kinds:"
_PERMITTED = "control.test_permitted:"
_WORKSPACES = "control.test_workspaces:"
_RECONCILER = "control.test_reconciler:"
_RETENTION = "control.test_retention:"

_WELL_FORMED = _LINES + "test_lines_10_to_16_an_event_is_well_formed"
_PAYLOADS = _LINES + "test_lines_17_to_23_payloads_of_runs_have_their_fields"
_COVERED = _LINES + "test_lines_25_and_26_every_group_and_every_type_of_a_run_occurs"
_CALLS = _WIRE + "test_lines_43_59_63_and_64_every_call_is_told_from_its_beginning_to_one_end"
_GOES_ON = _WIRE + "test_lines_38_and_61_a_reader_goes_on_after_what_it_has"
_SAME_BYTES = _WIRE + "test_line_60_events_have_the_same_bytes_everywhere_and_after_a_restart"
_STATES_RESUME = _STATES + "test_conformance_38_and_39_a_state_stream_resumes_and_writes_nothing"

LINES: dict[int, tuple[str, ...]] = {
    1: (_LINES + "test_line_01_an_event_keeps_its_ids_and_its_type",),
    2: (_LINES + "test_line_02_times_are_utc",),
    3: (_LINES + "test_line_03_a_payload_keeps_its_keys_and_has_none_of_the_storage_s",),
    4: (_LINES + "test_line_04_a_stored_id_is_kept",),
    5: (_LINES + "test_line_05_an_event_without_a_payload_has_an_empty_object",),
    6: (_LINES + "test_line_06_the_same_event_has_the_same_bytes_each_time",),
    7: (_LINES + "test_line_07_a_finished_run_says_completed_and_keeps_a_cost_of_zero",),
    8: (_LINES + "test_line_08_a_resumed_run_names_the_run_before_and_its_cost",),
    9: (_LINES + "test_line_09_other_payloads_keep_their_zeros",),
    10: (_WELL_FORMED,),
    11: (_WELL_FORMED,),
    12: (_WELL_FORMED, _LINES + "test_line_12_sequences_of_a_run_have_no_gap"),
    13: (_WELL_FORMED,),
    14: (_WELL_FORMED,),
    15: (_WELL_FORMED,),
    16: (_WELL_FORMED,),
    17: (_PAYLOADS,),
    18: (_PAYLOADS,),
    19: (_PAYLOADS,),
    20: (_PAYLOADS,),
    21: (_PAYLOADS,),
    22: (_PAYLOADS,),
    23: (_PAYLOADS,),
    24: (_LINES + "test_line_24_core_events_have_no_thinking_and_no_artifacts",),
    25: (_COVERED,),
    26: (_COVERED,),
    27: (_LINES + "test_line_27_the_schema_requires_all_but_task_and_session",),
    28: (_WIRE + "test_line_28_a_task_is_created_and_started",),
    29: (_TASKS + "test_line_29_a_run_is_queued_started_and_finished_in_a_workspace_of_its_own",),
    30: (
        _TASKS + "test_line_30_a_gated_command_runs_once_it_is_approved",
        _ASKED + "test_line_30_a_gated_command_waits_for_approval_and_then_runs",
        _KINDS + "test_line_30_a_gated_command_waits_without_a_worker_and_runs_once",
    ),
    31: (_ASKED + "test_line_31_a_second_answer_is_refused_and_names_the_first",),
    32: (
        _ASKED + "test_line_32_a_rejection_cancels_run_and_task_and_runs_nothing",
        _TASKS + "test_line_32_a_rejected_command_is_cancelled_without_a_step",
    ),
    33: (
        _ASKED + "test_line_33_cancelling_a_waiting_run_leaves_no_question_open",
        _VIEW + "test_line_33_a_cancel_leaves_no_active_step_and_no_pending_approval",
    ),
    34: (_WIRE + "test_line_34_a_cancel_of_an_ended_run_changes_nothing",),
    35: (
        _TASKS + "test_line_35_an_active_run_refuses_a_start_and_a_delete",
        _DELETING + "test_line_35_a_task_with_an_active_run_is_neither_started_nor_deleted",
    ),
    36: (_DELETING + "test_line_36_nothing_follows_a_run_while_another_is_active",),
    37: (_BUDGETS + "test_line_37_a_resume_raises_the_budget_before_it_is_queued",),
    38: (_GOES_ON, _STATES_RESUME, _CURSORS + "test_line_38_a_reconnected_reader_never_goes_back"),
    39: (
        _STATES_RESUME,
        "protocols.hecate.test_snapshots:test_line_39_making_frames_changes_nothing",
    ),
    40: (_STATES + "test_conformance_40_an_event_of_a_client_is_listed_after_the_cursor",),
    41: (
        _WIRE + "test_line_41_the_feed_is_selected_and_paged",
        _STREAMS + "test_line_41_a_filter_by_type_and_task_leaks_nothing",
        _CURSORS + "test_line_41_a_query_that_is_no_cursor_is_refused",
        _CURSORS + "test_line_41_a_header_that_is_no_cursor_is_refused",
    ),
    42: (_STATES + "test_conformance_42_every_awaiting_state_carries_its_pending_approval",),
    43: (_CALLS, _KINDS + "test_line_43_a_command_out_of_time_ends_as_timed_out"),
    44: (_PERMITTED + "test_line_44_a_blocked_server_is_not_called_and_the_run_goes_on",),
    45: (_PERMITTED + "test_line_45_a_gated_server_waits_before_it_is_called",),
    46: (_PERMITTED + "test_line_46_an_unknown_tool_and_bad_arguments_are_results",),
    47: (
        _PERMITTED + "test_line_47_max_turns_of_the_task_or_of_the_service_ends_the_run",
        _WIRE + "test_line_47_an_error_of_the_model_fails_the_run",
        "control.test_tasks:test_a_working_run_ends_when_its_worker_hears_of_the_cancel",
    ),
    48: (
        _BUDGETS + "test_line_48_the_ceiling_counts_the_runs_before",
        _BUDGETS + "test_line_48_a_run_that_waited_keeps_what_it_cost_before",
    ),
    49: (
        "tools.test_editing:test_what_the_model_is_told_of_an_edit",
        _PATCHES + "test_line_49_an_edit_under_review_writes_nothing",
    ),
    50: (_PATCHES + "test_line_50_a_file_that_differs_is_not_overwritten",),
    51: (
        _PATCHES + "test_line_51_links_and_paths_out_of_the_workspace_are_refused",
        _CREATION + "test_line_51_a_path_that_leaves_the_workspace_is_refused",
        _WORKSPACES + "test_line_51_ids_are_single_names_in_a_path",
    ),
    52: (_WORKSPACES + "test_line_52_in_place_without_a_valid_source_fails_the_start",),
    53: (
        _KINDS + "test_line_53_two_workers_never_execute_one_run_twice",
        "control.test_tasks:test_a_worker_leaves_the_run_of_a_faster_one_alone",
    ),
    54: (
        _RECONCILER + "test_a_lost_run_is_queued_again_and_goes_on",
        _RECONCILER + "test_a_run_of_a_terminal_is_left_to_whoever_sits_there",
    ),
    55: (
        _KINDS + "test_line_55_a_command_that_a_stopping_worker_cuts_short_is_not_run_again",
        _WORKERS + "test_a_stop_hands_long_runs_over_and_the_next_start_goes_on",
    ),
    56: (
        _RETENTION + "test_runs_beyond_the_count_go_oldest_first",
        _RETENTION + "test_runs_older_than_the_limit_go_and_the_store_stays_sound",
        _RETENTION + "test_without_limits_nothing_goes",
    ),
    57: (
        _PERMITTED
        + "test_line_57_a_servers_secrets_are_sealed_and_its_references_read_when_it_runs",
        _CREATION + "test_line_57_literal_secrets_are_redacted_and_references_are_shown_verbatim",
    ),
    58: (
        _DELETING + "test_line_58_a_deleted_task_leaves_nothing",
        _TASKS + "test_line_58_a_task_is_deleted_with_its_workspace",
    ),
    59: (
        _CALLS,
        "journal.test_laws:"
        "test_interleaved_appends_are_gap_free_and_pages_give_back_the_appended_bytes",
    ),
    60: (_SAME_BYTES,),
    61: (_GOES_ON, _CURSORS + "test_line_61_the_header_alone_resumes"),
    62: (
        _STREAMS + "test_line_62_a_list_is_named_so_and_may_be_empty",
        _CURSORS + "test_line_62_a_limit_is_honoured_up_to_the_largest",
        _SAME_BYTES,
    ),
    63: (_CALLS,),
    64: (_CALLS, _LINES + "test_line_64_a_complete_text_is_its_deltas_together"),
    65: (
        _WIRE + "test_line_65_a_planted_secret_is_in_no_event",
        _WIRE + "test_line_65_a_credential_of_a_request_is_sent_and_in_no_event",
        "service.test_attacks:test_a_secret_of_the_service_is_in_no_answer_of_its_runs",
    ),
    66: (
        _ARTIFACTS + "test_line_66_a_run_is_followed_without_artifact_ids",
        _LINES + "test_line_66_a_run_can_be_shown_with_all_artifact_ids_removed",
    ),
    67: (_PATCHES + "test_line_67_a_revert_is_a_new_patch_and_the_old_one_stays_applied",),
    68: (
        _LIVE + "test_a_pruned_run_is_streamed_from_its_first_survivor",
        _LINES + "test_line_68_a_prune_marker_names_its_range",
    ),
    69: (_WIRE + "test_line_69_a_resumed_run_begins_with_where_it_comes_from",),
    70: ("agent.test_sizes:test_output_beyond_the_cap_times_the_call_out",),
}

DIFFERENT: dict[int, str] = {
    2: "times have milliseconds: the protocol allows up to nanoseconds",
    21: "`reason` may be empty, as the protocol itself allows",
    30: (
        "start answers `queued`: the worker that claims the run decides what is asked, because only"
        " it has the workspace and its settings. `kind` is the name of the tool, as in the"
        " protocol's own example"
    ),
    54: (
        "the reason is always that of the protocol: what a start of the service finds lost is told"
        " in the same way"
    ),
    56: "the beginning of a run goes with all its types, so that the rest has no gap",
}
"""What is kept in another way than the line says, and why."""
