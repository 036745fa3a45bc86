"""Events as the components of Kubernetes write them, counted if they repeat, and lost if the API server is away."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from edl.errors import EdlError
from edl.kube.client.session import ApiSession
from edl.sandbox.objects import name_of, namespace_of, now_text

Object = dict[str, Any]
NORMAL, WARNING = "Normal", "Warning"
_MAX_MESSAGE = 1024
_TIMEOUT_S = 5.0


class EventRecorder:
    """Writes events beside the work that they are about.

    Args:
        session: the API server.
        component: who writes, such as `kubelet`.
        host: the node; empty if it is none.
    """

    def __init__(self, session: ApiSession, component: str, host: str = "") -> None:
        self._session, self._component, self._host = session, component, host
        self._counts: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def emit(self, about: Object, kind: str, reason: str, message: str, *, host: str = "") -> None:
        """Write an event soon.

        Args:
            about: the object.
            kind: NORMAL or WARNING.
            reason: one word.
            message: a sentence.
            host: the node, if it is another than that of the recorder.
        """
        task = asyncio.create_task(self._write(about, kind, reason, message[:_MAX_MESSAGE], host or self._host))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Drop what is not written yet."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self, about: Object, kind: str, reason: str, message: str, host: str) -> None:
        namespace = namespace_of(about) or "default"
        content = f"{about['metadata'].get('uid')} {kind} {reason} {message}"
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        name = f"{name_of(about)}.{digest}"
        self._counts[name] = count = self._counts.get(name, 0) + 1
        collection = f"/api/v1/namespaces/{namespace}/events"
        try:
            if count > 1:
                again = {"count": count, "lastTimestamp": now_text()}
                await self._session.patch(f"{collection}/{name}", again, timeout_s=_TIMEOUT_S)
            else:
                body = self._body(about, kind, reason, message, host)
                body["metadata"] = {"name": name, "namespace": namespace}
                await self._session.post(collection, body, timeout_s=_TIMEOUT_S)
        except EdlError:
            return

    def _body(self, about: Object, kind: str, reason: str, message: str, host: str) -> Object:
        at = now_text()
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "involvedObject": {
                "apiVersion": about.get("apiVersion") or "v1",
                "kind": about.get("kind") or "Pod",
                "namespace": namespace_of(about),
                "name": name_of(about),
                "uid": about["metadata"].get("uid", ""),
                "resourceVersion": about["metadata"].get("resourceVersion", ""),
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": self._component, **({"host": host} if host else {})},
            "reportingComponent": self._component,
            "reportingInstance": host,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
