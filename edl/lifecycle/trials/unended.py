"""Pods that do not end: who waits for them says which ones, and what to do."""

from __future__ import annotations

from edl.lifecycle.container_end import DEFAULT_NAMESPACE
from edl.lifecycle.pod_events import names_of
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import OVERDUE_S
from edl.model.status import Reason


def unended_problem(job: Job, unreachable: frozenset[str], now_s: float) -> tuple[str, str] | None:
    """(reason, message) of the overdue pods for whose end the job waits; None if there is none.

    A gang starts only once no pod of its last run exists. Any job waits for a master and for pservers, because their
    successors have their names; other trainers take other names.

    Args:
        job: with its pods.
        unreachable: UIDs of pods whose deletion edl forces.
        now_s: seconds since the epoch.
    """
    late = [
        pod
        for pod in job.pods
        if pod.terminating
        and pod.ends_by_s is not None
        and now_s >= pod.ends_by_s + OVERDUE_S
        and pod.uid not in unreachable
        and not (job.fault_tolerant and pod.role is Role.TRAINER)
    ]
    if not late:
        return None
    verb, first = ("has" if len(late) == 1 else "have"), late[0]
    place = f" ({first.name} is on node {first.node})" if first.node else ""
    namespace = f" -n {first.namespace}" if first.namespace != DEFAULT_NAMESPACE else ""
    return Reason.PODS_DO_NOT_END.value, (
        f"{names_of(late)} {verb} been deleted, but not ended{place}, and the job waits for that: remove the"
        f" finalizer, or, once the node is off for certain, `kubectl delete pod {first.name} --force{namespace}`"
    )
