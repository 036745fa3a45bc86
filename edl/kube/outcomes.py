"""What an error means for the action that failed with it: a result, a reason and a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edl.errors import ConfigError, ConflictError, EdlError, TemporaryError
from edl.kube.client.api_errors import NotFoundError, RefusedError
from edl.kube.client.calls import FencedError
from edl.model.actions import (
    Action,
    ChangeWorkloads,
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
    ReportWorkloads,
    RequestNode,
    ResizePod,
    ResizeWorkload,
    Result,
    WithdrawNodeRequest,
)
from edl.model.names import JobKey
from edl.model.pods import OVERDUE_S
from edl.model.status import Reason
from edl.model.times import seconds_of


def check_owner(found: Mapping[str, Any], what: str, job: JobKey, uid: str, now_s: float) -> None:
    """Return if an object that exists under the name of a new one is the job's own.

    Args:
        found: the object.
        what: its kind and name, for messages.
        job: the job that needs the name.
        uid: its UID.
        now_s: seconds since the epoch.

    Raises:
        ConflictError: the object is terminating.
        RefusedError: it belongs to somebody else, or is one of a former job that should have ended half a minute ago.
    """
    metadata = found.get("metadata") or {}
    owners = metadata.get("ownerReferences") or ()
    is_own = any(ref.get("controller") and ref.get("uid") == uid for ref in owners)
    if ends := metadata.get("deletionTimestamp"):
        ends_s = seconds_of(ends)
        if is_own or ends_s is None or now_s <= ends_s + OVERDUE_S:
            raise ConflictError(f"{what} is terminating")
        node = (found.get("spec") or {}).get("nodeName")
        raise RefusedError(
            f"job {job}: {what}{f' on node {node}' if node else ''} has a name that the job needs; it is not the"
            " job's own, and has been deleted, but not ended: remove its finalizers, or, once its node is off for"
            " certain, delete it with --force, or rename the job",
            code=409,
            reason=Reason.PODS_DO_NOT_END.value,
        )
    if not is_own:
        raise RefusedError(
            f"job {job}: {what} exists and does not belong to the job; delete it or rename the job",
            code=409,
            reason="NameTaken",
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
    """Return the message of the outcome: for a refusal, what the API server rejected and its own message."""
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
        case ChangeWorkloads() | ReportWorkloads():
            verb = "make or delete" if isinstance(action, ChangeWorkloads) else "write the status of"
            attempt = f"{verb} Workloads of job {action.job} (give edl the rights of deploy/kueue-trainingjobs)"
        case ResizeWorkload() | ResizePod():
            what = "number of pods" if isinstance(action, ResizeWorkload) else "CPU request of a trainer"
            attempt = f"set the {what} of {action.job}"
    return attempt
