"""Which test shows which line of the protocol's reference, by its section and its place there.

A line that leaves something open, or that we do not offer, says so.
"""

from msgspec import Struct


class Promise(Struct, frozen=True):
    says: str
    tests: tuple[str, ...]
    """`module:test`, below `tests`; without one there is nothing to show."""


def _line(says: str, *tests: str) -> Promise:
    return Promise(says, tests)


_WIRE = "acp.test_wire:test_"
_TURNS = "acp.test_turns:test_"
_SESSIONS = "acp.test_sessions:test_"
_CANCEL = "acp.test_cancel:test_"
_LENDING = "acp.test_lending:test_"
_PERMISSION = "acp.test_permission:test_"
_QUESTIONS = "acp.test_questions:test_"
_OPTIONS = "acp.test_options:test_"
_ELICITATION = "acp.test_elicitation:test_"
_ATTACKS = "acp.test_attacks:test_"
_FRAMES = "protocols.test_acp_frames:test_"
_RPC = "protocols.test_acp_rpc:test_"
_TYPES = "protocols.test_acp_types:test_"

_NOTHING_ELSE = _WIRE + "nothing_but_messages_is_on_standard_output"
_NO_MESSAGE = _WIRE + "what_is_no_message_is_answered_and_the_next_one_is_read"
_WRONG = _WIRE + "wrong_requests_are_typed_and_the_session_goes_on"
_PASSED_OVER = _WIRE + "notifications_and_answers_that_mean_nothing_are_passed_over"
_VERSION = _WIRE + "every_version_is_answered_with_ours"
_WITHDRAWN = _WIRE + "a_prompt_that_is_withdrawn_as_a_request_is_cancelled"
_DELETED = _WIRE + "a_deleted_session_is_listed_no_more_until_it_is_gone_on_with"
_GREETED = _TURNS + "a_prompt_is_shown_as_it_happens_and_ends_its_turn"
_BRINGS = _TURNS + "everything_a_prompt_may_bring_reaches_the_run"
_WHY = _TURNS + "a_turn_says_why_it_ends"
_LOADED = _SESSIONS + "a_loaded_session_shows_all_that_was_said_and_done"
_RESUMED = _SESSIONS + "a_resumed_session_goes_on_and_shows_nothing_again"
_LISTED = _SESSIONS + "sessions_are_listed_newest_first_with_what_was_asked"
_CLOSED = _SESSIONS + "a_closed_session_cancels_its_turn_and_is_free_for_others"
_MODE = _SESSIONS + "a_mode_holds_at_once_and_is_kept_with_the_session"
_OVERLAP = _SESSIONS + "a_prompt_does_not_overlap_another_of_its_session"
_AUTH = _SESSIONS + "authenticate_knows_the_one_method_there_is"
_CANCELLED = _CANCEL + "a_cancelled_turn_answers_cancelled_and_the_session_lives_on"
_ALLOWED = _PERMISSION + "an_allowed_call_runs_and_the_question_is_in_the_journal"
_ONE_ANSWER = _QUESTIONS + "each_question_has_one_answer_and_what_is_none_denies"
_LATE = _QUESTIONS + "an_answer_that_comes_after_a_cancel_is_nothing_to_anybody"
_GONE = _QUESTIONS + "a_client_that_is_gone_gives_no_answer"
_SOMEBODY = _QUESTIONS + "somebody_else_may_answer_first_and_the_client_is_asked_no_more"
_FORM = _ELICITATION + "a_question_of_the_model_is_a_form_and_its_answer_is_told"
_UNSAVED = _LENDING + "reading_sees_what_the_user_has_not_saved"
_EDITED = _LENDING + "an_edit_goes_through_the_editor_with_its_patch_and_facts"
_TERMINAL = _LENDING + "a_command_runs_in_a_terminal_of_the_editor"
_LENDS_NOTHING = _LENDING + "nothing_is_asked_of_an_editor_that_lends_nothing"
_OFFERED = _OPTIONS + "options_are_offered_with_what_holds_and_their_categories"
_BOTH = _OPTIONS + "the_mode_is_the_same_in_both_of_its_places"
_GOLDEN = _FRAMES + "every_golden_journal_is_told_in_words_the_sdk_knows"
_ONCE = _FRAMES + "text_is_told_exactly_once_live_and_from_the_past"
_COMMAND = _FRAMES + "a_command_is_told_from_proposal_to_exit"
_DIFF = _FRAMES + "an_edit_is_told_as_the_file_before_and_after"
_PLACES = _FRAMES + "what_was_found_is_told_as_places"
_OUTCOMES = _FRAMES + "every_outcome_answers_its_prompt"
_MEANT = _FRAMES + "an_ending_is_told_as_the_protocol_means_it"
_FIELDS = _TYPES + "every_field_of_ours_is_one_of_theirs"
_METHODS = _TYPES + "every_method_is_one_of_the_protocol"
_WORDS = _TYPES + "closed_sets_hold_the_same_words"
_CAPABLE = _TYPES + "capabilities_are_read_as_the_sdk_writes_them"

