"""Which test shows which line of the reference's list of testable lines (its section 18).

Lines 36 to 38 are of the HTTP service. Where ours differs on purpose, the line says how.
"""

from msgspec import Struct


class Promise(Struct, frozen=True):
    says: str
    tests: tuple[str, ...]
    """`module:test`, below `tests`."""


def _line(says: str, *tests: str) -> Promise:
    return Promise(says, tests)


_PRINT = "cli.test_print_mode:"
_HERE = "cli.test_promises:"
_GOLDEN = "protocols.test_golden_flags:test_the_frames_with_each_flag_are_the_golden_ones"

PROMISES: dict[int, Promise] = {
    1: _line("--help lists the headless flags", _HERE + "test_help_lists_the_headless_flags"),
    2: _line(
        "an invalid output format is a usage error",
        "cli.test_flags:test_a_flag_with_a_wrong_value_is_a_usage_error_in_words",
    ),
    3: _line(
        "-p without a value parses",
        "cli.test_prompt:test_a_prompt_is_taken_from_where_it_was_given",
    ),
    4: _line(
        "init first and unique, result last and unique, also with two messages",
        "protocols.test_stream_json:test_every_golden_stream_keeps_the_order_of_frames",
        _HERE + "test_two_messages_have_one_beginning_and_one_end",
        _GOLDEN,
    ),
    5: _line("json is one object", _PRINT + "test_json_is_exactly_the_result_frame"),
    6: _line(
        "text is the final message and one newline",
        _PRINT + "test_text_is_the_final_message_and_one_newline",
        "protocols.test_golden_flags:test_text_is_the_golden_one",
    ),
    7: _line(
        "two user lines are two turns and the result is the last reply",
        _HERE + "test_two_messages_have_one_beginning_and_one_end",
    ),
    8: _line(
        "empty input is init and result, exit code 66",
        _HERE + "test_no_message_is_a_beginning_an_error_and_nothing_between",
    ),
    9: _line(
        "a malformed second line keeps the frames of the first",
        _HERE + "test_a_malformed_second_line_keeps_the_first_message",
    ),
    10: _line(
        "other envelopes, fields and types are refused",
        _HERE + "test_a_line_of_another_kind_is_refused_before_any_call",
        "protocols.test_stream_json_input:"
        "test_what_is_no_frame_is_refused_with_its_line_and_its_fault",
    ),
    11: _line(
        "texts and blocks are equal, blocks are put together",
        _HERE + "test_a_text_and_its_blocks_reach_the_model_as_the_same",
        "protocols.test_stream_json_input:test_blocks_are_put_together_as_they_are",
    ),
    12: _line(
        "a prompt beside stream input is a usage error in every slot",
        _HERE + "test_a_prompt_beside_stream_input_is_a_usage_error",
        _HERE + "test_a_dash_or_nothing_beside_stream_input_is_fine",
    ),
    13: _line(
        "standard input up to the cap, and not a byte more",
        "cli.test_prompt:test_standard_input_may_be_as_large_as_its_limit_and_not_a_byte_larger",
        _HERE + "test_a_line_may_be_as_large_as_the_limit_and_not_a_byte_larger",
    ),
    14: _line(
        "max_turns: its subtype, exit code and fields",
        _HERE + "test_a_run_out_of_turns_says_what_it_came_to",
    ),
    15: _line(
        "success has neither of those fields",
        _PRINT + "test_the_exit_code_is_that_of_the_outcome_in_every_format",
    ),
    16: _line(
        "without any text there is no last_assistant_text",
        _HERE + "test_a_run_that_said_nothing_has_no_last_text",
    ),
    17: _line(
        "cancelled is 124",
        _PRINT + "test_a_signal_cancels_the_run_and_the_result_says_so",
        "protocols.test_golden_flags:test_a_cancelled_run_is_golden_too",
        "serve.test_dialogue:test_a_signal_ends_a_conversation_that_waits_for_its_next_message",
    ),
    18: _line(
        "a wrong key and a hook's denial are errors in words, exit code 1",
        _HERE + "test_a_wrong_key_is_an_error_in_the_providers_words",
        _HERE + "test_a_prompt_that_a_hook_denies_is_an_error_in_its_words",
    ),
    19: _line(
        "an answer that does not fit the schema is exit code 2",
        _PRINT + "test_the_exit_code_is_that_of_the_outcome_in_every_format",
        "agent.test_structured:test_two_further_tries_are_all_there_are",
    ),
    20: _line(
        "a call in its short frame and in the message is the same",
        "protocols.test_stream_json:test_every_golden_stream_keeps_the_order_of_frames",
    ),
    21: _line(
        "no input is {}, garbage is its text",
        _PRINT + "test_arguments_that_are_no_json_are_shown_as_the_text_they_are",
        _GOLDEN,
    ),
    22: _line(
        "deltas put together are the message",
        "protocols.test_golden_flags:test_pieces_make_up_the_message_that_follows_them",
    ),
    23: _line(
        "thinking is not in the result; no deltas without the flag",
        _HERE + "test_thinking_is_shown_only_when_asked_for_and_never_in_the_result",
    ),
    24: _line(
        "the permission mode is in init",
        _HERE + "test_the_permission_mode_is_told_first",
    ),
    25: _line(
        "hook events come after init and before the result",
        _HERE + "test_hooks_are_told_of_between_the_beginning_and_the_end",
    ),
    26: _line(
        "nothing to resume is 66; resume beats continue; the newest is chosen",
        "cli.test_flags:test_what_is_missing_has_the_exit_code_for_that",
        "cli.test_commands:test_continue_is_the_newest_session_of_this_place",
    ),
    27: _line(
        "a budget is exceeded by more than it; ours is also held before the call, and a price "
        "that is unknown is said in the result",
        "agent.test_costs:test_having_spent_exactly_the_budget_is_not_having_exceeded_it",
        "agent.test_costs:test_a_task_that_has_spent_more_than_its_budget_makes_no_further_call",
        _PRINT + "test_a_model_without_a_price_is_warned_of_once_on_stderr",
        _PRINT + "test_a_price_nobody_knows_is_said_in_the_result",
    ),
    28: _line(
        "prices are exact; ours have one date for all rows, and one's own come first",
        "models.test_pricing:test_a_cost_is_exact_before_it_is_rounded",
        "models.test_pricing:test_prices_of_ones_own_come_first",
    ),
    29: _line(
        "messages are kept after max_turns",
        _HERE + "test_what_was_said_before_the_turns_ran_out_is_kept",
    ),
    30: _line("api_retry's shape", _PRINT + "test_retries_are_frames_before_the_answer", _GOLDEN),
    31: _line(
        "schemas: required, types, lists of them, 3.0, an object among words",
        _HERE + "test_an_answer_is_held_against_the_whole_schema",
        "agent.test_structured:test_an_object_inside_other_words_is_found",
    ),
    32: _line(
        "hooks; ours deny when they fail, unless they say otherwise, and no agent handler is run",
        "agent.test_hooks:test_a_hook_that_exits_with_0_has_no_objection_and_gives_no_permission",
        "agent.test_hooks:test_a_hook_that_exits_with_2_denies_and_its_stderr_is_the_reason",
        "agent.test_hooks:test_a_hook_that_fails_denies",
        "agent.test_hooks:test_a_hook_that_fails_is_passed_over_if_it_says_so",
        "agent.test_hooks:test_a_denial_in_json_counts_whatever_the_exit_code",
        "agent.test_hooks:test_a_permission_in_json_counts_only_with_exit_code_0",
        "agent.test_hooks:test_json_without_a_decision_does_not_hide_the_exit_code",
        "agent.test_hooks:test_what_a_hook_changes_is_what_runs_and_what_later_hooks_and_rules_see",
        "agent.test_hooks:test_a_matcher_is_held_against_all_names_of_a_tool",
        "agent.test_hooks:test_a_condition_must_hold_too",
        "agent.test_hook_pace:test_a_run_does_not_wait_for_an_async_hook",
        "agent.test_hook_http:test_an_address_that_is_not_allowed_is_not_asked",
        "agent.test_hook_http:test_an_answer_that_is_none_counts_as_its_failure_says",
        "settings.test_keys:test_handlers_that_are_not_run_are_told",
    ),
    33: _line(
        "retries: three attempts, none for a wrong key or request; a broken answer is taken back",
        _PRINT + "test_retries_are_as_many_as_the_flag_then_the_variable_then_the_settings_say",
        "models.test_retry:test_attempts_are_bounded",
        "models.test_retry:test_a_wrong_key_or_request_is_not_tried_again",
        "models.test_retry:test_a_call_that_has_said_something_is_tried_again_and_its_words_are_void",
        "models.test_retry:test_a_pause_is_told_before_it_begins_and_ends_when_cancelled",
    ),
    34: _line("flags take =BOOL", _HERE + "test_a_flag_may_say_yes_or_no"),
    35: _line(
        "a missing key is a result that can be parsed",
        _PRINT + "test_a_missing_key_is_a_result_that_programs_can_read",
    ),
}
