"""What an error means for the action that failed with it: a result, a reason and a message."""

from __future__ import annotations

from edl.errors import ConfigError, ConflictError, EdlError, TemporaryError
from edl.kube.client.api_errors import NotFoundError, RefusedError
from edl.kube.client.session import FencedError
from edl.model.actions import (
    Action,
    CreatePod,
    DeleteJob,
    DeletePod,
    EmitEvent,
    EnsureClaim,
    EnsurePodGroup,
    EnsureSecret,
    EnsureService,
    MarkPod,
    Need,
    PatchStatus,
    ProbePod,
    RequestNode,
    ResizePod,
    ResizeWorkload,
    Result,
    WithdrawNodeRequest,
)


def result_of(action: Action, error: EdlError) -> tuple[Result, str]:
    """Return the result of an action that failed with the error, and the reason in PascalCase."""
    reason = type(error).__name__.removesuffix("Error")
    result = Result.REFUSED
    if isinstance(error, TemporaryError):
        result, reason = Result.FAILED, "Unavailable"
    elif isinstance(error, ConflictError):
        result, reason = Result.CONFLICT, "Conflict"
    elif isinstance(error, FencedError):
        result, reason = Result.NOT_LEADER, "NotLeader"
    elif isinstance(error, ConfigError):
        reason = "InvalidSpec"
    elif isinstance(error, RefusedError):
        reason = error.reason or f"Http{error.code}"
        creates = isinstance(action, CreatePod | ProbePod | Need)
        if isinstance(error, NotFoundError) and not creates:
            result = Result.CONFLICT
        elif error.code == 401:
            result = Result.FAILED
    return result, reason


def message_of(action: Action, error: EdlError) -> str:
    """Return the message of the outcome: for a refusal, what the API server refused and its own message."""
    if not isinstance(error, RefusedError) or not error.answer:
        return str(error)
    return f"the API server refused to {_attempt(action)}: {error.answer}"


_KINDS = {
    EnsureService: "the Service",
    EnsureSecret: "the Secret",
    EnsureClaim: "the PersistentVolumeClaim",
    EnsurePodGroup: "the PodGroup",
}


def _attempt(action: Action) -> str:
    """Describe the action; a pod to create only by its role, so that all trainers have the same message."""
    match action:
        case CreatePod() | ProbePod():
            attempt = f"create a {action.role.value} pod of job {action.job}"
        case MarkPod():
            attempt = f"annotate pod {action.job.namespace}/{action.pod}"
        case DeletePod():
            attempt = f"delete pod {action.job.namespace}/{action.pod}"
        case EnsureService() | EnsureSecret() | EnsureClaim() | EnsurePodGroup():
            attempt = f"create {_KINDS[type(action)]} of job {action.job}"
        case PatchStatus():
            attempt = f"write the status of job {action.job}"
        case EmitEvent():
            attempt = f"write an event of job {action.job}"
        case DeleteJob():
            attempt = f"delete job {action.job}"
        case RequestNode():
            attempt = f"create request pod {action.job.namespace}/{action.pod_name}"
        case WithdrawNodeRequest():
            attempt = f"delete request pod {action.job.namespace}/{action.pod}"
        case ResizeWorkload() | ResizePod():
            what = "number of pods" if isinstance(action, ResizeWorkload) else "CPU request of a trainer"
            attempt = f"set the {what} of {action.job}"
    return attempt
