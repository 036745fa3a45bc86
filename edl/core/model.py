"""The nouns of a decision: nodes, pods, jobs, and the snapshot of a cluster.

Everything here is frozen: a snapshot is taken once and every later step reads the same world. Amounts are integers
(millicores, bytes, devices, pods), times are seconds since the epoch, and units stand in the names. This module
refuses to parse, to decide and to talk: strings become values in the adapters, and what is decided about
them stands in `plan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from edl.core.answers import JobAction, JobEvent
from edl.core.asks import PodShape, Preference, Resources, Taint
from edl.core.progress import NOTHING_MEASURED, Measured, Progress

LABEL_JOB = "paddlepaddle.org/job"
LABEL_ROLE = "paddlepaddle.org/role"
LABEL_INDEX = "paddlepaddle.org/index"
ANNOTATION_NODE = "paddlepaddle.org/planned-node"
ANNOTATION_PINNED = "paddlepaddle.org/pinned"
ANNOTATION_INTENT = "paddlepaddle.org/intent"
ANNOTATION_JOURNAL = "paddlepaddle.org/journal"


class JobKey(NamedTuple):
    """What names a TrainingJob; also the tie-breaker wherever two jobs are otherwise equal."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Role(StrEnum):
    """What a pod of a job is for."""

    MASTER = "master"
    PSERVER = "pserver"
    TRAINER = "trainer"


class PodPhase(StrEnum):
    """`status.phase` of a pod; Unknown is read as Running, because its containers may still run."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class JobPhase(StrEnum):
    """`status.phase` of a TrainingJob."""

    PENDING = "Pending"
    CREATING = "Creating"
    RUNNING = "Running"
    SCALING = "Scaling"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_final(self) -> bool:
        """True where the job never runs again."""
        return self in {JobPhase.SUCCEEDED, JobPhase.FAILED}


class Reason(StrEnum):
    """Why a job has the count it has: the word in the plan, the status, the event, the metric and the log."""

    ADMITTED = "Admitted"
    AT_MAX = "AtMax"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    MIN_UNSATISFIED = "MinUnsatisfied"
    UNSCHEDULABLE = "Unschedulable"
    SERVING_NEEDS_ROOM = "ServingNeedsRoom"
    QUOTA_REACHED = "QuotaReached"
    PINNED = "Pinned"
    COOLDOWN = "Cooldown"
    RESIZE_NOT_WORTH_IT = "ResizeNotWorthIt"
    INVALID_SPEC = "InvalidSpec"
    SUSPENDED = "Suspended"
    FINISHED = "Finished"


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the scheduler sees it.

    Attributes:
        allocatable: what pods may use in all (`status.allocatable`), pods included.
        reserved: kept for DaemonSet pods that have not reached the node yet.
        labels: sorted (label, value).
        taints: as given, unschedulable and not-ready taints included.
    """

    name: str
    allocatable: Resources
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    cordoned: bool = False
    reserved: Resources = Resources()


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, ours or foreign, as far as a decision needs it.

    Attributes:
        node: the node it is bound to, empty while unbound.
        nominated: `status.nominatedNodeName`: kube-scheduler is freeing room for it there.
        planned: our own plan for it (annotation), empty for foreign pods.
        pinned: it may go to that node only, by our own demand; see `pins`.
        priority: the resolved priority; 0 where the cluster gave none.
        gated: it has scheduling gates and cannot be scheduled yet.
        tried: kube-scheduler has tried and failed to place it (PodScheduled is False, Unschedulable).
        answered_s: when kube-scheduler last found a node for it, or none; None where it has not come to it yet.
        terminating: it has a deletion timestamp; it holds its room until it is gone.
        daemon: a DaemonSet owns it.
        job: the TrainingJob it belongs to; None for a foreign pod.
        index: its number within its role.
        exit_code: of its main container once finished, where known.
        intent: why we are deleting it, stated on the pod before the deletion; empty where we are not.
        unplaceable: kube-scheduler leaves room unused that it could have by all that we know: it waits and is short,
            and nobody dies for it; see `unplaceable`.
        ip: its address, empty while it has none.
        said: what its main container, or the one before it, said last of why it ended, or why the kubelet cannot
            start it; empty where nothing is said.
        safe_to_evict: whether it may be ended for mere tidiness, as its owner says; None where nothing is said.
        journal: of a master: where we put its journal, `claim` or `emptyDir`; empty for every other pod.
        disruption: reason of its DisruptionTarget condition (PreemptionByScheduler, EvictionByEvictionAPI,
            DeletionByTaintManager, DeletionByPodGC, TerminationByKubelet), empty where there is none.
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
    intent: str = ""
    disruption: str = ""
    unplaceable: bool = False
    ip: str = ""
    said: str = ""
    journal: str = ""
    safe_to_evict: bool | None = None

    @property
    def is_finished(self) -> bool:
        """True where it holds no room any more, whether it succeeded or failed."""
        return self.phase is PodPhase.SUCCEEDED or self.phase is PodPhase.FAILED

    @property
    def is_live(self) -> bool:
        """True where it counts towards its job: not terminating and not finished."""
        return not self.terminating and self.phase is not PodPhase.SUCCEEDED and self.phase is not PodPhase.FAILED

    @property
    def is_waiting_serving(self) -> bool:
        """True for a foreign pod that still needs a node and has none promised: what `serving` counts."""
        return (
            self.job is None
            and not self.node
            and self.is_live
            and not self.gated
            and not self.nominated
            and self.priority >= 0
            and not self.daemon
        )

    @property
    def needs_room(self) -> bool:
        """True for a waiting serving pod that a plan makes room for."""
        return self.is_waiting_serving and not self.unplaceable


