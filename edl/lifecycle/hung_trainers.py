"""Trainers in step that hang: what the status says about them, and when edl replaces them.

The master finds them (`edl.ledger.hung`): their processes are there, and the others of their world went on without
them. One that goes on by itself within the time limit comes back and is not replaced.
"""

from __future__ import annotations

from edl.lifecycle.data_progress import MasterView
from edl.model.jobs import Job
from edl.model.pods import Pod

TRAINER_HANGS = "TrainerHangs"
REPLACED_AFTER_S = 120.0
"""How long a trainer hangs before edl deletes its pod and starts another one."""

_CAUSES = {True: "its process is stopped or its node does not answer", False: "its loop does not end a step"}


def hung_problem(job: Job, master_view: MasterView | None) -> tuple[str, str] | None:
    """(reason, message) if live trainers hang; None otherwise."""
    found = _hung(job, master_view)
    if not found:
        return None
    places = "; ".join(f"{pod.name} on node {pod.node} hangs: {_CAUSES[silent]}" for pod, silent, _ in found)
    return TRAINER_HANGS, f"{places}; edl replaces a trainer that hangs for {REPLACED_AFTER_S:g} s"


def overdue_trainers(job: Job, master_view: MasterView | None) -> list[Pod]:
    """Live trainers of a fault-tolerant job that have hung for too long."""
    if not job.fault_tolerant:
        return []
    return [pod for pod, _, seconds in _hung(job, master_view) if seconds >= REPLACED_AFTER_S]


def _hung(job: Job, master_view: MasterView | None) -> list[tuple[Pod, bool, float]]:
    """(pod, its process is silent, seconds) of each live trainer that hangs, by name."""
    report = master_view.report if master_view is not None else None
    hung = {one.pod_uid: one for one in (report.hung if report is not None else ())}
    pods = sorted((pod for pod in job.live_trainers if pod.uid in hung), key=lambda pod: pod.name)
    return [(pod, hung[pod.uid].is_silent, hung[pod.uid].seconds) for pod in pods]
