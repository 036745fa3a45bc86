"""Bugs in what edl makes of the API server's answers, caught by the tests that make calls go wrong.

The controller decides again from what it sees, so most of these do no lasting harm; the tests see the extra request,
the early one, or the missing one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edl.errors import ConflictError, EdlError, TemporaryError
from edl.kube.client.api_errors import GoneError, NotFoundError
from edl.model.actions import Action, CreatePod, Outcome, Result
from tests.planted import Right, bug, targets

WRITER = "kube/test_writer.py"
FAULTS = "e2e/faults/test_server.py"
CALLS = "e2e/calls/test_calls.py::test_a_call_that_goes_wrong_once_changes_nothing_in_the_end"


@bug(
    "a 409 counts as success",
    at=targets.APPLY_ACTION,
    caught_by=f"{WRITER}::test_every_error_of_the_server_becomes_an_outcome_with_a_message",
)
def conflict_is_success(right: Right) -> Right:
    async def wrong(self: Any, action: Action) -> Outcome:
        outcome: Outcome = await right(self, action)
        return replace(outcome, result=Result.DONE) if outcome.result is Result.CONFLICT else outcome

    return wrong


@bug(
    "a creation whose reply is lost is repeated under another name, without looking what is there",
    at=targets.CREATE_POD,
    caught_by=f"{FAULTS}::test_a_write_whose_reply_is_lost_is_recognised_as_ours",
)
def repeated_without_reading(right: Right) -> Right:
    async def wrong(self: Any, action: CreatePod) -> Result:
        try:
            result: Result = await right(self, action)
        except TemporaryError:
            result = await right(self, replace(action, index=action.index + 10))
        return result

    return wrong


@bug(
    "a write is repeated before the time that a busy server named",
    at=targets.APPLY_ACTION,
    caught_by=f"{FAULTS}::test_busy_says_when_to_come_back_and_nobody_comes_sooner",
)
def busy_server_written_to(right: Right) -> Right:
    async def wrong(self: Any, action: Action) -> Outcome:
        outcome: Outcome = await right(self, action)
        return replace(outcome, retry_after_s=None)

    return wrong


@bug(
    "a view that does not show the controller's own writes is acted on",
    at=targets.STORE_ANSWER,
    caught_by=f"{FAULTS}::test_events_that_come_twice_in_disorder_late_or_never_lead_to_the_same_end",
)
def stale_view_acted_on(_: Right) -> Right:
    return lambda *_, **__: None


@bug(
    "the deletion of a pod that is gone fails",
    at=targets.SESSION_DELETE,
    caught_by=f"{WRITER}::test_deleting_a_pod_that_does_not_exist_is_success",
)
def deletion_of_nothing_fails(right: Right) -> Right:
    async def wrong(self: Any, path: str, **options: Any) -> Any:
        try:
            return await right(self, path, **options)
        except NotFoundError as error:
            raise TemporaryError(str(error)) from error

    return wrong


@bug(
    "a watch that is too old is resumed where it was",
    at=targets.API_ERROR,
    caught_by=f"{FAULTS}::test_a_watch_that_is_too_old_lists_again",
)
def too_old_watch_resumed(right: Right) -> Right:
    def wrong(code: int, *rest: Any) -> EdlError:
        error: EdlError = right(code, *rest)
        return TemporaryError(str(error)) if isinstance(error, GoneError) else error

    return wrong


@bug(
    "one conflict at a renewal ends the leader",
    at=targets.RENEW_LEASE,
    caught_by=f"{CALLS}[update-leases,-409]",
)
def conflict_ends_the_leader(right: Right) -> Right:
    async def wrong(self: Any) -> bool:
        record, store = self._mine, self._store
        try:
            self._mine = await store.write(record)
        except ConflictError:
            self._deadline_s = 0.0
            return False
        return bool(await right(self))

    return wrong
