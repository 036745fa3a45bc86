"""The snapshot of a cluster from which one decision is made: its nodes, the foreign pods and every TrainingJob."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from edl.model.headroom import Headroom
from edl.model.jobs import Job
from edl.model.names import JobKey, is_among
from edl.model.pods import Pod
from edl.model.queues import Queue
from edl.model.quota_trees import NO_TREES, QuotaTrees
from edl.model.resources import Resources, Taint


@dataclass(frozen=True, slots=True)
class Node:
    """A node as kube-scheduler sees it.

    Attributes:
        allocatable: the total that pods may use (`status.allocatable`), running pods included.
        reserved: kept free for DaemonSet pods that have not reached the node yet.
        labels: sorted (label, value).
        taints: every taint of the node, the unschedulable and the not-ready taint included.
    """

    name: str
    allocatable: Resources
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    cordoned: bool = False
    reserved: Resources = Resources()


@dataclass(frozen=True, slots=True)
class AvoidedNode:
    """A node on which trainers of several jobs failed or hung, or that rejected pods of one job.

    See `edl.lifecycle.broken_nodes` and `edl.lifecycle.trials`.

    Attributes:
        until_s: no trainer is started there before this time, in seconds since the epoch; then one is tried.
        jobs: whose trainers failed or hung there, or whose pods were rejected, sorted.
        waits: how often edl avoided the node before this time, >= 0.
        spared: edl does not avoid the node, because it avoids as many nodes as it may.
        probe: the job that may start one trainer there now; None if none may.
    """

    name: str
    until_s: float
    jobs: tuple[JobKey, ...]
    waits: int = 0
    spared: bool = False
    probe: JobKey | None = None

    def is_closed_to(self, job: JobKey) -> bool:
        """True if new trainers of the job keep away from the node.

        What happened to jobs of one namespace, which its tenant may have caused, counts in this namespace alone.
        """
        return (
            not self.spared and self.probe != job and (job.namespace in self.namespaces or len(self.namespaces) > 1)
        )

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces of the jobs whose trainers failed or hung on the node."""
        return frozenset(key.namespace for key in self.jobs)


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """A ResourceQuota of a namespace, as far as it limits the pods of TrainingJobs.

    Resources have the names of `Resources`; what pods may set as limits together is `limits.cpu` and so on, and
    `POD_OBJECTS` counts finished pods, too.

    Attributes:
        hard: (resource, amount) sorted by resource: the most that all pods of the namespace may request together.
        used: what the API server counted last.
        others: what the pods of no job request, as far as the quota counts them.
        exempt: sorted: the jobs of the namespace that are not limited by it: its scopes leave out some of their pods.
    """

    namespace: str
    name: str
    hard: tuple[tuple[str, int], ...]
    used: tuple[tuple[str, int], ...] = ()
    others: tuple[tuple[str, int], ...] = ()
    exempt: tuple[JobKey, ...] = ()

    def limits(self, job: JobKey) -> bool:
        """Return True if the quota limits the pods of a job."""
        return job.namespace == self.namespace and not is_among(job, self.exempt)


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """A request pod: it stands for a node that a job asks for, and runs nothing.

    Attributes:
        job: the job that asks.
        group: the group that the node is asked of; see `node_groups`.
        pod: the pod itself; it is no pod of the job, and no foreign pod either.
    """

    job: JobKey
    group: str
    pod: Pod

    @property
    def is_open(self) -> bool:
        """True while no node has come for the request pod."""
        return self.pod.is_live and not self.pod.node


