"""Which tests show which line of the reference's list of testable lines, section 7.9."""

_BUS = "sinks.test_bus:"
_SERVER = "sinks.test_bus_server:"

_SWITCH = _BUS + "test_variables_turn_the_bus_on_and_off"
_ENVELOPE = _BUS + "test_each_type_is_its_subject_and_names_its_message"
_PAYLOADS = _BUS + "test_payloads_of_prompts_skills_scores_and_learning"
_FIXTURE = _BUS + "test_the_publisher_fixture_is_as_published"
_BYTES = _BUS + "test_the_fixture_is_the_same_bytes_each_time_and_from_many_threads"
_READ_BACK = _SERVER + "test_the_fixture_is_read_back_from_a_consumer"
_ROUTE = _BUS + "test_a_strict_publish_needs_a_route"
_TOLD = _SERVER + "test_a_run_is_told_before_its_process_ends_and_every_event_is_valid"
_SKILLS = _SERVER + "test_skills_are_told_when_they_are_read_and_when_the_run_ends"
_REPORTS = "sinks.test_bus_reports:"
_NAMED = _REPORTS + "test_a_run_names_its_prompt_and_the_skill_it_works_by"
_SCORED = _REPORTS + "test_a_bad_score_after_the_end_makes_the_skill_fail_and_a_lesson_is_told"
_REPORTED = _REPORTS + "test_a_client_of_the_service_reports_while_the_run_works"
_ASKED = _SERVER + "test_an_approval_suspends_and_resumes_the_session_once"

SHOWN_BY: dict[str, tuple[str, ...]] = {
    "E1": (_SWITCH,),
    "E2": (_SWITCH,),
    "E3": (_ENVELOPE, _TOLD),
    "E4": (_BUS + "test_trace_context_is_in_the_extensions_only",),
    "E5": (_PAYLOADS, _REPORTS + "test_a_session_closes_with_the_reason_of_its_last_run"),
    "E6": (_PAYLOADS, _NAMED, _REPORTED),
    "E7": (_FIXTURE, _NAMED),
    "E8": (_SKILLS, _NAMED),
    "E9": (_PAYLOADS, _SKILLS),
    "E10": (_PAYLOADS, _FIXTURE, _SCORED, _REPORTED),
    "E11": (_PAYLOADS, _SCORED),
    "E12": (_BUS + "test_a_missing_override_erases_no_default",),
    "E13": (_READ_BACK,),
    "E14": (_BUS + "test_a_best_effort_publish_swallows_what_a_strict_one_raises",),
    "E15": (_READ_BACK,),
    "E16": (_ROUTE,),
    "E17": (_SWITCH, _ROUTE),
    "E18": (_PAYLOADS, _TOLD),
    "E19": (_BUS + "test_chronicle_metadata_is_flat_and_cannot_be_spoofed",),
    "E20": (_FIXTURE, _READ_BACK),
    "E21": (_FIXTURE,),
    "E22": (_FIXTURE, _ASKED),
    "E23": (_BYTES,),
    "E24": (_BYTES,),
    "E25": (_SERVER + "test_the_generator_prints_the_fixture",),
    "E26": (_SERVER + "test_a_daemon_publishes_each_state_once_and_in_order",),
}
