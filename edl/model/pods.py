"""A pod with the fields that a decision needs.

Pods are frozen: every step of a decision reads the same snapshot. `edl.kube.translate` parses Kubernetes objects into
pods; this module parses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from edl.model.lending import RunningRequest
from edl.model.names import SURPLUS_VALUE, JobKey, Role
from edl.model.pod_limits import excess_of
from edl.model.resources import CPU, PodShape, Resources

RESIZE_UID = "/resize"
"""Ends the UID of a pod that stands for what a running pod waits for on its node."""

LONGEST_END_S, OVERDUE_S = 600.0, 30.0
"""Nobody waits for a terminating pod that has more time left than the first, or is late by more than the second.

A kubelet ends containers within seconds of their time. Later than that, a finalizer or a dead node holds the pod.
"""


class PodPhase(StrEnum):
    """`status.phase` of a pod; Unknown counts as Running, because the containers may still run."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a job or a foreign pod, with the fields that a decision needs.

    Attributes:
        node: the node to which it is bound; empty while it is unbound.
        nominated: `status.nominatedNodeName`, the node on which kube-scheduler preempts pods for it.
        planned: the node that edl planned for it (annotation); empty for foreign pods.
        pinned: edl requires the planned node; see `edl.lifecycle.node_pinning`.
        priority: the resolved priority; 0 if the cluster set none.
        scheduler: `spec.schedulerName`; empty for kube-scheduler's default profile.
        gated: it has scheduling gates and cannot be scheduled yet.
        tried: kube-scheduler tried and found no node (condition PodScheduled is False, Unschedulable).
        answered_s: when kube-scheduler last found a node for it, or last found none; None before its first attempt.
        terminating: it has a deletion timestamp; it occupies its node until it no longer exists.
        daemon: a DaemonSet owns it.
        job: the TrainingJob that owns it; None for a foreign pod.
        index: its number within its role.
        exit_code: the exit code of the current or the previous end of its main container, or of the other container
            that made the pod fail; None if there is none.
        ended_in: the other container that ended, such as `init container fetch`; empty for the main one.
        begun: its main container has started at some time, as its status says.
        intent: why edl deletes it, written on the pod before the deletion; empty if edl does not delete it.
        disruption: reason of its DisruptionTarget condition (PreemptionByScheduler, EvictionByEvictionAPI,
            DeletionByTaintManager, DeletionByPodGC, TerminationByKubelet), or why the kubelet ended it (Evicted and
            others); empty if it has none.
        rejection: for a pod that failed although none of its containers ran, what the kubelet says of it; else empty.
        unplaceable: kube-scheduler does not use free capacity that fits this pod, as far as edl can see. The pod
            counts as waiting and as short, and no trainer is a victim for it; see `edl.planner.unplaceable`.
        ip: its address; empty while it has none.
        container_message: why one of its containers cannot start, or which volume claim of a pod without a node does
            not exist; else the message of the end that `exit_code` is of; empty if there is none.
        journal: for a master, where edl put its journal, `claim` or `emptyDir`; empty for every other pod.
        lent_cpu_milli: how much less CPU it requests than `shape` says. A trainer that lends CPU declares what is in
            its shape; 0 for every other pod.
        running_request: for a trainer, its CPU request if its kubelet can change it while it runs; else None.
        safe_to_evict: whether edl may delete it only to consolidate nodes, by annotation of its owner; None if there
            is no annotation.
        limits: the most that its containers may use; a resource that is not listed has no limit.
        grace_s: how long it has to end after a deletion, by its spec; 0 if that is not known.
        ends_by_s: for a terminating pod, when it must have ended, in seconds since the epoch; None if unknown.
        held: only finalizers hold the terminating pod: it has no grace period left, so another deletion by force
            would change nothing.
        may_preempt: kube-scheduler may evict other pods for it; False if its `preemptionPolicy` is Never.
        blocked: what keeps it from every node whoever leaves: a rule between pods or of a volume, or what
            kube-scheduler says; empty if nothing does.
        unscheduled: what kube-scheduler says of a pod that it found no node for, or that an error kept from its node;
            else empty.
        owner: the UID of its controller; empty for a pod without one.
        outlived: for a pod of a job, its own containers have ended, as its phase says, and another one that admission
            added runs on: it uses its node until it is deleted.
        gang: for a foreign pod, the group with which its scheduler starts it, such as `volcano/web`; else empty.
    """

    namespace: str
    name: str
    uid: str
    shape: PodShape
    phase: PodPhase = PodPhase.PENDING
    node: str = ""
    nominated: str = ""
    planned: str = ""
    pinned: bool = False
    priority: int = 0
    created_s: float = 0.0
    started_s: float | None = None
    ready: bool = False
    gated: bool = False
    tried: bool = False
    answered_s: float | None = None
    terminating: bool = False
    daemon: bool = False
    job: JobKey | None = None
    role: Role | None = None
    index: int | None = None
    exit_code: int | None = None
    ended_in: str = ""
    begun: bool = False
    intent: str = ""
    disruption: str = ""
    rejection: str = ""
    unplaceable: bool = False
    ip: str = ""
    container_message: str = ""
    journal: str = ""
    safe_to_evict: bool | None = None
    scheduler: str = ""
    lent_cpu_milli: int = 0
    running_request: RunningRequest | None = None
    limits: Resources = Resources()
    grace_s: int = 0
    ends_by_s: float | None = None
    may_preempt: bool = True
    blocked: str = ""
    unscheduled: str = ""
    owner: str = ""
    gang: str = ""
    outlived: bool = False
    held: bool = False

    @property
    def requested(self) -> Resources:
        """The request that kube-scheduler counts: that of its shape without the CPU that it lends."""
        if not self.lent_cpu_milli:
            return self.shape.request
        return self.shape.request - Resources.of({CPU: self.lent_cpu_milli})

    @property
    def is_protected(self) -> bool:
        """For a trainer: kube-scheduler preempts it only after every trainer that has a PriorityClass of surplus."""
        return self.priority > SURPLUS_VALUE

    @property
    def is_finished(self) -> bool:
        """True if the pod has succeeded or failed, so that it no longer uses its node."""
        return (self.phase is PodPhase.SUCCEEDED or self.phase is PodPhase.FAILED) and not self.outlived

    @property
    def is_live(self) -> bool:
        """True if the pod counts as a pod of its job: it is neither terminating nor finished."""
        return not self.terminating and self.phase is not PodPhase.SUCCEEDED and self.phase is not PodPhase.FAILED

    def lingers(self, now_s: float) -> bool:
        """True if no plan should wait for the terminating pod: it is overdue, or its grace period is very long.

        Args:
            now_s: seconds since the epoch.
        """
        if not self.terminating or self.ends_by_s is None:
            return False
        return not -OVERDUE_S <= self.ends_by_s - now_s <= LONGEST_END_S

    @property
    def charged_until_s(self) -> float:
        """Until when a ResourceQuota counts the terminating pod, in seconds since the epoch.

        Infinite unless it terminates: nobody pays for a pod that a dead node or a finalizer holds.

        Source: k8s.io/kubernetes/pkg/quota/v1/evaluator/core, func QuotaV1Pod.
        """
        return self.ends_by_s + self.grace_s if self.terminating and self.ends_by_s is not None else inf

    def ends_late(self, now_s: float) -> bool:
        """True if the pod lingers (see `lingers`), or would as soon as it is deleted.

        Args:
            now_s: seconds since the epoch.
        """
        return self.lingers(now_s) if self.terminating else self.grace_s > LONGEST_END_S

    @property
    def has_begun(self) -> bool:
        """True if the main container has ever started; a pod stays Pending until all containers have started."""
        return self.begun or not (self.phase is PodPhase.PENDING or self.rejection)

    @property
    def cannot_start(self) -> bool:
        """True if a container cannot start, or no node takes it without its claim: see `container_message`."""
        return bool(self.container_message) and self.phase is PodPhase.PENDING and not self.terminating

    @property
    def is_serving_without_node(self) -> bool:
        """True for a foreign pod that needs a node: also while kube-scheduler waits for the pods that it preempts."""
        return (
            self.job is None
            and not self.node
            and self.is_live
            and not self.gated
            and self.priority >= 0
            and not self.daemon
        )

    @property
    def has_answer(self) -> bool:
        """True if kube-scheduler found no node for it, or says that an error kept it from one."""
        return self.tried or bool(self.unscheduled)

    @property
    def is_resize(self) -> bool:
        """Return True if this is no pod but the CPU that a running pod waits for on its node (resize in place)."""
        return self.uid.endswith(RESIZE_UID)

    @property
    def is_waiting_serving(self) -> bool:
        """True for a foreign pod that needs a node and is not nominated to one: `serving` in a plan counts these."""
        return self.is_serving_without_node and not self.nominated

    @property
    def needs_capacity(self) -> bool:
        """True for a waiting serving pod for which plans free capacity: False if no eviction would help it."""
        return self.is_waiting_serving and not (self.unplaceable or self.blocked or excess_of(self.shape))
