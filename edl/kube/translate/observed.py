"""What the pods of a workload request, which may differ from the template of the workload.

A LimitRange gives defaults to containers without requests, a webhook adds containers or changes requests, a
RuntimeClass adds an overhead. A plan counts what kube-scheduler counts, so the newest pod of each role shows what the
next ones request. That holds also once it is gone, and older ones are left or none: a workload that fits by its
template alone, or as its older pods are, would be started and stopped again and again. A pod that is resized in place
later says nothing about the next ones, so each counts as it was created.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from edl.kube.translate.objects import PodMetadata, PodObject
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod
from edl.model.resources import PodShape, Resources


@dataclass(frozen=True, slots=True)
class _Seen:
    """The requests and placement that a created pod of a role has after admission.

    Attributes:
        template: what the template requested then.
        shape, limits: those of the pod.
        created_s: when it was created, in seconds since the epoch.
    """

    template: Resources
    shape: PodShape
    limits: Resources
    created_s: float


@dataclass(slots=True)
class _Workload:
    uid: str
    by_role: dict[Role, _Seen] = field(default_factory=dict)


class ObservedPods:
    """Keeps what the pods of each workload requested."""

    def __init__(self) -> None:
        self._known: dict[JobKey, _Workload] = {}

    def apply(self, job: Job, source_of: Callable[[Pod], PodObject]) -> Job:
        """Return the workload with the requests that its pods showed, now or earlier.

        Args:
            job: as its adapter reads it, with its pods; its shapes are those of its templates.
            source_of: the object of a pod.
        """
        known = self._known.get(job.key)
        if known is None or known.uid != job.uid:
            known = self._known[job.key] = _Workload(job.uid)
        for role, pod in _newest(job.pods, source_of).items():
            before = known.by_role.get(role)
            # A pod that was there before its template changed says nothing about the next ones.
            if before is None or before.created_s < pod.created_s:
                known.by_role[role] = _Seen(_template_of(job, role), pod.shape, pod.limits, pod.created_s)
        fixed = tuple(_as_seen(pods, known.by_role.get(pods.role)) for pods in job.fixed)
        seen, template = known.by_role.get(Role.TRAINER), _template_of(job, Role.TRAINER)
        if seen is None or seen.template != template:
            return replace(job, fixed=fixed)
        declared = template if seen.shape.request != template else None
        # Pods that Kueue admitted have the labels and tolerations of their flavor, and the next ones may have others.
        is_owned = job.kueue is not None and job.kueue.is_owned
        shape = replace(seen.shape, placement=job.trainer.placement) if is_owned else seen.shape
        return replace(job, fixed=fixed, trainer=shape, limits=seen.limits, declared=declared)

    def forget(self, key: JobKey) -> None:
        """Forget a workload that no longer exists."""
        self._known.pop(key, None)


def _newest(pods: tuple[Pod, ...], source_of: Callable[[Pod], PodObject]) -> dict[Role, Pod]:
    """The newest pod of each role, of those that are as they were created if there are any."""
    newest: dict[Role, tuple[tuple[bool, float], Pod]] = {}
    for pod in pods:
        changes = (source_of(pod).metadata or PodMetadata()).generation or 1  # counted from Kubernetes 1.33 on
        rank = (changes <= 1, pod.created_s)
        if pod.role is not None and (pod.role not in newest or rank > newest[pod.role][0]):
            newest[pod.role] = (rank, pod)
    return {role: pod for role, (_, pod) in newest.items()}


def _template_of(job: Job, role: Role) -> Resources:
    """The requests of a pod of the role by the template."""
    if role is Role.TRAINER:
        return job.trainer.request if job.declared is None else job.declared
    return next((fixed.shape.request for fixed in job.fixed if fixed.role is role), Resources())


def _as_seen(pods: FixedPods, seen: _Seen | None) -> FixedPods:
    if seen is None or seen.template != pods.shape.request:
        return pods
    return replace(pods, shape=seen.shape, limits=seen.limits)
