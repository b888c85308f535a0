"""Which tests show which line of the reference's list of testable lines (sections 7.1 to 7.6 and
7.10). Those of 7.1 and 7.5 are shown by a runtime in process, by some on one pair of pipes, and
almost all of them over HTTP too: `runner.test_over_http` is the same tests against a runner.
"""

_FRAMES = "protocols.test_maestro_frames:"
_MESSAGES = "protocols.test_maestro_messages:"
_STATE = "protocols.test_maestro_state:"
_AT_ONCE = "maestro.test_at_once:"
_TALK = "maestro.test_conversation:"
_LIMITS = "maestro.test_limits:"
_REPLAY = "maestro.test_replay:"
_CLASSES = "maestro.test_request_classes:"
_REQUESTS = "maestro.test_requests:"
_ROLES = "maestro.test_roles:"
_RUNS = "maestro.test_runs:"
_START = "maestro.test_starting:"
_UTILITIES = "maestro.test_utilities:"
_SHARED = "maestro.test_runtime:"
_WORK = "maestro.test_runtime_work:"
_CROWD = "maestro.test_runtime_sharing:"
_ASKED = "maestro.test_runtime_requests:"
_OUTBOX = "maestro.test_outbox:"
_REGISTRY = "protocols.test_maestro_registry:"
_RUNNER = "runner.test_identity:"
_DRAIN = "maestro.test_runtime_drain:"
_ROUTES = "runner.test_http:"
_WRONG = _ROUTES + "test_a_wrong_request_makes_no_session"
_STATUSES = _ROUTES + "test_a_message_is_refused_with_the_status_of_its_fault"
_TOLD = "runner.test_http_restore:test_a_drain_is_told_before_anything_else_and_is_done_once"
_DESK = "session.test_utilities:"
_ROOT = "workspace.test_root:"
_SCENARIO = "models.test_scenario:"
_SCRIPTED = "models.test_scripted:"
_REPORT = "models.test_scenario_report:"

