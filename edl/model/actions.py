"""The actions that a job's life cycle requests from the cluster, as data, and the outcome of each.

An action carries the UIDs of its job and its pod. The writer compares them and never touches another object of the
same name. This module performs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edl.model.names import JobKey, Role
from edl.model.node_groups import NodeGroup
from edl.model.resources import Resources
from edl.model.status import JobStatus, Resize

SHORTER_FOR_SERVING_S = 1
"""A trainer that is deleted for serving without a written intent gets a grace period that is so much shorter."""


class Intent(StrEnum):
    """Why edl deletes a pod, if no reason of a plan applies; edl writes it on the pod before the deletion.

    Values of `edl.model.status.Reason` (ServingNeedsRoom, MinUnsatisfied, Suspended, Finished...) are intents too.
    """

    POD_FAILED = "PodFailed"  # followed by the number of the failure: "PodFailed/3"
    NODE_LOST = "NodeLost"
    RESTART = "Restart"
    REPLACED = "Replaced"
    MOVED = "Moved"
    HUNG = "Hung"
    NOT_STARTED = "NotStarted"
    JOB_FAILED = "JobFailed"
    JOB_DELETED = "JobDeleted"


class EventKind(StrEnum):
    """`type` of an event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the pod `<job>-<role>-<index>`.

    Attributes:
        job_uid: the owner; the pod is not created for another job of the same name.
        node: the node that the plan chose; None leaves the choice to kube-scheduler.
        pinned: the pod requires that node; see `edl.lifecycle.node_pinning`.
        cpu_request: for a trainer, the part of its declared CPU that it requests, in (0, 1]; it lends the rest.
        may_evict: an autoscaler may evict the pod to remove its node, unless its template says otherwise.
        expected: for a master, the (epoch, positions done) that its journal must contain; None if it may be empty.
        restarts_epoch: for a master, what it does if its journal is lost: True restarts the epoch, False refuses.
        labels: for a trainer or a pserver, the (key, value) of each label that its node must have: the domain of the
            job or of its slice.
        avoided: for a trainer, nodes on which kube-scheduler must not put it, sorted.
        is_best_effort: for a trainer, it requests neither cpu nor memory, with all that admission adds.
        is_base: for a trainer, it belongs to the minimum of its job, whatever its index is.
        flavors: the ResourceFlavors of Kueue whose nodes the pod needs.
    """

    job: JobKey
    job_uid: str
    role: Role
    index: int
    node: str | None = None
    pinned: bool = False
    cpu_request: float = 1.0
    may_evict: bool = False
    expected: tuple[int, int] | None = None
    restarts_epoch: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    avoided: tuple[str, ...] = ()
    is_best_effort: bool = False
    is_base: bool = False
    flavors: tuple[str, ...] = ()

    @property
    def pod_name(self) -> str:
        """The name of the pod, unique in its namespace."""
        return f"{self.job.name}-{self.role.value}-{self.index}"


@dataclass(frozen=True, slots=True)
class ProbePod:
    """Ask the API server whether it would accept the pod `<job>-<role>-<index>` now; nothing is created."""

    job: JobKey
    job_uid: str
    role: Role
    index: int

    @property
    def pod_name(self) -> str:
        """The name of the pod that would be created."""
        return f"{self.job.name}-{self.role.value}-{self.index}"


@dataclass(frozen=True, slots=True)
class MarkPod:
    """Write on a pod why edl will delete it, without deleting it yet."""

    job: JobKey
    job_uid: str
    pod: str
    pod_uid: str
    intent: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Write the intent on a pod, then delete the pod if it still has that UID.

    Attributes:
        intent: why; it is on the pod before the deletion, or with it.
        force: delete without a grace period, because no kubelet can confirm the end of the pod.
        marked: the pod already has an intent.
        grace_s: delete with this grace period, which stands for the intent. None if the intent is written.
    """

    job: JobKey
    job_uid: str
    pod: str
    pod_uid: str
    intent: str
    force: bool = False
    marked: bool = False
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class EnsureService:
    """Create the headless Service that gives the pods their DNS names."""

    job: JobKey
    job_uid: str


@dataclass(frozen=True, slots=True)
class EnsureSecret:
    """Create the Secret with the tokens of the job's master."""

    job: JobKey
    job_uid: str


@dataclass(frozen=True, slots=True)
class EnsureClaim:
    """Create the volume claim for the master's journal, if the job or the cluster provides for one."""

    job: JobKey
    job_uid: str


