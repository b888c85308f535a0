"""Which tests show which row of the reference's tables of HTTP and of a hosted runner (sections 4
and 5), by the beginning of the row. What has no test says why.
"""

from tests.runner.promises import (
    AFRESH,
    CONFIG,
    CROWD,
    DRAIN,
    HTTP,
    IDENTITY,
    RESTORE,
    SHARED,
    UTILITIES,
)

_LINES = "runner.test_lines:"
_CREATED = HTTP + "test_a_session_has_the_id_it_was_given_and_what_was_asked_for"
_HEADERS = HTTP + "test_headers_of_every_spelling_say_who_sends"
_FAULTS = HTTP + "test_a_message_is_refused_with_the_status_of_its_fault"
_CONNECTIONS = HTTP + "test_connections_are_refused_with_the_status_of_their_fault"
_WRONG = HTTP + "test_a_wrong_request_makes_no_session"
_ELSEWHERE = HTTP + "test_another_session_is_not_served"
_ROUTED = _LINES + "test_every_route_of_the_reference_is_a_row"
_TOLD = AFRESH + "test_a_drain_is_told_before_anything_else_and_is_done_once"
_BEGINNINGS = SHARED + "test_a_stream_begins_with_what_is_true_or_with_all_that_was_said"
_LAGGED = CROWD + "test_who_does_not_read_is_told_what_is_true"
_EXPIRED = CROWD + "test_who_is_not_heard_of_is_gone_with_its_lease_and_what_it_started"
_MANIFEST = DRAIN + "test_the_manifest_says_what_was_there"
_VARIABLES = CONFIG + "test_every_variable_is_taken_and_the_first_that_is_not_blank_counts"
_FLAGS = CONFIG + "test_every_flag_is_taken"
_UNREADY = RESTORE + "test_what_was_not_stopped_as_it_should_can_be_looked_at_and_not_attached_to"
_WHO = IDENTITY + "test_a_runner_that_is_ready_says_who_it_is_and_nothing_else"

TABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "4.1": {
        "POST `/api/headless/connections`": (_ROUTED, _CREATED),
        "POST `/api/headless/sessions`": (_ROUTED, _CREATED),
        "GET `/api/headless/sessions/:id/state`": (
            _ROUTED,
            _CREATED,
            _LINES + "test_a_session_in_a_path_is_decoded",
        ),
        "POST `…/:id/subscribe`": (_ROUTED, _CREATED),
        "POST `…/:id/unsubscribe`": (_ROUTED, _CONNECTIONS),
        "GET `…/:id/events`": (_ROUTED, HTTP + "test_a_stream_is_refused_before_it_begins"),
        "POST `…/:id/messages`": (_ROUTED, _HEADERS),
        "POST `…/:id/heartbeat`": (_ROUTED, _CREATED),
        "POST `…/:id/disconnect`": (_ROUTED, _CONNECTIONS),
        "GET `/healthz`": (
            _ROUTED,
            HTTP + "test_who_it_is_is_told_to_everybody_and_nothing_else_is",
        ),
        "GET `/readyz`": (_ROUTED, HTTP + "test_a_workspace_that_is_gone_makes_it_unready"),
        "GET `/.well-known/evalops/remote-runner/identity`": (_ROUTED, _TOLD),
    },
    "4.2": {
        "`x-maestro-headless-role`": (_HEADERS, _LINES + "test_the_role_in_a_body_wins"),
        "`x-maestro-headless-connection-id`": (_HEADERS,),
        "`x-maestro-headless-subscriber-id`": (_HEADERS,),
        "`x-maestro-approval-mode`": (
            HTTP + "test_approvals_can_be_automatic_from_the_start",
            _WRONG,
        ),
        "`Authorization: Bearer …`": (HTTP + "test_the_api_wants_the_key",),
    },
    "4.5": {
        "advertised `heartbeat_interval_ms`": (_LINES + "test_a_lease_lasts_three_heartbeats",),
        "connection idle expiry": (_LINES + "test_a_lease_lasts_three_heartbeats", _EXPIRED),
        "detached explicit subscription": (_EXPIRED,),
        "runtime idle disposal": (HTTP + "test_an_idle_session_is_closed_and_comes_back",),
        "clean-up sweep": (CROWD + "test_what_variables_say_is_read_once_and_checked", _EXPIRED),
        "SSE heartbeat envelope": (_LINES + "test_a_silent_stream_has_heartbeats",),
    },
    "4.6": {
        "`snapshot`": (_BEGINNINGS,),
        "`message`": (_BEGINNINGS,),
        "`heartbeat`": (_LINES + "test_a_silent_stream_has_heartbeats",),
        "`reset`": (_LAGGED, AFRESH + "test_an_empty_home_and_another_place_are_enough"),
    },
    "4.7": {
        "body missing": (_WRONG, _FAULTS),
        "body > 1 000 000 bytes": (_WRONG,),
        "unauthenticated": (HTTP + "test_the_api_wants_the_key",),
        "viewer sends a message": (_HEADERS, _FAULTS),
        "message by unknown subscription": (_FAULTS,),
        "message by unknown connection": (_FAULTS,),
        "message while another connection holds": (_FAULTS,),
        "any runtime refusal": (
            _FAULTS,
            HTTP + "test_a_request_that_waits_is_answered_over_http",
        ),
        "utility owned by another": (
            UTILITIES
            + "test_another_controller_may_not_touch_them_and_they_end_with_their_connection",
        ),
        "create/subscribe as controller": (_CONNECTIONS,),
        "unknown `connectionId`": (_CONNECTIONS,),
        "role mismatch": (_CONNECTIONS,),
        "`enableClientTools`": (_WRONG,),
        "viewer negotiating": (_WRONG,),
        "unknown session": (HTTP + "test_a_runner_that_is_not_bound_makes_a_session_or_finds_one",),
        "`workspaceRoot`": (_WRONG,),
        "hosted runner draining": (_TOLD,),
        "hosted runner bound to another": (_ELSEWHERE,),
    },
    "5.1": {
        "runner session id": (_FLAGS, _VARIABLES),
        "workspace root": (_FLAGS, _VARIABLES, CONFIG + "test_what_is_wrong_is_told"),
        "listen": (_FLAGS, _VARIABLES, CONFIG + "test_where_it_listens"),
        "owner generation": (CONFIG + "test_a_flag_comes_before_a_variable", _VARIABLES),
        "snapshot root": (_FLAGS, _VARIABLES),
        "restore manifest": (_VARIABLES,),
        "workspace id": (_FLAGS, _VARIABLES),
        "agent run id": (_FLAGS, _VARIABLES),
        "Maestro session": (_FLAGS, _VARIABLES),
        "attach audience": (_LINES + "test_the_audience_is_passed_on",),
    },
    "5.2": {
        "`protocol_version`": (_WHO,),
        "`runner_session_id`": (_WHO,),
        "`ready`": (
            IDENTITY + "test_a_missing_workspace_makes_it_not_ready_and_changes_no_id",
            _UNREADY,
        ),
        "`draining`": (IDENTITY + "test_a_drained_runner_is_not_ready_and_stays_so",),
    },
    "5.4": {
        "`protocol_version`": (_MANIFEST,),
        "`runner_session_id`": (_MANIFEST,),
        "`workspace_id?`": (_MANIFEST, DRAIN + "test_what_is_not_known_is_left_out"),
        "`maestro_session_id`": (_MANIFEST,),
        "`reason?`": (_MANIFEST, DRAIN + "test_what_is_not_known_is_left_out"),
        "`created_at`": (_MANIFEST,),
        "`workspace_root`": (_MANIFEST,),
        "`runtime`": (_MANIFEST,),
        "`workspace_export`": (_MANIFEST,),
        "`work_continuity`": (_MANIFEST,),
        "`platform_evidence`": (
            DRAIN + "test_evidence_repeats_ids_and_counts_and_says_where_the_rest_is",
        ),
        "`retention_policy`": (DRAIN + "test_every_field_of_the_published_example_is_written",),
        "`snapshot`": (DRAIN + "test_the_snapshot_in_a_manifest_is_a_published_one",),
        "`git?`": (DRAIN + "test_what_git_knows_is_in_the_manifest",),
    },
    "5.8": {
        "completed": (AFRESH + "test_an_empty_home_and_another_place_are_enough",),
        "failed": (
            _UNREADY,
            AFRESH + "test_what_was_not_flushed_can_be_read_and_not_attached_to",
        ),
        "skipped": (
            RESTORE + "test_a_runtime_that_was_not_there_is_not_gone_on_from",
            AFRESH + "test_what_was_not_flushed_can_be_read_and_not_attached_to",
        ),
    },
}

WITHOUT: dict[str, dict[str, str]] = {
    "4.2": {
        "`x-maestro-csrf`": "off for a runner; a request with another `Origin` is refused anyway",
        "`X-EvalOps-Runner-Attach-Token-Id`": "of the gateway before the runner",
    },
    "4.5": {
        "forced disposal": "a session ends with its process, which is killed if it does not end",
    },
    "4.7": {
        "rate limit": "all callers are one control plane; connections and bodies are bounded",
    },
    "5.2": {
        "`drain_status?`": "optional, and the seed's identity has nothing else",
    },
}
"""Rows without a test, and why."""
