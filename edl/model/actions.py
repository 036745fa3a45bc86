"""What the life cycle of a job can ask of the cluster, as data, and what came of it.

An action names everything that makes it conditional (the job's and the pod's UID), so that whoever carries it out can
refuse to touch an object that took the name of another. Nothing here does anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edl.model.names import JobKey, Role
from edl.model.status import JobStatus


class Intent(StrEnum):
    """Why we delete a pod, where no reason of a plan says it; stated on the pod before the deletion.

    The reasons of `model.Reason` (ServingNeedsRoom, MinUnsatisfied, Suspended, Finished...) are used as they are.
    """

    POD_FAILED = "PodFailed"  # with the number of the failure: "PodFailed/3"
    NODE_LOST = "NodeLost"
    RESTART = "Restart"
    REPLACED = "Replaced"
    MOVED = "Moved"
    JOB_FAILED = "JobFailed"


class EventKind(StrEnum):
    """`type` of an event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the pod `<job>-<role>-<index>`.

    Attributes:
        job_uid: the owner; the pod is not created for another job of the same name.
        node: where the plan means it to go; None leaves it to the scheduler alone.
        pinned: it may go nowhere else; see `pins`.
        expected: of a master: (epoch, positions done) that its journal must tell of; None where it may be empty.
        restarts_epoch: of a master: where its journal is lost it begins that epoch again, instead of refusing.
    """

    job: JobKey
    job_uid: str
    role: Role
    index: int
    node: str | None = None
    pinned: bool = False
    expected: tuple[int, int] | None = None
    restarts_epoch: bool = False

    @property
    def pod_name(self) -> str:
        """The name of the pod, which is its identity within the namespace."""
        return f"{self.job.name}-{self.role.value}-{self.index}"


@dataclass(frozen=True, slots=True)
class MarkPod:
    """State on a pod why it will be deleted, and delete nothing yet."""

    job: JobKey
    job_uid: str
    pod: str
    pod_uid: str
    intent: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """State the intent on a pod, then delete it if it still has that UID.

    Attributes:
        force: without grace, because no kubelet is there to end it.
        marked: the intent stands on the pod already.
    """

    job: JobKey
    job_uid: str
    pod: str
    pod_uid: str
    intent: str
    force: bool = False
    marked: bool = False


@dataclass(frozen=True, slots=True)
class EnsureService:
    """The headless service that gives the pods their names."""

    job: JobKey
    job_uid: str


@dataclass(frozen=True, slots=True)
class EnsureSecret:
    """The secret with the tokens of the job's master."""

    job: JobKey
    job_uid: str


@dataclass(frozen=True, slots=True)
class EnsureClaim:
    """The volume claim of the master's journal, where the job asks for one."""

    job: JobKey
    job_uid: str


@dataclass(frozen=True, slots=True)
class EnsurePodGroup:
    """Volcano's PodGroup of the minimum set, where the job asks for one."""

    job: JobKey
    job_uid: str


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Write the status, if the job still has that UID."""

    job: JobKey
    job_uid: str
    status: JobStatus


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Tell the user, once, what has changed."""

    job: JobKey
    job_uid: str
    kind: EventKind
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a job whose time after its end is over; its pods are collected with it."""

    job: JobKey
    job_uid: str


Need = EnsureService | EnsureSecret | EnsureClaim | EnsurePodGroup
"""What a job's pods need before they are created."""

Action = CreatePod | MarkPod | DeletePod | Need | PatchStatus | EmitEvent | DeleteJob


class Result(StrEnum):
    """How an action ended."""

    DONE = "Done"  # the world has changed as asked
    UNCHANGED = "Unchanged"  # the world was so already, or the object is gone
    CONFLICT = "Conflict"  # the object is another one now: observe again
    REFUSED = "Refused"  # the API server said no, and would say no again
    FAILED = "Failed"  # no answer, or a temporary one: try again later
    NOT_LEADER = "NotLeader"  # not attempted: another may be writing


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one action.

    Attributes:
        reason: a PascalCase word (Forbidden, Invalid, Conflict, Timeout...); empty where all went well.
        message: the API server's own words.
        retry_after_s: how long the server asks us to wait, in seconds, where it does.
        seconds: what it took.
    """

    action: Action
    result: Result
    reason: str = ""
    message: str = ""
    retry_after_s: float | None = None
    seconds: float = 0.0

    @property
    def is_ok(self) -> bool:
        """True where the world is now as the action wants it."""
        return self.result in {Result.DONE, Result.UNCHANGED}
