"""In which order the actions of one job are carried out: marks and deletions first, then growth and words.

Growth and words do not wait for each other, but within each every action needs the one before it. What a job is told
depends on whether its marks stand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from edl.lifecycle.status import with_trouble_of
from edl.model.actions import Action, CreatePod, DeleteJob, EmitEvent, Need, PatchStatus
from edl.model.jobs import Job


def creations(actions: Iterable[Action]) -> tuple[Action, ...]:
    """What new pods need, then the pods."""
    return tuple(a for a in actions if isinstance(a, Need | CreatePod))


def status_updates(actions: Iterable[Action]) -> tuple[Action, ...]:
    """The status, then its events, then the deletion of a job whose time is over."""
    return tuple(a for a in actions if isinstance(a, PatchStatus | EmitEvent | DeleteJob))


def degraded_update(job: Job, actions: Iterable[Action]) -> tuple[Action, ...]:
    """Of the words, only what the API server refuses: a failure whose mark does not stand must not be stored."""
    words = status_updates(actions)
    patch = next((a for a in words if isinstance(a, PatchStatus)), None)
    if patch is None or job.status is None:
        return ()
    status = with_trouble_of(job.status, patch.status)
    degraded = status.condition("Degraded")
    if status == job.status or degraded is None:
        return ()
    told = (a for a in words if isinstance(a, EmitEvent) and a.reason == degraded.reason)
    return (replace(patch, status=status), *told)
