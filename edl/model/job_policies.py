"""The events of a job's pods, the actions that a policy can take, and the default action of each mode.

Names and meanings follow Volcano's job policies. `edl.lifecycle.pod_events` detects the events, and
`edl.lifecycle.desired_state` carries the actions out.
"""

from __future__ import annotations

from enum import StrEnum


class JobEvent(StrEnum):
    """The events of pods that a policy can react to."""

    POD_FAILED = "PodFailed"
    POD_EVICTED = "PodEvicted"
    TASK_COMPLETED = "TaskCompleted"
    ANY = "Any"


class JobAction(StrEnum):
    """The actions that a policy can take; AbortJob ends the job in phase Failed with reason Aborted."""

    RESTART_JOB = "RestartJob"
    RESTART_POD = "RestartPod"
    COMPLETE_JOB = "CompleteJob"
    ABORT_JOB = "AbortJob"


def default_action(event: JobEvent, *, fault_tolerant: bool, of_trainers: bool) -> JobAction | None:
    """The action if no policy of the spec applies; None does nothing.

    When a pod is lost, gang mode restarts the job and fault-tolerant mode restarts the pod. In both modes the
    completion of the trainers completes the job.
    """
    if event is JobEvent.TASK_COMPLETED:
        return JobAction.COMPLETE_JOB if of_trainers else None
    return JobAction.RESTART_POD if fault_tolerant else JobAction.RESTART_JOB
