"""`status` of a TrainingJob: its phase, its conditions, the reason for its trainer count, and its last resize."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from edl.model.progress import NOTHING_MEASURED, Measured, Progress
from edl.model.resources import QosClass

POD_REJECTED = "PodRejected"
"""Reason of condition Degraded, and of a status that lacks trainers, while nodes reject pods before they run."""

POD_DELETED = "PodDeleted"
"""Reason of condition Degraded, and of a status, while others delete pods soon after their creation."""

POD_CANNOT_START = "PodCannotStart"
"""Reason of condition Degraded, and of a status whose pods cannot start: capacity would not help the job."""


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
        """True if the job never runs again."""
        return self in {JobPhase.SUCCEEDED, JobPhase.FAILED}


class Reason(StrEnum):
    """Why a job has its trainer count; plan, status, event, metric and log use the same word."""

    ADMITTED = "Admitted"
    AT_MAX = "AtMax"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    MIN_UNSATISFIED = "MinUnsatisfied"
    UNSCHEDULABLE = "Unschedulable"
    SERVING_NEEDS_ROOM = "ServingNeedsRoom"
    QUOTA_REACHED = "QuotaReached"
    PODS_REFUSED = "PodsRefused"
    PODS_NOT_STARTED = "PodsNotStarted"
    PODS_DO_NOT_END = "PodsDoNotEnd"
    QUEUE_NOT_ALLOWED = "QueueNotAllowed"
    BEST_EFFORT_NOT_ALLOWED = "BestEffortNotAllowed"
    PINNED = "Pinned"
    COOLDOWN = "Cooldown"
    RESIZE_NOT_WORTH_IT = "ResizeNotWorthIt"
    LENDING_CLEARED = "LendingCleared"
    NODE_IDLE = "NodeIdle"
    INVALID_SPEC = "InvalidSpec"
    NOT_RESIZED = "NotResized"
    SUSPENDED = "Suspended"
    FINISHING = "Finishing"
    FINISHED = "Finished"


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
    """The number of pods of a role that are desired, ready, and live but not ready."""

    desired: int = 0
    ready: int = 0
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Unseen:
    """An earlier, higher count for which the workload's controller may still make pods, and until when.

    Attributes:
        count: how many pods.
        until_s: until when, in seconds since the epoch.
    """

    count: int
    until_s: float


@dataclass(frozen=True, slots=True)
class Resize:
    """The last change of a job's trainer count.

    Attributes:
        voluntary_s: when the job last gave trainers to another job; the cooldown starts there. None if it never did,
            or if the cooldown is over.
        lost_s: the training time that the resize cost, in seconds at the speed after it; None if not measured.
        unseen: of a workload whose Workloads of Kueue edl makes; None if its controller makes no more than asked for.
    """

    time_s: float
    from_count: int
    to_count: int
    reason: str
    voluntary_s: float | None = None
    lost_s: float | None = None
    unseen: Unseen | None = None


@dataclass(frozen=True, slots=True)
class LentCpu:
    """CPU that the trainers of a job declare and do not request, and how many of them serving slows."""

    cpu_milli: int
    slowed: int = 0


@dataclass(frozen=True, slots=True)
class NodeTrouble:
    """A node on which a trainer of the job failed or hung; see `edl.lifecycle.node_troubles`.

    Attributes:
        time_s: when edl saw it last, in whole seconds since the epoch.
        hung: the last trainer hung; False if it failed.
        waits: how often edl had avoided the node before, >= 0.
        confirmed: trainers of the job did well on at least as many other nodes, so the node may be the cause.
    """

    node: str
    time_s: float
    hung: bool = False
    waits: int = 0
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class JobStatus:
    """`status` of a TrainingJob, as read from the cluster or as edl will write it.

    Attributes:
        explanation: why the job has its trainer count, in one line; condition Admitted has the full account.
        lending: what its trainers lend; None if they lend nothing.
        failures: pod failures that count towards `spec.backoffLimit`.
        completed: indexes of the trainers of this run that exited with code 0, sorted; also of those whose pods
            somebody has deleted since.
        troubles: nodes on which its trainers failed or hung, sorted by node; empty unless edl avoids such nodes.
        qos: the QoS class of its trainers; None if the spec is invalid. It alone is no reason to write the status: a
            CRD of an older edl would drop it again and again.
    """

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
    completed: tuple[int, ...] = ()
    lending: LentCpu | None = None
    troubles: tuple[NodeTrouble, ...] = ()
    qos: QosClass | None = field(default=None, compare=False)

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type; None if there is none."""
        return next((c for c in self.conditions if c.type == kind), None)
