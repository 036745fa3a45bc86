"""The actions that write the status of a job, in their order.

If a mark fails, the status that depends on it must not be written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from edl.lifecycle.conditions import with_degraded_of
from edl.model.actions import Action, DeleteJob, EmitEvent, PatchStatus
from edl.model.jobs import Job


def status_updates(actions: Iterable[Action]) -> tuple[Action, ...]:
    """The last actions of a job in order: status, its events, and the deletion of an expired job."""
    return tuple(a for a in actions if isinstance(a, PatchStatus | EmitEvent | DeleteJob))


def degraded_update(job: Job, actions: Iterable[Action]) -> tuple[Action, ...]:
    """Keep of the status and events only the condition Degraded and its event.

    For the time in which a mark cannot be written: the rest of the status would count a failure without its mark.
    """
    updates = status_updates(actions)
    patch = next((a for a in updates if isinstance(a, PatchStatus)), None)
    if patch is None or job.status is None:
        return ()
    status = with_degraded_of(job.status, patch.status)
    degraded = status.condition("Degraded")
    if status == job.status or degraded is None:
        return ()
    events = (a for a in updates if isinstance(a, EmitEvent) and a.reason == degraded.reason)
    return (replace(patch, status=status), *events)
