"""Which test shows which statement of the protocol: those of its document, and the numbered lines
of the reference (its section 17). Where ours differs on purpose, the line says how.
"""

from tests.cli.promises import Promise

_LIFE = "heddle.test_lifecycle:"
_LOOP = "heddle.test_loop:"
_PROVIDER = "heddle.test_provider:"
_MORE = "heddle.test_additions:"
_APPROVAL = "heddle.test_approval:"
_REPLAY = "heddle.test_replay:"
_STREAMS = "heddle.test_streams:"
_CODEC = "protocols.test_heddle:"
_HOME = "heddle.test_home:"
_ABUSE = "serve.test_abuse:"
_CONTEXT = "agent.test_context:"
_DISPATCH = "agent.test_dispatch:"

_INIT = _LIFE + "test_init_is_answered_with_its_id_a_session_and_the_version"
_SHUTDOWN = _LIFE + "test_shutdown_is_answered_and_ends_the_process_well"
_STATUS = _LIFE + "test_status_says_how_things_stand"
_CANCEL = _LIFE + "test_a_cancel_ends_a_running_command_and_later_sends_work"
_CANCEL_BEHIND = _LIFE + "test_a_cancel_right_behind_its_send_leaves_no_event_of_it"
_COUNTED = _LIFE + "test_sends_share_a_history_and_count_their_events_anew"
_BEATS = _LIFE + "test_heartbeats_come_while_a_send_works_and_not_after_it"
_GARBAGE = _STREAMS + "test_garbage_between_valid_lines_is_answered_line_by_line"
_DOOM = _LIFE + "test_three_equal_iterations_are_a_loop_and_two_are_not"
_ORDER = _PROVIDER + "test_deltas_usage_and_tools_come_in_their_order"
_FAILS = _PROVIDER + "test_a_provider_that_fails_is_told_with_its_own_words"
_MAJOR = _LIFE + "test_another_major_version_is_refused_and_ends_the_process"
_ASKED = _APPROVAL + "test_what_needs_approval_is_asked_for_and_then_denied_with_the_reason"
_MODES = _APPROVAL + "test_each_mode_lets_its_kinds_of_tools_be_used"
_PLAN = _APPROVAL + "test_plan_mode_ends_with_its_plan"
_SHAPES = _CODEC + "test_frames_that_leave_out_what_is_needed_are_none"
_DESCRIBED = _CODEC + "test_frames_that_the_protocol_describes_are_ones"
_SUM = _LOOP + "test_each_round_has_its_usage_and_the_result_their_sum"
_GOLDEN = "heddle.test_golden:test_a_conversation_goes_as_it_is_written_down"
_ISOLATED = _MORE + "test_an_isolated_session_leaves_a_transcript_and_nothing_else"
_PLACES = _MORE + "test_a_place_that_cannot_be_is_refused"


def _line(says: str, *tests: str) -> Promise:
    return Promise(says, tests)