@dataclass(frozen=True, slots=True)
class EnsurePodGroup:
    """Create Volcano's PodGroup of the job's minimum set."""

    job: JobKey
    job_uid: str


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Write the status if the job still has that UID."""

    job: JobKey
    job_uid: str
    status: JobStatus


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Report one change to the user, once."""

    job: JobKey
    job_uid: str
    kind: EventKind
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a job whose `spec.ttlSecondsAfterFinished` has passed; Kubernetes deletes its pods with it."""

    job: JobKey
    job_uid: str


@dataclass(frozen=True, slots=True)
class ResizeWorkload:
    """Change the pod count of a workload, on condition that the count is still the observed one.

    Attributes:
        before: how many it keeps now.
        count: how many it should keep; 0 stops the workload.
        resize: what edl records on the object, in the same write.
        victims: the names of the trainers that go, for a controller that takes names.
        requests: what a trainer requests by its template, and as admission makes it; None if both are the same.
        flavors: the ResourceFlavors whose nodes its pods need, if it starts in a queue of Kueue.
    """

    job: JobKey
    job_uid: str
    before: int
    count: int
    resize: Resize
    victims: tuple[str, ...] = ()
    requests: tuple[Resources, Resources] | None = None
    flavors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResizePod:
    """Change the CPU request of a trainer that runs, if it still has that UID; its container is not restarted.

    Attributes:
        cpu_milli: what it requests from then on.
        declared_milli: what it declares; written on the pod first, so that the planner goes on counting it.
    """

    job: JobKey
    job_uid: str
    pod: str
    pod_uid: str
    cpu_milli: int
    declared_milli: int


@dataclass(frozen=True, slots=True)
class RequestNode:
    """Create the request pod `<job>-node-<index>`, which makes an autoscaler add a node for the job.

    Attributes:
        group: the node is asked of this group; the pod requires its labels and tolerates its taints.
        request: what the pods that are meant for the node request together.
        event: is sent once the pod exists; None if the user hears nothing.
    """

    job: JobKey
    job_uid: str
    index: int
    group: NodeGroup
    request: Resources
    event: EmitEvent | None = None

    @property
    def pod_name(self) -> str:
        """The name of the pod, unique in its namespace."""
        return f"{self.job.name}-node-{self.index}"


@dataclass(frozen=True, slots=True)
class WithdrawNodeRequest:
    """Delete a request pod at once, if it still has that UID: it runs nothing that needs time to end.

    Attributes:
        event: is sent once the pod is deleted; None if the user hears nothing.
    """

    job: JobKey
    job_uid: str
    pod: str
    pod_uid: str
    event: EmitEvent | None = None


@dataclass(frozen=True, slots=True)
class NewWorkload:
    """A Workload of Kueue that is to be made; see `edl.model.quota_trees.OwnedWorkload`."""

    index: int
    trainers: int
    digest: str


@dataclass(frozen=True, slots=True)
class ChangeWorkloads:
    """Make Workloads of Kueue for a job, and delete others.

    Attributes:
        queue: the LocalQueue of the new ones.
        priority_class: the WorkloadPriorityClass of the base; empty for none.
        flavors: the ResourceFlavors that the trainers above the minimum need: those of the base.
        new: those to be made.
        gone: (name, UID) of those to be deleted.
    """

    job: JobKey
    job_uid: str
    queue: str
    priority_class: str = ""
    flavors: tuple[str, ...] = ()
    new: tuple[NewWorkload, ...] = ()
    gone: tuple[tuple[str, str], ...] = ()


class Report(StrEnum):
    """What edl tells Kueue about a Workload."""

    READY = "PodsReady"  # all its pods are ready
    RELEASED = "Released"  # none of its pods is left, so that its quota is free
    FINISHED = "Finished"  # its job has ended


@dataclass(frozen=True, slots=True)
class WorkloadReport:
    """What edl tells Kueue about one Workload of a workload whose own controller makes the pods.

    Attributes:
        name, uid: of the Workload.
        reason, message: how the job ended; of a release, why Kueue evicted it.
    """

    name: str
    uid: str
    report: Report
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ReportWorkloads:
    """Tell Kueue what has become of the pods of Workloads."""

    job: JobKey
    job_uid: str
    reports: tuple[WorkloadReport, ...]


WorkloadAction = ChangeWorkloads | ReportWorkloads
"""What edl does with the Workloads of Kueue that it has made."""

Need = EnsureService | EnsureSecret | EnsureClaim | EnsurePodGroup
"""An object that must exist before the pods of a job are created."""

Action = (
    CreatePod
    | ProbePod
    | MarkPod
    | DeletePod
    | Need
    | PatchStatus
    | EmitEvent
    | DeleteJob
    | ResizeWorkload
    | ResizePod
    | RequestNode
    | WithdrawNodeRequest
    | WorkloadAction
)


class Result(StrEnum):
    """How an action ended."""

    DONE = "Done"  # the cluster changed as requested
    UNCHANGED = "Unchanged"  # the cluster was already as requested, or the object no longer exists
    CONFLICT = "Conflict"  # the object has changed: observe again
    REFUSED = "Refused"  # the API server rejected, and would refuse the same request again
    FAILED = "Failed"  # no answer, or a temporary error: try again later
    NOT_LEADER = "NotLeader"  # not attempted: another replica may be the writer


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one action.

    Attributes:
        reason: one PascalCase word (Forbidden, Invalid, Conflict, Timeout...); empty on success.
        message: the message of the API server.
        retry_after_s: how long the server asks edl to wait, in seconds; None if it does not ask.
        seconds: how long the action took.
    """

    action: Action
    result: Result
    reason: str = ""
    message: str = ""
    retry_after_s: float | None = None
    seconds: float = 0.0

    @property
    def is_ok(self) -> bool:
        """True if the cluster is now as the action requested."""
        return self.result in {Result.DONE, Result.UNCHANGED}
