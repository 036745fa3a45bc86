"""What each queue has and may have after a plan: `kubectl get queues` shows it."""

from __future__ import annotations

from collections import Counter, defaultdict

from edl.explain.queue_room import QueueRooms, Room
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.queues import Amounts, Queue, QueueStatus
from edl.model.units import plain, rank_of

LONGEST_PROBLEM = 900
"""Characters of a problem in a status, whose message has 1024 at most."""


def queue_statuses(view: ClusterSnapshot, plan: ScalePlan) -> dict[str, QueueStatus]:
    """The status of each Queue object, by name.

    Args:
        view: what the plan was made for.
        plan: a decision for each of its jobs.
    """
    rooms = QueueRooms(view)
    decisions = {decision.job: decision for decision in plan.decisions}
    jobs: dict[str, list[tuple[Job, ScaleDecision]]] = defaultdict(list)
    for job in view.jobs:
        if job.key in decisions:
            jobs[job.queue].append((job, decisions[job.key]))
    return {queue.name: _status(queue, jobs[queue.name], rooms) for queue in view.queues}


def _status(queue: Queue, jobs: list[tuple[Job, ScaleDecision]], rooms: QueueRooms) -> QueueStatus:
    used: Counter[str] = Counter({resource: 0 for resource, _ in queue.nominal})
    for job, decision in jobs:
        if decision.admitted:
            for resource in used:
                used[resource] += decision.target * job.trainer.request[resource]
                used[resource] += sum(f.count * f.shape.request[resource] for f in job.fixed)
        for pod in job.kept_by_owner:
            for resource in used:
                used[resource] += pod.shape.request[resource]
    borrowed = {resource: used[resource] - own for resource, own in queue.nominal if used[resource] > own}
    found = [room for resource, _ in queue.nominal if (room := rooms.of(queue.name, resource)) is not None]
    return QueueStatus(
        used=_sorted(used),
        borrowed=_sorted(borrowed),
        share=_sorted({room.resource: room.share for room in found}),
        running=sum(decision.admitted or bool(job.kept_by_owner) for job, decision in jobs),
        pending=sum(not decision.admitted and (job.is_schedulable or job.is_barred) for job, decision in jobs),
        message=_invalid(queue) if queue.problem else _message(found),
    )


def _invalid(queue: Queue) -> str:
    """Why the object is not valid, and what counts until it is mended."""
    rule = "its jobs get no more than they have" if queue.is_unknown else "its last valid limits count"
    return f"invalid: {queue.problem[:LONGEST_PROBLEM]}; {rule} until then"


def _message(rooms: list[Room]) -> str:
    """Who has what the queue lacks, for the first resource of which it lacks some; empty if it has all it wants."""
    scarce = sorted((room for room in rooms if room.is_scarce), key=lambda room: rank_of(room.resource))
    if not scarce:
        return ""
    holders = scarce[0].holders()
    return f"{plain(scarce[0].resource)}: {scarce[0].origin()}" + (f"; {holders}" if holders else "")


def _sorted(amounts: dict[str, int]) -> Amounts:
    return tuple(sorted(amounts.items()))