SEED: dict[str, list[Promise]] = {
    "protocol overview": [
        _line(
            "one object a line, both ways",
            _GOLDEN,
            _ABUSE + "test_garbage_between_lines_is_answered_line_by_line",
        ),
        _line(
            "requests on standard input, responses on standard output and nothing else there",
            _STREAMS + "test_what_else_is_printed_goes_to_standard_error",
        ),
        _line(
            "every request has an id that its answer repeats",
            _INIT,
            _STATUS,
            _SHUTDOWN,
            _CODEC + "test_a_request_of_any_type_keeps_its_id",
        ),
        _line("what happens in a send is told as events", _ORDER),
        _line(
            "version 0.2.0, which is in a file",
            _CODEC + "test_the_version_is_in_a_file_at_the_root_of_the_project",
        ),
        _line("version 0.2.0", _INIT, _MORE + "test_the_version_in_init_ok_is_one_of_the_server_s"),
    ],
    "lifecycle": [
        _line(
            "the whole picture", _LOOP + "test_the_lifecycle_of_the_seed_is_answered_as_it_is_drawn"
        ),
        _line(
            "lines written at once are answered in order",
            _LIFE + "test_all_lines_at_once_are_answered_in_order",
        ),
    ],
    "requests": [
        _line("init comes first", _LIFE + "test_before_init_nothing_can_be_asked"),
        _line(
            "init's fields, required and not",
            _CODEC + "test_a_config_that_leaves_out_what_is_needed_is_refused",
            _CODEC + "test_a_complete_config_is_taken_whatever_else_it_says",
        ),
        _line("the model and the system prompt are the client's", _ORDER),
        _line(
            "the tools are those enabled",
            _ORDER,
            _CODEC + "test_tools_are_those_asked_for_that_there_are",
        ),
        _line(
            "max_iterations caps the loop",
            _LIFE + "test_the_cap_on_iterations_counts",
            _LIFE + "test_a_cap_that_is_none_is_refused",
        ),
        _line(
            "task_id and worker_id are repeated in events and results",
            _COUNTED,
            _LIFE + "test_ids_that_were_not_given_are_not_repeated",
        ),
        _line("send starts the loop; its id is its events' send_id", _COUNTED),
        _line(
            "status tells the state",
            _STATUS,
            _LIFE + "test_while_a_send_works_status_is_answered_and_another_send_is_not_taken",
        ),
        _line(
            "cancel aborts the send it names, and running tools with it",
            _CANCEL,
            _LIFE + "test_a_cancel_that_names_no_send_of_now_is_nothing",
        ),
        _line(
            "shutdown is graceful",
            _SHUTDOWN,
            _LIFE + "test_all_lines_at_once_are_answered_in_order",
        ),
    ],
    "responses": [
        _line("init_ok", _INIT),
        _line("init_ok with an error for versions that do not fit", _MAJOR, _GOLDEN),
        _line(
            "event_seq counts from 0 in each send",
            _COUNTED,
            _CODEC + "test_a_send_is_counted_from_zero_without_gaps_heartbeats_included",
        ),
        _line("session_id, task_id, worker_id of events", _COUNTED),
        _line("content_delta", _ORDER),
        _line("tool_start with name and args", _ORDER),
        _line(
            "tool_end with name and a preview that is cut",
            _ORDER,
            _CODEC + "test_a_preview_is_the_first_500_characters",
        ),
        _line("usage of one call", _SUM),
        _line("error with code, message, retryable, provider, details", _FAILS),
        _line("permission_request when an approval mode asks", _ASKED),
        _line(
            "permission_denied with the reason of who denied",
            _ASKED,
            "heddle.test_permissions:test_a_denial_is_told_with_the_reason_of_who_denied",
        ),
        _line("plan_complete in plan mode", _PLAN),
        _line(
            "context_prune with its three numbers",
            _LOOP + "test_old_results_that_are_pruned_are_told_with_their_numbers",
        ),
        _line("context_compact and context_handoff are defined", _DESCRIBED),
        _line(
            "heartbeat: periodic, the interval from the environment, duration cumulative",
            _BEATS,
            _REPLAY + "test_heartbeats_come_beside_what_was_recorded",
            _CODEC + "test_a_variable_that_makes_no_sense_is_as_if_not_set",
        ),
        _line("result with every field of its table", _GOLDEN),
        _line(
            "usage of a result is the sum",
            _SUM,
            _PROVIDER + "test_the_usage_of_a_result_is_that_of_all_its_model_calls",
        ),
        _line(
            "three latencies", _LIFE + "test_a_result_has_the_latencies_of_the_model_and_of_tools"
        ),
        _line("the cancelled result", _CANCEL, _CANCEL_BEHIND),
        _line("status_ok", _STATUS),
        _line("shutdown_ok", _SHUTDOWN),
    ],
    "error envelope": [
        _line("provider_error can be retried", _FAILS),
        _line("protocol_error for malformed requests and missing fields", _GARBAGE),
        _line("protocol_version_mismatch", _MAJOR),
        _line(
            "tool_error ends a run only where something wants that",
            "heddle.test_hooks:test_a_hook_that_fails_before_a_prompt_ends_the_send",
        ),
        _line("loop_detected", _DOOM),
        _line("cancelled", _CANCEL),
        _line("details may be null", _DESCRIBED),
    ],
    "compatibility": [
        _line(
            "compatible if the majors are the same (and not before 0.2, as in its example)",
            _CODEC + "test_the_newest_version_of_ours_that_a_client_knows_is_spoken",
        ),
        _line(
            "what minors added only clients of theirs see",
            _PROVIDER + "test_a_client_of_0_2_hears_nothing_of_later_minors",
        ),
        _line(
            "unknown fields are passed over",
            _CODEC + "test_a_complete_config_is_taken_whatever_else_it_says",
            _PROVIDER + "test_a_client_of_0_2_hears_nothing_of_later_minors",
        ),
    ],
}