_LEASE = _SHARED + "test_a_controller_and_a_viewer_are_told_who_has_the_lease"
_CONTROL = _SHARED + "test_a_viewer_says_nothing_and_a_second_controller_needs_to_take_control"
_BEGINNINGS = _SHARED + "test_a_stream_begins_with_what_is_true_or_with_all_that_was_said"
_PARTED = _SHARED + "test_who_disconnects_is_gone_and_the_runtime_stays"
_REFUSED_WORK = _WORK + "test_a_denied_approval_reaches_the_tool_that_waits_with_its_reason"
_READ = _WORK + "test_a_file_is_read_inside_the_workspace_and_refused_outside"
_BELONGING = _WORK + "test_a_command_a_search_and_a_watch_belong_to_who_started_them"
_DRAINED = _DRAIN + "test_a_drain_leaves_a_manifest_and_takes_nobody_any_more"
_RESTORED = _DRAIN + "test_a_restored_runtime_goes_on_with_session_and_cursor"
_INIT = _WORK + "test_what_was_said_last_in_init_is_in_every_snapshot"
_PRIVATE = _WORK + "test_a_greeting_is_answered_to_who_sent_it_alone"
_OWN = _WORK + "test_another_controller_may_not_touch_them_and_they_end_with_their_connection"
_RESOLVED = _ASKED + "test_an_answer_is_told_as_a_resolution_and_then_as_what_is_true"
_CANCELLED = _ASKED + "test_an_interrupt_cancels_it_and_a_late_answer_changes_nothing"
_SPARED = _CROWD + "test_opt_outs_and_raw_events_are_each_subscriptions_own"
_CONNECTED = _CROWD + "test_a_connection_is_made_first_and_subscribed_later"
_LAGGED = _CROWD + "test_who_does_not_read_is_told_what_is_true"
_UNASKED = _REGISTRY + "test_a_viewer_cannot_come_to_answer_questions"
_VIEWER = _ROLES + "test_a_viewer_ends_starts_and_answers_nothing_while_a_run_waits"
_REGREET = _ROLES + "test_a_viewer_may_greet_again_but_not_ask_for_more"
_UNGREETED = _ROLES + "test_a_viewer_is_refused_before_anything_was_agreed"
_ECHO = _TALK + "test_a_greeting_is_echoed_and_the_last_one_counts"
_GARBAGE = _TALK + "test_lines_that_are_no_messages_are_refused_and_the_next_one_is_taken"
_RAW = _TALK + "test_raw_events_come_before_what_is_made_of_them_and_only_to_who_asks"
_TRANSCRIPT = _TALK + "test_the_canonical_transcript_is_spoken_in_its_order"
_REPLAYED = _TALK + "test_the_published_transcript_is_replayed_word_by_word"
_WHOLE = _START + "test_a_greeting_and_the_end_of_input_are_a_whole_conversation"
_FATAL = _START + "test_what_cannot_start_says_so_in_one_fatal_message"
_ANSWERED = _CLASSES + "test_an_answer_resolves_it_once_and_the_run_goes_on"
_TWICE = _CLASSES + "test_of_two_answers_the_first_counts_and_the_second_is_told_so"
_INTERRUPTED = _CLASSES + "test_an_interrupt_cancels_what_waits_and_then_ends_the_response"
_DENIED = _REQUESTS + "test_a_denied_call_never_starts_and_says_who_denied_it"
_OLDER = _REQUESTS + "test_an_approval_is_told_in_the_older_way_too_and_may_be_answered_so"
_LENT = _REQUESTS + "test_content_of_a_client_tool_reaches_the_model_by_either_answer"
_COMPACTED = _RUNS + "test_a_conversation_that_outgrows_its_window_is_compacted_and_told_so"
_ATTACHED = _RUNS + "test_files_come_with_a_prompt_and_those_that_cannot_are_named"
_OPERATIONS = _UTILITIES + "test_each_operation_answers_with_its_own_messages"
_GATED = _UTILITIES + "test_utilities_are_refused_to_who_did_not_offer_to_use_them"
_WATCHED = _UTILITIES + "test_a_watch_tells_of_changes_and_an_interrupt_ends_it_with_the_commands"
_CLASSIFIED = _MESSAGES + "test_an_error_is_classified_by_the_first_word_that_is_known"
_TOTALS = _FRAMES + "test_usage_is_the_sum_of_all_calls_and_each_token_is_counted_once"
_ZEROS = _FRAMES + "test_a_response_without_any_call_has_zeros_and_no_time_to_its_first_token"
_COUNTED = _FRAMES + "test_tools_are_named_once_in_order_and_counted_each_time"
_QUEUES = _STATE + "test_a_request_waits_in_the_queue_of_its_class_until_it_is_resolved"
_CLEARED = (
    _STATE + "test_an_answer_clears_what_it_answers_at_once_and_its_resolution_changes_no_more"
)
_UNCHANGED = _STATE + "test_a_greeting_that_is_refused_changes_nothing"
_LOOKED_ON = _STATE + "test_what_a_viewer_may_not_say_changes_nothing"
_DROPPED = _STATE + "test_what_becomes_of_a_call_depends_on_its_class"
_PASSING = _STATE + "test_watches_come_and_go_and_other_messages_change_nothing"
_STREAMED = _STATE + "test_a_response_grows_by_its_own_chunks_and_an_error_does_not_end_it"
_COMMAND = _DESK + "test_both_streams_and_the_exit_of_a_command_are_said"
_ENDED = _DESK + "test_a_terminated_command_says_why_and_its_children_end_too"
_DEAF = _DESK + "test_without_leave_input_is_at_its_end_and_cannot_be_written"
_OWNED = _DESK + "test_only_the_owner_may_touch_a_command_and_only_its_own_end_with_it"
_PAGE = _DESK + "test_a_page_of_a_file_is_read_as_far_as_asked"
_INSIDE = _DESK + "test_paths_stay_inside_whatever_they_are_spelled_like"
_NOT_WATCHED = _DESK + "test_a_watch_is_refused_outside_and_where_nothing_is"
_WRONG_FILE = _SCENARIO + "test_a_wrong_file_is_refused_with_the_place_and_the_remedy"