@dataclass(frozen=True, slots=True, order=True)
class Gang:
    """A group of foreign pods that their scheduler starts only together.

    Attributes:
        name: as `Pod.gang` has it.
        minimum: with how many pods the group starts, > 1; those that run count.
        once: once any of its pods has a node, the others start one by one.
    """

    namespace: str
    name: str
    minimum: int
    once: bool = False


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Everything in the cluster that one decision depends on.

    Attributes:
        observed_at_s: the time of the snapshot; every waiting time ends here.
        nodes: every node, sorted by name, also those that offer no capacity now.
        pods: every foreign pod that is not finished: serving, system, DaemonSet; bound or waiting; sorted by
            (namespace, name).
        jobs: every TrainingJob, sorted by key.
        missing_priority_classes: the PriorityClasses of edl that the cluster lacks.
        unread_nodes: names of nodes that exist and could not be parsed: they offer no capacity, but are not gone.
        resizes_pods: the API server changes requests of running pods in place, and edl may use it.
        resource_quotas: the resource quotas of the namespaces that have TrainingJobs, sorted by (namespace, name).
        queues: the valid Queue objects of the cluster, sorted by name.
        kueue: the quotas of Kueue, if they limit any job.
        node_requests: the request pods that are not finished, sorted by (job, name).
        resting_groups: (group, until when in seconds since the epoch) of each group that brought no node in time and
            is asked for none until then, sorted.
        idle_nodes: names of the nodes that the plan empties, sorted; see `planner.expected_nodes.idle`.
        avoided: nodes on which trainers of several jobs failed or hung, sorted by name. Only the planner's view of a
            cluster has them.
        rejecting: nodes that rejected pods of a job, which alone avoids them, sorted by (job, name). Only the view of
            the planner has them.
        headroom: capacity that the plan is to keep for serving pods to come, learned from those that came.
        gangs: the groups of foreign pods that start only together, sorted.
        jobs_before: the jobs as observed, if `jobs` are those of a further plan, in which some pods have gone or are
            that terminate; else None. What a queue may use is the same in all plans of one decision.
    """

    observed_at_s: float
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    jobs: tuple[Job, ...] = ()
    missing_priority_classes: tuple[str, ...] = ()
    unread_nodes: tuple[str, ...] = ()
    resource_quotas: tuple[ResourceQuota, ...] = ()
    resizes_pods: bool = False
    queues: tuple[Queue, ...] = ()
    kueue: QuotaTrees = NO_TREES
    node_requests: tuple[NodeRequest, ...] = ()
    resting_groups: tuple[tuple[str, float], ...] = ()
    idle_nodes: tuple[str, ...] = ()
    avoided: tuple[AvoidedNode, ...] = ()
    rejecting: tuple[AvoidedNode, ...] = ()
    headroom: tuple[Headroom, ...] = ()
    jobs_before: tuple[Job, ...] | None = None
    gangs: tuple[Gang, ...] = ()

    @property
    def jobs_of_queues(self) -> tuple[Job, ...]:
        """The jobs whose pods and bounds count when queues share capacity."""
        return self.jobs if self.jobs_before is None else self.jobs_before

    @property
    def pods_left_alone(self) -> tuple[Pod, ...]:
        """The pods of the workloads that edl does not resize: in any plan they use their nodes as foreign pods do."""
        return tuple([pod for job in self.jobs if job.is_left_alone for pod in job.pods if job.holds(pod)])

    def with_changed(self, jobs: Iterable[Job]) -> ClusterSnapshot:
        """Return the snapshot with jobs as they would be for a further plan."""
        return replace(self, jobs=tuple(jobs), jobs_before=self.jobs_of_queues)

    @property
    def waiting_serving(self) -> tuple[Pod, ...]:
        """The foreign pods that wait for a node, in the order of `pods`."""
        return _moving_among(self.pods).waiting

    @property
    def nominated_serving(self) -> tuple[Pod, ...]:
        """The foreign pods without a node for which kube-scheduler preempts pods on one, in the order of `pods`."""
        return _moving_among(self.pods).nominated

    @property
    def terminating(self) -> tuple[Pod, ...]:
        """The pods that terminate: the foreign ones in the order of `pods`, then those of the jobs."""
        return (*_moving_among(self.pods).terminating, *[p for job in self.jobs for p in job.pods if p.terminating])

    def shares_all(self, other: ClusterSnapshot) -> bool:
        """True if nodes, pods and jobs are the same Python objects, as in two snapshots of an unchanged cluster."""
        is_same = self.nodes is other.nodes and self.pods is other.pods and self.jobs is other.jobs
        return is_same and self.gangs == other.gangs


class _Moving(NamedTuple):
    """The foreign pods that are `is_moving`, in the order of all foreign pods."""

    waiting: tuple[Pod, ...]
    nominated: tuple[Pod, ...]
    terminating: tuple[Pod, ...]


_MOST_REMEMBERED = 4
_remembered: list[tuple[tuple[Pod, ...], _Moving]] = []


def remember_moving(pods: tuple[Pod, ...], moving: Iterable[Pod]) -> None:
    """Cache which foreign pods are `is_moving`, so that later snapshots of the same pods need not look.

    Args:
        pods: all of them.
        moving: those, in the same order.
    """
    if not any(known is pods for known, _ in _remembered):
        _remember(pods, moving)


def is_moving(pod: Pod) -> bool:
    """True for a pod without a node, or a terminating one; the others of a large cluster are not looked at."""
    return not pod.node or pod.terminating


def _moving_among(pods: tuple[Pod, ...]) -> _Moving:
    """Select the pods of a tuple that are `is_moving`; the results for the last tuples are cached.

    A plan asks some ten times about the same tens of thousands of pods, and a tuple never changes.
    """
    for known, moving in _remembered:
        if known is pods:
            return moving
    return _remember(pods, [pod for pod in pods if not pod.node or pod.terminating])  # `is_moving`, asked inline


def _remember(pods: tuple[Pod, ...], moving: Iterable[Pod]) -> _Moving:
    moving = tuple(moving)
    unbound = [pod for pod in moving if not pod.node and pod.is_serving_without_node]
    found = _Moving(
        tuple([pod for pod in unbound if not pod.nominated]),
        tuple([pod for pod in unbound if pod.nominated]),
        tuple([pod for pod in moving if pod.terminating]),
    )
    _remembered.insert(0, (pods, found))
    del _remembered[_MOST_REMEMBERED:]
    return found
