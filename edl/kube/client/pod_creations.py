"""Creates pods in requests that end by themselves.

A creation without an answer may have taken effect, or may still do so. edl asks for the same pod again before it
creates another one in its place (`controller.core`), and the API server itself ends a request after a time that is
shorter than edl waits for it: so none takes effect long after edl stopped waiting for it.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#request-timeouts
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edl.kube.client.session import ApiSession


class PodCreations:
    """Creates pods.

    Args:
        session: the API server.
        found: called with each pod that was created, as the API server stores it.
        timeout_s: how long edl waits for an answer; the API server is told to take a little less.
    """

    def __init__(self, session: ApiSession, found: Callable[[dict[str, Any]], None], *, timeout_s: float) -> None:
        self._session, self._found, self.timeout_s = session, found, timeout_s

    async def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create a pod and return it as stored.

        Raises:
            AlreadyExistsError: a pod of that name exists.
            EdlError: see `ApiSession.post`.
        """
        path = f"/api/v1/namespaces/{manifest['metadata']['namespace']}/pods?timeout={int(self.timeout_s)}s"
        stored = await self._session.post(path, manifest, timeout_s=self.timeout_s)
        self._found(stored)
        return stored