_NO_REST = (
    "a session ends with its process, which is killed if it does not end: no part can be left"
)
_CLIENT = "of the other make's remote client; ours is `batten.client`, on a pair of pipes"
UNSHOWN = {
    **{f"H{number}": _NO_REST for number in range(28, 34)},
    "H54": "fields that we do not know are accepted, as the protocol wants it",
    "H64": "of statistics over a fleet, which we do not keep",
}
"""Lines without a test, and why."""

OF_THE_CLIENT = {f"K{number}": _CLIENT for number in range(1, 29)}
"""Section 7.8, none of which is ours to show."""

PROMISES: dict[str, tuple[str, ...]] = {
    # 7.1
    **{str(number): (_LEASE,) for number in range(1, 4)},
    "4": (_CONTROL, _VIEWER),
    **{str(number): (_CONTROL,) for number in range(5, 9)},
    **{str(number): (_BEGINNINGS,) for number in range(9, 13)},
    "13": (_REFUSED_WORK, _ANSWERED),
    "14": (_REFUSED_WORK, _DENIED),
    "15": (_REFUSED_WORK, _DENIED),
    "16": (_READ, _OPERATIONS),
    "17": (_READ, _OPERATIONS),
    "18": (
        _BELONGING,
        _AT_ONCE + "test_a_tool_a_pipe_a_terminal_and_a_watch_take_turns",
        _OPERATIONS,
    ),
    "19": (_BELONGING, _OPERATIONS),
    "20": (_BELONGING, _OPERATIONS),
    "21": (_BELONGING, _WATCHED),
    "22": (_BELONGING, _WATCHED),
    **{str(number): (_DRAINED,) for number in range(23, 30)},
    **{str(number): (_RESTORED,) for number in range(30, 33)},
    **{str(number): (_PARTED,) for number in range(33, 35)},
    # 7.2
    "35": (_TALK + "test_the_published_transcript_is_valid_against_the_published_schemas",),
    **{str(number): (_TRANSCRIPT, _REPLAYED) for number in range(36, 44)},
    # 7.3
    "S1": (_WHOLE,),
    "S2": (_WHOLE, _START + "test_nothing_else_writes_where_messages_are_written"),
    "S3": (_FATAL,),
    "S4": (_FATAL,),
    "S5": (_ECHO,),
    "S6": (_ECHO,),
    "S7": (_ECHO,),
    "S8": (_COMPACTED,),
    "S9": (_RAW,),
    "S10": (_RAW,),
    "S11": (_RAW,),
    "S12": (_GARBAGE,),
    "S13": (_GARBAGE,),
    "S14": (_GARBAGE,),
    "S15": (_MESSAGES + "test_what_cannot_be_sent_is_replaced_by_an_error_that_says_so",),
    "S16": (_OPERATIONS,),
    "S17": (_OPERATIONS, _WATCHED),
    "S18": (_OPERATIONS,),
    "S19": (_OPERATIONS, _LIMITS + "test_a_file_is_read_up_to_its_limit_and_inside_the_workspace"),
    "S20": (_GATED,),
    "S21": (_INTERRUPTED,),
    **{f"S{number}": (_VIEWER,) for number in range(22, 30)},
    "S30": (_REGREET,),
    **{f"S{number}": (_UNGREETED,) for number in range(31, 34)},
    **{f"S{number}": (_REGREET,) for number in range(34, 37)},
    "S37": (_REGREET, _ROLES + "test_a_controller_stays_one"),
    "S38": (_ANSWERED,),
    "S39": (_ANSWERED, _TRANSCRIPT),
    "S40": (_RAW,),
    "S41": (_ROLES + "test_a_request_is_put_to_the_client_of_its_own_session_alone",),
    "S42": (_LIMITS + "test_attachments_have_limits_of_their_own",),
    "S43": (_ATTACHED,),
    **{f"S{number}": (_CLASSIFIED,) for number in range(44, 49)},
    "S49": (_TOTALS,),
    "S50": (_ZEROS,),
    "S51": (_COUNTED,),
    "S52": (_ZEROS,),
    "S53": (_FRAMES + "test_a_label_is_named_once_however_often_it_was_asked_about",),
    "S54": (_FRAMES + "test_a_compaction_is_told_whole", _COMPACTED),
    "S55": (_FRAMES + "test_output_is_shown_as_it_comes_and_otherwise_at_the_end",),
    "S56": (_DENIED,),
    "S57": (_OLDER,),
    "S58": (_ANSWERED,),
    "S59": (_LENT,),
    "S60": (_ANSWERED,),
    "S61": (_FRAMES + "test_recovery_and_batches_of_tools_are_said_as_a_status",),
    "S62": (_MESSAGES + "test_the_page_about_the_protocol_has_the_messages_as_they_are",),
    # 7.4
    "R1": (_STATE + "test_a_tool_takes_its_name_from_its_call_and_is_unknown_without_one",),
    "R2": (_STATE + "test_a_tool_takes_its_name_from_its_call_and_is_unknown_without_one",),
    "R3": (_QUEUES,),
    "R4": (_STATE + "test_the_requests_are_the_queues_in_the_order_of_the_classes",),
    "R5": (_STATE + "test_a_greeting_sets_what_is_known_of_the_client",),
    "R6": (_UNCHANGED,),
    "R7": (_UNCHANGED,),
    "R8": (_UNCHANGED,),
    "R9": (_PASSING,),
    "R10": (
        _STATE + "test_a_denied_approval_is_not_on_its_way_any_more_and_an_approved_one_is",
        _DROPPED,
    ),
    "R11": (
        _STATE + "test_a_denied_approval_is_not_on_its_way_any_more_and_an_approved_one_is",
        _DROPPED,
    ),
    "R12": (_STATE + "test_client_tools_and_questions_are_told_in_the_older_way_too", _CLEARED),
    "R13": (_DROPPED, _QUEUES),
    "R14": (_STATE + "test_a_retry_does_not_change_what_is_known_of_its_call",),
    "R15": (_INTERRUPTED,),
    "R16": (_DROPPED,),
    "R17": (_STATE + "test_client_tools_and_questions_are_told_in_the_older_way_too",),
    "R18": (_CLEARED, _TWICE),
    "R19": (_LOOKED_ON,),
    "R20": (_LOOKED_ON,),
    "R21": (_STREAMED,),
    "R22": (_STATE + "test_a_command_keeps_the_end_of_its_output_and_its_newest_size",),
    "R23": (_STATE + "test_a_command_keeps_the_end_of_its_output_and_its_newest_size",),
    "R24": (_PASSING,),
    "R25": (_PASSING,),
    "R26": (_STATE + "test_a_greeting_sets_what_is_known_of_the_client",),
    "R27": (_STREAMED,),
    # 7.5
    "H1": (_BEGINNINGS, _PARTED),
    "H2": (_INIT,),
    "H3": (_LEASE,),
    "H4": (_SPARED, _OUTBOX + "test_each_mailbox_is_spared_what_its_subscription_is"),
    "H5": (_REGISTRY + "test_a_subscription_is_spared_by_its_own_list_or_else_its_connections",),
    "H6": (_SPARED, _REGISTRY + "test_raw_events_are_heard_only_where_they_were_negotiated"),
    "H7": (_SPARED,),
    "H8": (_PRIVATE, _REGISTRY + "test_the_state_shows_every_connection_with_what_it_has"),
    "H9": (_REFUSED_WORK, _RESOLVED),
    "H10": (_CANCELLED,),
    "H11": (_CANCELLED, _WORK + "test_an_interrupt_cancels_what_waits_then_says_what_is_true"),
    "H12": (_CANCELLED,),
    "H13": (_CANCELLED,),
    "H14": (_BEGINNINGS,),
    "H15": (_ASKED + "test_what_nobody_answers_in_time_is_told_to_everybody",),
    **{f"H{number}": (_RESOLVED,) for number in range(16, 21)},
    "H21": (_CONNECTED,),
    "H22": (_LEASE,),
    **{f"H{number}": (_CONNECTED,) for number in range(23, 26)},
    "H26": (_CONTROL,),
    "H27": (_CROWD + "test_a_shutdown_ends_streams_and_the_session_is_no_more",),
    "H34": (_REGISTRY + "test_the_last_subscription_takes_its_connection_and_the_lease_along",),
    "H35": (_PARTED,),
    "H36": (_OWN,),
    "H37": (_OWN, _CROWD + "test_who_is_not_heard_of_is_gone_with_its_lease_and_what_it_started"),
    "H38": (_READ,),
    "H39": (_PRIVATE,),
    "H40": (_OWN,),
    "H41": (_RESOLVED, _ROUTES + "test_a_client_tool_goes_to_who_lent_it"),
    "H42": (
        _ROUTES + "test_a_session_has_the_id_it_was_given_and_what_was_asked_for",
        _DRAIN + "test_who_is_no_runner_cannot_be_drained",
    ),
    "H43": (_WRONG, _DRAIN + "test_a_runner_works_in_its_own_workspace_and_no_other"),
    "H44": (_TOLD, _RUNNER + "test_a_drained_runner_is_not_ready_and_stays_so"),
    "H45": (_TOLD, _CROWD + "test_a_drain_in_the_midst_of_everything_ends_all_of_it"),
    "H46": (_ROUTES + "test_another_session_is_not_served",),
    "H47": (_ROUTES + "test_another_session_is_not_served",),
    "H48": (_RESOLVED,),
    "H49": (_RESOLVED,),
    "H50": (_WRONG, _INIT),
    "H51": (_WRONG, _UNASKED),
    "H52": (_WRONG, _UNASKED),
    "H53": (_STATUSES, _CROWD + "test_what_is_no_message_is_refused"),
    "H55": (_BEGINNINGS,),
    "H56": (_BEGINNINGS, _LAGGED),
    "H57": (_PARTED, _ROUTES + "test_a_stream_is_refused_before_it_begins"),
    "H58": (_SPARED,),
    "H59": (_LAGGED, _OUTBOX + "test_a_full_mailbox_becomes_one_reset_before_anything_newer"),
    "H60": (_ROUTES + "test_headers_of_every_spelling_say_who_sends",),
    "H61": (_BELONGING,),
    "H62": (_BELONGING,),
    "H63": (_WORK + "test_a_watch_sees_what_happens_for_everybody",),
    # 7.6
    "U1": (_COMMAND, _OPERATIONS),
    "U2": (_ENDED, _WATCHED),
    "U3": (_DESK + "test_input_is_written_in_order_and_closed",),
    "U4": (_DEAF,),
    "U5": (_DEAF, _LIMITS + "test_what_is_no_command_is_refused_before_anything_is_started"),
    "U6": (_LIMITS + "test_what_is_no_command_is_refused_before_anything_is_started",),
    "U7": (_LIMITS + "test_what_is_no_command_is_refused_before_anything_is_started",),
    "U8": (_ENDED,),
    "U9": (_DESK + "test_the_first_reason_to_end_is_the_one_that_is_said",),
    "U10": (_OWNED,),
    "U11": (_PAGE,),
    "U12": (_INSIDE, _LIMITS + "test_a_file_is_read_up_to_its_limit_and_inside_the_workspace"),
    "U13": (_COMMAND, _OPERATIONS),
    "U14": (_DESK + "test_a_watch_that_is_stopped_while_it_starts_is_never_spoken_of",),
    "U15": (_NOT_WATCHED, _LIMITS + "test_what_is_watched_is_there_and_inside_and_watched_once"),
    "U16": (_NOT_WATCHED, _LIMITS + "test_what_is_watched_is_there_and_inside_and_watched_once"),
    "U17": (_OWNED,),
    "U18": (_INSIDE, _ROOT + "test_a_link_inside_is_followed_and_a_link_outside_is_refused"),
    "U19": (
        _ROOT + "test_relative_absolute_and_dotted_paths_inside_resolve_to_the_same_place",
        _OPERATIONS,
    ),
    "U20": (
        _ROOT + "test_names_that_merely_begin_with_dots_are_allowed",
        _LIMITS + "test_a_file_is_read_up_to_its_limit_and_inside_the_workspace",
    ),
    "U21": (_ROOT + "test_a_path_that_leads_outside_is_refused_by_name", _OPERATIONS),
    # 7.10
    "P1": (
        _SCRIPTED + "test_frames_are_played_one_message_at_a_time",
        _REPLAY + "test_ten_frames_and_five_tools_are_played_each_in_its_place",
    ),
    "P2": (_SCRIPTED + "test_an_explicit_ending_wins_over_tool_calls",),
    "P3": (_SCRIPTED + "test_another_result_ends_the_turn_and_the_frame_stays",),
    "P4": (
        _SCRIPTED + "test_another_result_ends_the_turn_and_the_frame_stays",
        _REPLAY + "test_another_result_than_expected_ends_the_turn_and_the_frame_stays",
    ),
    "P5": (_SCRIPTED + "test_the_script_goes_on_when_the_latest_result_is_the_expected_one",),
    "P6": (
        _SCRIPTED + "test_past_the_last_frame_the_model_says_that_it_is_complete",
        _RUNS + "test_a_replayed_scenario_goes_on_from_prompt_to_prompt",
    ),
    "P7": (
        _SCRIPTED + "test_cancellation_takes_hold_between_two_characters",
        _REPLAY + "test_an_interrupt_ends_a_pause_and_a_slow_text",
    ),
    "P8": (
        _SCRIPTED + "test_cancellation_ends_a_delay_and_a_slow_text",
        _REPLAY + "test_an_interrupt_ends_a_pause_and_a_slow_text",
    ),
    "P9": (_WRONG_FILE,),
    "P10": (_WRONG_FILE,),
    "P11": (_WRONG_FILE,),
    "P12": (
        _SCRIPTED + "test_a_transient_error_may_be_tried_again",
        _REPLAY + "test_a_transient_error_is_tried_again_and_said_so",
    ),
    "P13": (
        _REPORT + "test_the_exit_code_says_whether_the_outcome_was_expected",
        "cli.test_scenario:test_a_scenario_may_be_expected_to_fail",
    ),
    "P14": (_REPORT + "test_the_junit_report_is_the_golden_one",),
    "P15": (
        _SCRIPTED + "test_recording_what_is_played_gives_the_script_and_the_same_messages_again",
        _REPLAY + "test_a_recording_has_for_each_prompt_what_was_answered_to_it",
        "cli.test_recording:test_a_run_that_was_stopped_completes_where_nothing_stops_it",
    ),
    "P16": (_WHOLE, _REPLAY + "test_ten_frames_and_five_tools_are_played_each_in_its_place"),
    "P17": (
        _REPLAY + "test_ten_frames_and_five_tools_are_played_each_in_its_place",
        _REPLAY + "test_a_scenario_of_half_a_minute_keeps_its_time",
    ),
}