@dataclass(frozen=True, slots=True)
class Condition:
    """One entry of `status.conditions` (metav1.Condition)."""

    type: str
    status: str
    reason: str
    message: str
    since_s: float
    observed_generation: int = 0


@dataclass(frozen=True, slots=True)
class RoleCount:
    """How many pods of a role are wanted, ready, and live but not ready."""

    desired: int = 0
    ready: int = 0
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Resize:
    """The last change of a job's trainer count.

    Attributes:
        voluntary_s: when trainers last died for the share of another job, which the cooldown counts from; None where
            none did, or where that is long ago.
        lost_s: the time of training that it cost, in seconds of the job's speed after it; None while that is not
            measured.
    """

    time_s: float
    from_count: int
    to_count: int
    reason: str
    voluntary_s: float | None = None
    lost_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """`status` of a TrainingJob, as read from the cluster or as it ought to be."""

    phase: JobPhase = JobPhase.PENDING
    reason: str = ""
    selector: str = ""
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    trainer: RoleCount = RoleCount()
    pserver: RoleCount = RoleCount()
    master: RoleCount = RoleCount()
    start_s: float | None = None
    completion_s: float | None = None
    last_resize: Resize | None = None
    failures: int = 0
    explanation: str = ""
    dataset: Progress | None = None
    measured: Measured = NOTHING_MEASURED

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, where there is one."""
        return next((c for c in self.conditions if c.type == kind), None)


@dataclass(frozen=True, slots=True)
class FixedPods:
    """The pods of a job that are not resized: a job needs all of them to run.

    Attributes:
        preferred: preferred node affinity; no part of the shape, because it decides only between nodes that are equal
            otherwise, and shapes that differ in it alone would be counted one by one.
    """

    role: Role
    shape: PodShape
    count: int
    preferred: tuple[Preference, ...] = ()


class Answer(NamedTuple):
    """What the job's policies say to an event of the pods of a role."""

    role: Role
    event: JobEvent
    action: JobAction