LINES: dict[int, Promise] = {
    1: _line("init is answered", _INIT),
    2: _line("a send before init", _LIFE + "test_before_init_nothing_can_be_asked"),
    3: _line("malformed JSON, and an init after it", _GARBAGE),
    4: _line("shutdown", _SHUTDOWN),
    5: _line("status", _STATUS),
    6: _line(
        "a provider that fails", _FAILS, _REPLAY + "test_a_provider_that_fails_goes_as_recorded"
    ),
    7: _line(
        "another major: the frame is the document's",
        _MAJOR,
        _REPLAY + "test_another_major_is_refused_with_the_code_recorded",
    ),
    8: _line("send_id and event_seq", _COUNTED),
    9: _line("event_seq starts anew", _COUNTED),
    10: _line("session_id", _COUNTED),
    11: _line(
        "task_id and worker_id", _COUNTED, _LIFE + "test_ids_that_were_not_given_are_not_repeated"
    ),
    12: _line("latencies", _LIFE + "test_a_result_has_the_latencies_of_the_model_and_of_tools"),
    13: _line(
        "two sends and their history", _COUNTED, _LOOP + "test_history_grows_from_send_to_send"
    ),
    14: _line("heartbeats", _BEATS),
    15: _line("a cancel of a running command", _CANCEL),
    16: _line(
        "the codec; our frames are encoded with their newline",
        _CODEC + "test_a_frame_is_encoded_as_one_line_and_nothing_more",
        _GARBAGE,
    ),
    17: _line(
        "the schema",
        _SHAPES,
        _DESCRIBED,
        _CODEC + "test_a_config_that_leaves_out_what_is_needed_is_refused",
    ),
    18: _line(
        "provider errors in one form",
        _CODEC + "test_a_provider_s_words_are_found_in_what_it_answered",
        _FAILS,
    ),
    19: _line(
        "versions",
        _CODEC + "test_the_newest_version_of_ours_that_a_client_knows_is_spoken",
        _CODEC + "test_missing_parts_of_a_version_are_zero",
        _HOME + "test_debugging_tells_only_of_the_channels_asked_for",
    ),
    20: _line(
        "the recorded pairs",
        _REPLAY + "test_a_send_with_a_tool_goes_as_recorded",
        _REPLAY + "test_a_provider_that_fails_goes_as_recorded",
        _REPLAY + "test_a_cancel_right_behind_its_send_goes_as_recorded",
        _REPLAY + "test_heartbeats_come_beside_what_was_recorded",
        _REPLAY + "test_another_major_is_refused_with_the_code_recorded",
    ),
    21: _line(
        "words alone; usage",
        _LOOP + "test_words_alone_end_a_send_after_one_call",
        _LOOP + "test_a_provider_that_tells_no_usage_has_none_shown",
        _SUM,
    ),
    22: _line(
        "calls in pieces, several at once",
        _LOOP + "test_calls_in_pieces_are_put_together_and_run_in_their_order",
    ),
    23: _line("a loop", _DOOM),
    24: _line(
        "calls that go wrong",
        _LOOP + "test_calls_that_go_wrong_are_told_to_the_model_and_the_loop_goes_on",
        _PROVIDER + "test_arguments_that_are_no_json_are_shown_as_none",
    ),
    25: _line("the cap, with a code of its own", _LIFE + "test_the_cap_on_iterations_counts"),
    26: _line(
        "a send that was cancelled",
        _LOOP + "test_nothing_is_asked_of_a_model_for_a_send_that_was_cancelled",
    ),
    27: _line(
        "permissions",
        _MODES,
        _ASKED,
        _APPROVAL + "test_some_things_are_denied_in_every_mode",
        "heddle.test_permissions:test_a_client_that_answers_is_told_what_and_until_when",
        "heddle.test_permissions:test_an_answer_for_always_is_asked_for_once",
        "heddle.test_permissions:test_an_answer_for_always_does_not_reach_what_is_protected",
    ),
    28: _line("plan mode", _PLAN, _MODES, _CODEC + "test_tools_are_those_asked_for_that_there_are"),
    29: _line(
        "pruning",
        _CONTEXT + "test_results_before_the_protected_tail_are_pruned_once",
        _CONTEXT + "test_nothing_is_pruned_below_the_threshold",
        _CONTEXT + "test_the_usual_thresholds_are_those_of_the_reference",
        "agent.test_conversation:test_a_pruned_result_says_how_long_it_was_and_is_pruned_once",
    ),
    30: _line(
        "compaction",
        _CONTEXT + "test_a_conversation_near_the_window_is_compacted_and_goes_on",
        _CONTEXT + "test_a_model_that_is_named_for_summaries_writes_them",
        "agent.test_conversation:test_a_compacted_conversation_is_its_summary_and_the_tail_that_was_kept",
    ),
    31: _line(
        "tools, with texts of our own where they say more",
        "tools.test_editing:test_what_the_model_is_told_of_an_edit",
        "tools.test_editing:test_replacing_everywhere_is_told_with_its_count",
        "tools.test_searching:test_grep_tells_file_line_and_text",
        "tools.test_reading:test_a_whole_file_comes_exactly_as_it_stands",
        "tools.test_web:test_web_fetch_says_what_went_wrong_in_the_known_words",
        "tools.test_registry:test_a_near_name_is_hinted_at",
    ),
    32: _line(
        "config; that of a workspace is not read, since anybody may have written it",
        _HOME + "test_the_file_is_under_the_variables_and_the_client_over_both",
        _HOME + "test_a_file_that_is_no_config_is_as_if_it_were_empty",
        _HOME + "test_a_workspace_cannot_choose_for_its_operator",
    ),
    33: _line(
        "transcripts; going on with a session is `batten --resume`",
        _HOME + "test_messages_are_kept_where_heddle_s_programs_look_for_them",
        _MORE + "test_a_transcript_keeps_calls_and_results",
        "heddle.test_killed:test_what_was_shown_is_stored_and_the_send_is_finished_by_who_goes_on",
    ),
    34: _line("enabled_tools", _PROVIDER + "test_since_0_5_the_tools_are_exactly_those_named"),
    35: _line("the fingerprint", _MORE + "test_workers_set_up_alike_have_the_same_fingerprint"),
    36: _line("turn_state", _MORE + "test_since_0_5_a_send_tells_where_it_is"),
    37: _line("isolation", _ISOLATED),
    38: _line("relative paths", _PLACES),
    39: _line(
        "routing",
        _MORE + "test_routing_is_repeated_and_what_was_observed_is_told_apart",
        _PROVIDER + "test_since_0_5_it_is_told_who_answered_behind_a_gateway",
    ),
    40: _line(
        "the failure of a loop", _MORE + "test_since_0_5_a_loop_tells_its_count_and_its_last_tool"
    ),
    41: _line("who cancelled", _MORE + "test_since_0_5_a_cancelled_send_tells_who_cancelled_it"),
    42: _line("two sends are six lines", _ISOLATED),
}