PROMISES: dict[str, Promise] = {
    "1.1": _line("JSON-RPC, a line each, nothing else on stdout", _NOTHING_ELSE, _NO_MESSAGE),
    "1.2": _line("camelCase, snake_case, absolute paths, lines from 1", _FIELDS, _PLACES),
    "1.3": _line("both sides ask; notifications get no answer", _ALLOWED, _PASSED_OVER),
    "1.4": _line("_meta is allowed; what is custom is unknown or ignored", _BRINGS, _WRONG),
    "1.5": _line("remote transport: a draft, not offered"),
    "1.6": _line("error codes", _NO_MESSAGE, _WRONG, _RPC + "every_error_of_ours_has_a_number"),
    "1.7": _line("$/cancel_request is answered", _WITHDRAWN),
    "2.1": _line("initialize", _GREETED, _METHODS),
    "2.2": _line("authenticate; no logout is offered", _AUTH, _WRONG),
    "2.3": _line("session/new", _GREETED),
    "2.4": _line("session/load", _LOADED),
    "2.5": _line("session/resume, close, list, delete", _RESUMED, _CLOSED, _LISTED, _DELETED),
    "2.6": _line("session/prompt", _GREETED),
    "2.7": _line("session/cancel", _CANCELLED),
    "2.8": _line("session/set_mode, session/set_config_option", _MODE, _BOTH),
    "2.9": _line(
        "session/update", _GREETED, _TYPES + "every_update_we_know_is_read_by_the_sdk_as_its_own"
    ),
    "2.10": _line("session/request_permission", _ALLOWED),
    "2.11": _line("fs/*", _UNSAVED, _EDITED),
    "2.12": _line("terminal/*", _TERMINAL),
    "2.13": _line("elicitation/create; we complete none for a server", _FORM),
    "3.1": _line("the request", _GREETED, _VERSION),
    "3.2": _line(
        "client capabilities; missing is unsupported",
        _CAPABLE,
        _TYPES + "a_capability_that_is_not_said_as_it_should_be_is_none",
        _LENDS_NOTHING,
    ),
    "3.3": _line("the response", _GREETED, _VERSION, _AUTH),
    "3.4": _line("session capabilities are markers", _VERSION),
    "3.5": _line("another version is answered with ours", _VERSION),
    "4.1": _line("session/new", _OFFERED, _WRONG),
    "4.2": _line("session/load shows the whole conversation first", _LOADED),
    "4.3": _line("session/resume shows nothing", _RESUMED, _BOTH),
    "4.4": _line("session/close cancels and frees", _CLOSED),
    "4.5": _line(
        "session/list and its pages",
        _LISTED,
        "acp.test_listing:test_every_session_is_on_one_page_and_the_last_page_says_so",
    ),
    "4.6": _line("session/delete; an unknown id succeeds", _DELETED),
    "4.7": _line(
        "cwd is base and boundary",
        _SESSIONS + "several_sessions_work_at_once",
        _LENDING + "a_path_outside_the_workspace_is_never_asked_for",
    ),
    "4.8": _line("MCP by stdio", _SESSIONS + "servers_that_the_client_passes_in_are_used"),
    "4.9": _line(
        "MCP by http", _SESSIONS + "servers_that_listen_elsewhere_are_used_with_their_headers"
    ),
    "4.10": _line(
        "MCP by sse; by acp is not offered, and refused",
        _SESSIONS + "servers_over_sse_are_used_with_their_headers",
        _SESSIONS + "what_is_not_supported_is_said_in_the_capabilities",
        _WRONG,
    ),
    "4.11": _line(
        "all are connected; names are unique",
        _WRONG,
        _RPC + "what_a_client_gives_a_server_arrives_as_it_is",
        _RPC + "a_server_by_address_keeps_its_headers",
        _ATTACKS + "a_server_that_does_not_start_is_told_and_the_session_works",
    ),
    "5.1": _line("what a prompt may bring", _BRINGS, _WRONG),
    "5.2": _line("text", _BRINGS),
    "5.3": _line("image; audio is not offered, and refused", _BRINGS, _WRONG),
    "5.4": _line("resource_link", _BRINGS),
    "5.5": _line(
        "resource with text or bytes", _BRINGS, _RPC + "blocks_become_one_text_and_its_pictures"
    ),
    "5.6": _line("annotations are taken", _BRINGS),
    "5.7": _line(
        "the answer ends the turn", _GREETED, _FRAMES + "no_update_follows_the_end_of_a_golden_run"
    ),
    "5.8": _line("end_turn", _WHY, _OUTCOMES),
    "5.9": _line("max_tokens", _FRAMES + "the_last_answer_that_was_cut_short_is_known_at_the_end"),
    "5.10": _line("max_turn_requests", _WHY),
    "5.11": _line("refusal, and not for limits and policies", _OUTCOMES, _MEANT),
    "5.12": _line("cancelled, whatever happened", _CANCELLED, _MEANT),
    "5.13": _line(
        "other failures are errors",
        _TURNS + "a_model_that_fails_is_an_error_and_the_session_lives_on",
    ),
    "6.1": _line("the params of an update", _GREETED, _GOLDEN),
    "6.2": _line(
        "chunks and the ids of messages",
        _LOADED,
        _FRAMES + "a_turn_that_is_tried_again_is_another_message",
    ),
    "6.3": _line("tool_call", _ALLOWED, _COMMAND),
    "6.4": _line("tool_call_update replaces", _COMMAND),
    "6.5": _line("plan", _TURNS + "a_to_do_list_is_shown_as_a_plan"),
    "6.6": _line("available_commands_update", _TURNS + "a_skill_is_a_command_of_the_editor"),
    "6.7": _line("current_mode_update", _MODE, _BOTH),
    "6.8": _line("config_option_update", _BOTH),
    "6.9": _line("session_info_update", _GREETED),
    "6.10": _line(
        "usage_update", _GREETED, _TURNS + "thinking_is_shown_as_thoughts_before_what_is_said"
    ),
    "6.11": _line("plan_update, plan_removed: unstable, not sent"),
    "6.12": _line("kinds, states and content of tool calls", _WORDS, _FIELDS, _DIFF, _TERMINAL),
    "7.1": _line("the question and its options", _ALLOWED),
    "7.2": _line(
        "its result",
        _ONE_ANSWER,
        _LATE,
        _PERMISSION + "a_question_that_the_client_cancels_cancels_the_turn",
    ),
    "8.1": _line(
        "fs: what is not saved, files that are new, nothing without the capability",
        _UNSAVED,
        _LENDING + "a_new_file_is_written_by_the_editor",
        _LENDS_NOTHING,
    ),
    "9.1": _line(
        "terminals: output, limit, kill, release, time limit",
        _TERMINAL,
        _LENDING + "output_of_which_the_editor_kept_the_end_says_so",
        _LENDING + "a_command_that_takes_too_long_is_killed_in_its_terminal",
        _LENDING + "a_cancelled_turn_gives_its_terminal_back",
    ),
    "10.1": _line(
        "session/cancel in each phase",
        _CANCELLED,
        _CANCEL + "a_cancel_right_behind_its_prompt_is_not_lost",
        _CANCEL + "a_cancel_while_the_model_answers_keeps_what_it_said",
        _CANCEL + "a_cancel_ends_the_question_that_waits",
        _ELICITATION + "a_cancel_ends_the_form_that_waits",
        _CANCEL + "a_cancel_while_the_editor_reads_a_file_waits_for_nobody",
        _LENDING + "a_write_that_was_asked_for_is_seen_through_before_a_cancel",
    ),
    "11.1": _line("modes", _MODE, _BOTH),
    "11.2": _line(
        "config options; none of ours is a boolean",
        _OFFERED,
        _BOTH,
        _OPTIONS + "a_model_is_chosen_for_the_next_turn_also_while_one_works",
        _OPTIONS + "what_is_no_choice_is_refused_and_changes_nothing",
    ),
    "13.1.1": _line(
        "a session is a task and its runs", _SESSIONS + "a_run_of_an_editor_is_a_run_like_any_other"
    ),
    "13.1.2": _line("session/new remembers; the first run comes with the first prompt", _LISTED),
    "13.1.3": _line("the first prompt works in cwd", _SESSIONS + "several_sessions_work_at_once"),
    "13.1.4": _line("a prompt beside another is an error", _OVERLAP),
    "13.1.5": _line("the end of the run answers the prompt", _GREETED),
    "13.1.6": _line("cancel and close read to the end", _CANCELLED, _CLOSED),
    "13.1.7": _line(
        "load replays all runs", _LOADED, _SESSIONS + "a_branch_is_loaded_with_what_came_before_it"
    ),
    "13.1.8": _line(
        "list has those of editors",
        _LISTED,
        "acp.test_listing:test_every_session_is_on_one_page_and_the_last_page_says_so",
    ),
    "13.1.9": _line(
        "the end of input cancels",
        _CANCEL + "a_client_that_goes_away_ends_its_runs_and_the_process",
    ),
    "13.1.10": _line(
        "an early cancel is not lost, and waits for no reader",
        _CANCEL + "a_cancel_right_behind_its_prompt_is_not_lost",
        _WIRE + "a_client_that_stops_reading_for_good_ends_the_run",
    ),
    "13.2.1": _line("run.queued, run.started; the title comes with the first prompt", _GREETED),
    "13.2.2": _line("resumed, checkpoint: nothing", _GOLDEN),
    "13.2.3": _line(
        "turn.started; ids of messages",
        _ONCE,
        _FRAMES + "a_turn_that_is_tried_again_is_another_message",
    ),
    "13.2.4": _line("text_delta", _ONCE, _GREETED),
    "13.2.5": _line(
        "text_complete adds what is missing",
        _FRAMES + "a_block_of_which_pieces_are_missing_gets_the_rest",
    ),
    "13.2.6": _line(
        "final_answer only where nothing was said",
        _FRAMES + "an_answer_without_text_is_told_by_its_summary",
    ),
    "13.2.7": _line("thinking", _TURNS + "thinking_is_shown_as_thoughts_before_what_is_said"),
    "13.2.8": _line(
        "user.message of the past", _FRAMES + "what_the_user_said_is_told_only_of_the_past", _LOADED
    ),
    "13.2.9": _line("a proposed call", _ALLOWED, _COMMAND),
    "13.2.10": _line("tool.invoked; we say in_progress, which it is", _COMMAND, _GOLDEN),
    "13.2.11": _line("tool.started; told with tool.invoked", _COMMAND),
    "13.2.12": _line("tool.shell.command", _COMMAND),
    "13.2.13": _line(
        "output replaces, in few updates",
        _FRAMES + "a_flood_of_output_is_told_in_few_updates_and_a_trickle_in_all",
    ),
    "13.2.14": _line("tool.shell.exited is told with the end", _COMMAND, _TERMINAL),
    "13.2.15": _line(
        "edits as diffs",
        _DIFF,
        _FRAMES + "several_files_and_those_too_long_to_show_are_told_each_in_its_way",
    ),
    "13.2.16": _line("applied edits", _DIFF),
    "13.2.17": _line("reverted edits: nothing", _GOLDEN),
    "13.2.18": _line("glob and grep", _PLACES),
    "13.2.19": _line("file_read", _PLACES, _UNSAVED),
    "13.2.20": _line("kinds of fetching and searching", _FRAMES + "each_tool_is_of_its_kind"),
    "13.2.21": _line("todo_write", _FRAMES + "a_to_do_list_is_a_plan"),
    "13.2.22": _line(
        "tool.completed; a server's own error failed",
        _FRAMES + "a_server_s_own_error_is_a_failed_call",
    ),
    "13.2.23": _line(
        "failed, timed out, cancelled",
        _CANCELLED,
        _FRAMES + "a_call_that_is_open_when_its_run_ends_has_failed",
    ),
    "13.2.24": _line("policy.tool_blocked", _FRAMES + "a_blocked_call_failed_with_its_reason"),
    "13.2.25": _line("approval.requested", _ALLOWED),
    "13.2.26": _line("approval.resolved elsewhere", _SOMEBODY),
    "13.2.27": _line(
        "approval.timed_out",
        _QUESTIONS + "a_question_nobody_answers_is_withdrawn_and_denied_in_time",
    ),
    "13.2.28": _line(
        "usage", _GREETED, _TURNS + "thinking_is_shown_as_thoughts_before_what_is_said"
    ),
    "13.2.29": _line("budget_warning: nothing", _GOLDEN),
    "13.2.30": _line("budget_exceeded is said in words", _MEANT),
    "13.2.31": _line(
        "policy.model_rewrote", _OPTIONS + "another_model_that_answers_is_told_while_it_does"
    ),
    "13.2.32": _line(
        "turn.failed: nothing", _FRAMES + "a_turn_that_is_tried_again_is_another_message"
    ),
    "13.2.33": _line("artifact.*: nothing", _GOLDEN),
    "13.2.34": _line(
        "gap.run_disconnected: nothing",
        _QUESTIONS + "a_run_whose_agent_was_killed_is_loaded_with_its_call_failed",
    ),
    "13.2.35": _line(
        "gap.events_pruned",
        _FRAMES + "a_past_that_is_no_longer_kept_is_told_once_and_only_of_the_past",
    ),
    "13.2.36": _line(
        "run.finished",
        _OUTCOMES,
        _FRAMES + "the_last_answer_that_was_cut_short_is_known_at_the_end",
    ),
    "13.2.37": _line(
        "run.cancelled by others ends the turn in words",
        _MEANT,
        _CANCEL + "a_signal_ends_every_turn_with_words",
    ),
    "13.2.38": _line(
        "run.failed",
        _OUTCOMES,
        _MEANT,
        _TURNS + "a_model_that_fails_is_an_error_and_the_session_lives_on",
    ),
    "13.2.39": _line("an unknown type is ignored", _FRAMES + "what_nobody_knows_is_passed_over"),
    "13.2.40": _line(
        "kinds; ids are unique in a session",
        _FRAMES + "each_tool_is_of_its_kind",
        _FRAMES + "an_id_that_is_used_again_is_another_call",
    ),
    "13.3.1": _line(
        "the call is told before the question; always is a grant",
        _ALLOWED,
        _PERMISSION + "always_is_a_grant_for_what_was_asked_and_no_more",
    ),
    "13.3.2": _line("an unknown option rejects", _ONE_ANSWER),
    "13.3.3": _line(
        "cancelled or gone approves nothing",
        _PERMISSION + "a_question_that_the_client_cancels_cancels_the_turn",
        _GONE,
    ),
    "13.3.4": _line("somebody else decided", _SOMEBODY),
    "13.3.5": _line(
        "asked once", _QUESTIONS + "a_run_whose_agent_was_killed_is_loaded_with_its_call_failed"
    ),
    "13.3.6": _line(
        "after a rejection ours goes on",
        _PERMISSION + "a_rejected_call_is_told_to_the_model_and_never_runs",
    ),
    "13.4.1": _line(
        "bounds; ours are in the page",
        _FRAMES + "a_long_text_of_the_past_comes_in_pieces_of_one_message",
        _ATTACKS + "a_request_that_is_too_long_is_refused_by_its_id",
    ),
    "13.5.1": _line("version 99 is answered with 1", _VERSION),
    "13.5.2": _line("a relative cwd, an unknown session", _WRONG),
    "13.5.3": _line("every update is of a call that was told", _GOLDEN),
    "13.5.4": _line(
        "nothing follows the answer", _FRAMES + "no_update_follows_the_end_of_a_golden_run"
    ),
    "13.5.5": _line("a cancel is answered cancelled", _CANCELLED),
    "13.5.6": _line("text exactly once", _ONCE),
    "13.5.7": _line(
        "asked once per approval",
        _QUESTIONS + "a_run_whose_agent_was_killed_is_loaded_with_its_call_failed",
    ),
    "13.5.8": _line("load replays, resume does not", _LOADED, _RESUMED),
    "13.5.9": _line("only JSON lines", _NOTHING_ELSE),
    "13.5.10": _line(
        "nothing without its capability",
        _LENDS_NOTHING,
        _ELICITATION + "an_editor_without_forms_is_not_asked",
    ),
}