@dataclass(frozen=True, slots=True)
class Job:
    """A TrainingJob as far as a decision and its life cycle need it.

    Attributes:
        generation: `metadata.generation`: the version of the wish that a decision answers.
        created_s: creation time; the age that admission goes by.
        min_trainers, max_trainers: bounds of the trainer count, 1 <= min <= max.
        pinned: the count that `spec.trainer.instances` asks for; 0 leaves it to the planner.
        trainer: the shape of one trainer.
        preferred: preferred node affinity of the trainers; see FixedPods.
        fixed: master and pservers.
        pods: every pod of the job that still exists, of every role, terminating and finished ones included; sorted by
            (role, index, name).
        tier: `spec.priority`; higher tiers are admitted first.
        queue: whose quota its pods count to.
        weight: share of the fulfilment, or of the utility, > 0.
        throughput: (trainers, samples per second) as declared; empty where it is left to be measured.
        resize_cost_s: what a change of its trainer count costs it in time; None where it is left to be measured.
        restarts_epoch: what a lost ledger means, as declared: True begins the epoch again, False ends the job; None
            where nothing is said.
        has_dataset: the spec says what the master shards.
        fault_tolerant: True in fault-tolerant mode; False in gang mode.
        gang: the minimum set starts whole or not at all, whatever the mode.
        answers: the policies of the spec, role by role, where they differ from those of the mode.
        finished: the job is over (phase Succeeded or Failed): it gets no pods.
        deleting: the job has a deletion timestamp.
        problem: why the spec is invalid; empty where it is valid.
        status: what the cluster last stored; None before the first write.
    """

    key: JobKey
    uid: str
    min_trainers: int
    max_trainers: int
    trainer: PodShape
    preferred: tuple[Preference, ...] = ()
    fixed: tuple[FixedPods, ...] = ()
    pods: tuple[Pod, ...] = ()
    generation: int = 1
    created_s: float = 0.0
    pinned: int = 0
    tier: int = 0
    queue: str = "default"
    weight: float = 1.0
    fault_tolerant: bool = True
    gang: bool = False
    answers: tuple[Answer, ...] = ()
    suspended: bool = False
    finished: bool = False
    deleting: bool = False
    problem: str = ""
    backoff_limit: int = 6
    active_deadline_s: int | None = None
    ttl_s: int | None = None
    cooldown_s: float = 60.0
    throughput: tuple[tuple[int, float], ...] = ()
    resize_cost_s: float | None = None
    restarts_epoch: bool | None = None
    has_dataset: bool = False
    status: JobStatus | None = None

    @property
    def live_trainers(self) -> tuple[Pod, ...]:
        """Trainers that count as `current`: not terminating and not finished."""
        return tuple([p for p in self.pods if p.role is Role.TRAINER and p.is_live])  # lists: jobs are large

    @property
    def is_schedulable(self) -> bool:
        """True where the planner may give the job anything."""
        return not (self.problem or self.suspended or self.finished or self.deleting)

    @property
    def was_admitted(self) -> bool:
        """True where the job ran before: condition Admitted; with no status, any of its pods is bound."""
        if self.status is not None and (admitted := self.status.condition("Admitted")) is not None:
            return admitted.status == "True"
        return any(p.node and p.is_live for p in self.pods)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The whole world of one decision.

    Attributes:
        observed_at_s: when it was taken; all waiting times are counted to here.
        nodes: every node, sorted by name, also those that are no capacity now.
        pods: every foreign pod that is not finished: serving, system, daemon; bound or waiting; sorted by
            (namespace, name).
        jobs: every TrainingJob, sorted by key.
        missing_priority_classes: those of ours that the cluster lacks.
        unread_nodes: names of nodes that are there and could not be read: no capacity, but not gone either.
    """

    observed_at_s: float
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    jobs: tuple[Job, ...] = ()
    missing_priority_classes: tuple[str, ...] = ()
    unread_nodes: tuple[str, ...] = ()
