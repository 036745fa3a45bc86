"""Sends the requests of a resize: marks of surplus pods first, then the count."""

from __future__ import annotations

from typing import Any

from edl.errors import ConflictError
from edl.kube.client.api_errors import NotFoundError, RefusedError
from edl.kube.client.session import JSON_PATCH, MERGE_PATCH, ApiSession
from edl.kube.workloads.resize import ResizeRequest


async def send_resize(session: ApiSession, request: ResizeRequest, timeout_s: float) -> dict[str, Any]:
    """Send a resize and return the object as stored.

    A mark is taken away if the count was certainly not changed. If nobody knows, it stays: without it the owner of
    the pods may answer the resize with a restart of the whole job, and the next decision finds out.

    Raises:
        EdlError: a request failed.
    """
    for path in request.surplus:
        await _mark(session, path, request.mark, timeout_s)
    content_type = MERGE_PATCH if isinstance(request.patch, dict) else JSON_PATCH
    try:
        return await session.patch(request.path, request.patch, content_type=content_type, timeout_s=timeout_s)
    except (ConflictError, NotFoundError, RefusedError):
        for path in request.surplus:
            await _mark(session, path, request.unmark, timeout_s)
        raise


async def _mark(session: ApiSession, path: str, patch: list[dict[str, Any]], timeout_s: float) -> None:
    """Patch a pod, if it exists and belongs to the workload."""
    try:
        await session.patch(path, patch, content_type=JSON_PATCH, timeout_s=timeout_s)
    except NotFoundError:
        return
    except RefusedError as error:
        if error.code != 422:  # a test of the patch fails: the pod is somebody else's
            raise
