"""Bugs in the traffic with the API server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from edl.errors import EdlError, TemporaryError
from edl.kube.client.api_errors import RefusedError
from edl.kube.leader_election import LeaseRecord
from edl.model.actions import Action, PatchStatus
from tests.planted import Right, bug, targets

WRITER = "kube/test_writer.py"
ANSWERS = "kube/mirror/test_cache_answers.py"
REFLECTOR = "kube/mirror/test_reflector.py"
ELECTION = "kube/test_leader_election.py"

# --- writes


@bug(
    "a deletion has no UID as its precondition",
    at=targets.SESSION_DELETE,
    caught_by=f"{WRITER}::test_a_marked_pod_is_not_deleted_if_another_pod_has_its_name",
)
def deletion_without_uid(right: Right) -> Right:
    async def wrong(self: Any, path: str, *, uid: str, **options: Any) -> Any:
        found = json.loads(await self.get(path))
        return await right(self, path, uid=found["metadata"]["uid"] or uid, **options)

    return wrong


@bug(
    "an intent is written on any pod that has the name now",
    at=targets.SESSION_PATCH,
    caught_by=f"{WRITER}::test_another_pod_of_the_same_name_is_neither_annotated_nor_deleted",
)
def patch_without_uid(right: Right) -> Right:
    async def wrong(self: Any, path: str, body: dict[str, Any], **options: Any) -> Any:
        metadata = {name: value for name, value in body.get("metadata", {}).items() if name != "uid"}
        return await right(self, path, {**body, "metadata": metadata}, **options)

    return wrong


@bug(
    "a status is written on another job of the same name",
    at=targets.WRITE_STATUS,
    caught_by=f"{WRITER}::test_a_status_is_never_written_on_another_job_of_the_same_name",
)
def status_on_another_job(right: Right) -> Right:
    async def wrong(self: Any, action: PatchStatus) -> Any:
        body = self._cache.job_body(action.job) or {}
        uid = body.get("metadata", {}).get("uid", action.job_uid)
        return await right(self, replace(action, job_uid=uid))

    return wrong


@bug(
    "a pod that the controller created itself counts as somebody else's",
    at=targets.EXISTING_OBJECT,
    caught_by=f"{WRITER}::test_an_existing_pod_of_the_job_counts_as_created",
)
def own_pod_not_recognised(right: Right) -> Right:
    async def wrong(self: Any, what: str, path: str, action: Action) -> Any:
        return await right(self, what, path, replace(action, job_uid="nobody"))

    return wrong


@bug(
    "an action continues although the lease is lost",
    at=targets.SESSION_FENCE,
    caught_by=f"{WRITER}::test_an_action_stops_between_its_requests_if_the_lease_is_lost",
)
def writes_not_fenced(right: Right) -> Right:
    return lambda self, _, **options: right(self, lambda: True, **options)


@bug(
    "an unreachable webhook counts as an unreachable API server",
    at=targets.API_ERROR,
    caught_by="kube/client/test_api_errors.py",
)
def webhook_taken_for_the_server(right: Right) -> Right:
    def wrong(code: int, *rest: Any) -> EdlError:
        error: EdlError = right(code, *rest)
        return TemporaryError(str(error)) if code == 500 and isinstance(error, RefusedError) else error

    return wrong


# --- the lease


@bug(
    "a leader that was stopped past its lease renews it",
    at=targets.LEASE_IS_HELD,
    caught_by=f"{ELECTION}::test_a_process_that_was_stopped_past_its_lease_does_not_renew_it",
)
def expired_lease_renewed(_: Right) -> Right:
    return lambda self: self._mine is not None


@bug(
    "a lease is taken over before it has expired",
    at=targets.LEASE_IS_FREE,
    caught_by=f"{ELECTION}::test_a_second_replica_waits_until_the_lease_expires",
)
def lease_taken_too_soon(right: Right) -> Right:
    def wrong(self: Any, found: LeaseRecord) -> bool:
        return bool(right(self, replace(found, duration_s=2)))

    return wrong


# --- the cache


@bug(
    "what the API server answered shows only once the watch shows it",
    at=targets.STORE_ANSWER,
    caught_by=f"{ANSWERS}::test_the_next_snapshot_shows_what_the_api_server_answered",
)
def answer_not_stored(_: Right) -> Right:
    return lambda *_: None


@bug(
    "a watch that does not show what the API server answered counts as good",
    at=targets.LIST_IF_DEAF,
    caught_by=f"{ANSWERS}::test_a_watch_that_does_not_show_an_answer_in_time_is_lost_and_everything_is_listed",
)
def deaf_watch_trusted(_: Right) -> Right:
    return lambda *_: None


@bug(
    "an event from before an answer undoes it",
    at=targets.IS_LATE,
    caught_by=f"{ANSWERS}::test_events_from_before_an_answer_do_not_undo_it",
)
def event_undoes_an_answer(_: Right) -> Right:
    return lambda *_, **__: False


@bug(
    "a list from before an answer undoes it",
    at=targets.IS_OUTDATED,
    caught_by=f"{ANSWERS}::test_a_list_keeps_what_an_answer_has_shown_since",
)
def list_undoes_an_answer(_: Right) -> Right:
    return lambda *_: False


@bug(
    "a pod that the API server deleted at once is shown until its watch tells",
    at=targets.TAKE_ABSENCE,
    caught_by=f"{ANSWERS}::test_a_pod_without_a_grace_period_is_gone_at_once[status]",
)
def absence_not_stored(_: Right) -> Right:
    return lambda *_: None


@bug(
    "failures before a long watch count on",
    at=targets.WATCH,
    caught_by=f"{REFLECTOR}::test_a_long_silent_watch_resets_the_failures_before_it",
)
def long_watch_ends_no_failures(right: Right) -> Right:
    async def wrong(self: Any) -> bool:
        failures = self._pauses.failures
        try:
            return bool(await right(self))
        except EdlError:
            self._pauses.failures = failures
            raise

    return wrong


@bug(
    "a watch that sends 410 counts as a healthy one",
    at=targets.TAKE_LINE,
    caught_by=f"{REFLECTOR}::test_repeated_410_events_of_a_watch_cause_no_tight_loop",
)
def expired_watch_is_healthy(right: Right) -> Right:
    def wrong(self: Any, line: bytes) -> None:
        self._pauses.reset()
        right(self, line)

    return wrong


@bug(
    "a busy server is asked again before the time that it named",
    at=targets.PAUSE,
    caught_by=f"{REFLECTOR}::test_it_waits_as_long_as_a_429_requests",
)
def retry_after_ignored(right: Right) -> Right:
    async def wrong(self: Any, *, retry_after_s: float | None = None, at_once: bool = False) -> None:
        await right(self, retry_after_s=0.1 * retry_after_s if retry_after_s else None, at_once=at_once)

    return wrong


@bug(
    "one job that is nested too deeply hides all others",
    at=targets.DECODE,
    caught_by="kube/bounds/test_json_depth.py::test_one_object_that_is_too_deep_hides_no_other_in_a_list_or_a_watch",
)
def deep_job_hides_others(_: Right) -> Right:
    return lambda decoder, raw: decoder.decode(raw)


@bug(
    "a container that ran out of memory shows only its own message",
    at=targets.TERMINATION_MESSAGE,
    caught_by="kube/translate/test_snapshot_pods.py::test_an_exceeded_memory_limit_is_read_after_the_termination_message",
)
def out_of_memory_not_reported(_: Right) -> Callable[[Any], str]:
    return lambda ended: ended.message or ""
