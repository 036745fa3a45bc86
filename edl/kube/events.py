"""Events on a TrainingJob or another workload, as `kubectl describe` shows them.

The same event of the same job is one object with a count. Its name contains a hash of its content, so a controller
that restarts in between counts the same object and does not create a second one.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from edl.api.v1 import API_VERSION, KIND
from edl.kube.client.api_errors import AlreadyExistsError
from edl.kube.client.session import ApiSession
from edl.kube.workloads.registry import ADAPTERS
from edl.model.actions import EmitEvent
from edl.model.times import text_of

COMPONENT = "edl-controller"
_MAX_MESSAGE = 1024


async def emit(session: ApiSession, action: EmitEvent, now_s: float, *, timeout_s: float) -> None:
    """Create the event, or increase its count if it exists.

    Raises:
        EdlError: the API server rejected, or did not respond.
    """
    body = event_body(action, now_s)
    collection = f"/api/v1/namespaces/{action.job.namespace}/events"
    try:
        await session.post(collection, body, timeout_s=timeout_s)
    except AlreadyExistsError:
        path = f"{collection}/{body['metadata']['name']}"
        stored: dict[str, Any] = msgspec.json.decode(await session.get(path, timeout_s=timeout_s))
        again = {"count": int(stored.get("count") or 1) + 1, "lastTimestamp": body["lastTimestamp"]}
        await session.patch(path, again, timeout_s=timeout_s)


def event_body(action: EmitEvent, now_s: float) -> dict[str, Any]:
    """Return the core/v1 Event; a message longer than the API allows is cut."""
    message = action.message
    if len(message) > _MAX_MESSAGE:
        message = message[: _MAX_MESSAGE - 3] + "..."
    content = f"{action.job_uid} {action.kind} {action.reason} {message}"
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    at = text_of(now_s)
    adapter = ADAPTERS.get(action.job.kind)
    version, kind = (API_VERSION, KIND) if adapter is None else adapter.api[:2]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{action.job.object_name}.{digest}", "namespace": action.job.namespace},
        "involvedObject": {
            "apiVersion": version,
            "kind": kind,
            "namespace": action.job.namespace,
            "name": action.job.object_name,
            "uid": action.job_uid,
        },
        "type": action.kind.value,
        "reason": action.reason,
        "message": message,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
