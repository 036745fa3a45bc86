"""What may happen to the pods of a job, and what a job answers where its spec says nothing.

The words are those of Volcano's job policies. Which pods an event is read from stands in `happenings`, and what an
action does in `lifecycle`.
"""

from __future__ import annotations

from enum import StrEnum


class JobEvent(StrEnum):
    """What a policy answers."""

    POD_FAILED = "PodFailed"
    POD_EVICTED = "PodEvicted"
    TASK_COMPLETED = "TaskCompleted"
    ANY = "Any"


class JobAction(StrEnum):
    """What a policy does; AbortJob ends in phase Failed with reason Aborted."""

    RESTART_JOB = "RestartJob"
    RESTART_POD = "RestartPod"
    COMPLETE_JOB = "CompleteJob"
    ABORT_JOB = "AbortJob"


def default_action(event: JobEvent, *, fault_tolerant: bool, of_trainers: bool) -> JobAction | None:
    """The answer of the mode; None does nothing.

    Gang mode restarts the job when a pod is lost, fault-tolerant mode the pod; in both, the completion of the
    trainers completes the job.
    """
    if event is JobEvent.TASK_COMPLETED:
        return JobAction.COMPLETE_JOB if of_trainers else None
    return JobAction.RESTART_POD if fault_tolerant else JobAction.RESTART_JOB
