"""Creates pods, and finds out what became of each creation that the API server has not answered.

Such a pod may exist, or may still come to exist. A decision that does not see it could create another one in its
place, under another name. So each of them is read again before the next snapshot. A pod that is there counts like one
whose creation was answered. A pod that is not there counts as absent only once the request cannot take effect any
more: edl lets the API server itself end the request after a time that is shorter than edl waits.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#request-timeouts
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from edl.clock import Clock
from edl.errors import EdlError, NotSyncedError, TemporaryError
from edl.kube.client.api_errors import NotFoundError, ServerError
from edl.kube.client.session import ApiSession

READ_AGAIN_S = 0.25
"""Pause between two reads of the same pod."""

_CUT_SHORT = frozenset({408, 502, 504})
"""Statuses of a server that did not wait for the end of the request: it may still take effect."""


@dataclass(slots=True)
class _Creation:
    ends_s: float  # the request takes no effect after this monotonic time
    next_read_s: float = 0.0


class PodCreations:
    """Creates pods, and remembers those whose creation has no answer.

    Args:
        session: the API server.
        clock: for the end of requests.
        found: called with each pod that was created or read, as the API server stores it.
        timeout_s: a request takes no effect so long after it was sent.

    Attributes:
        timeout_s: that time.
    """

    def __init__(
        self, session: ApiSession, clock: Clock, found: Callable[[dict[str, Any]], None], *, timeout_s: float
    ) -> None:
        self._session, self._clock, self._found, self.timeout_s = session, clock, found, timeout_s
        self._open: dict[tuple[str, str], _Creation] = {}

    async def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create a pod and return it as stored; an error that is no answer leaves the pod in doubt.

        Raises:
            AlreadyExistsError: a pod of that name exists.
            EdlError: see `ApiSession.post`.
        """
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        path = f"/api/v1/namespaces/{namespace}/pods?timeout={int(self.timeout_s)}s"
        ends_s = self._clock.monotonic_s() + self.timeout_s
        try:
            stored = await self._session.post(path, manifest, timeout_s=self.timeout_s)
        except ServerError as error:
            if error.code != 429:
                now_s = self._clock.monotonic_s()
                self._open[namespace, name] = _Creation(ends_s if error.code in _CUT_SHORT else now_s)
            raise
        except (TemporaryError, asyncio.CancelledError):
            self._open[namespace, name] = _Creation(ends_s)
            raise
        self._found(stored)
        return stored

    async def settle(self) -> None:
        """Read the pods in doubt.

        Raises:
            NotSyncedError: it is not known of one of them whether it exists.
        """
        if self._open:
            await asyncio.gather(*(self._read(key, creation) for key, creation in list(self._open.items())))
        for namespace, name in self._open:
            raise NotSyncedError(
                f"the API server has not answered whether it created pod {namespace}/{name}; edl reads the pod again"
            )

    async def _read(self, key: tuple[str, str], creation: _Creation) -> None:
        began_s = self._clock.monotonic_s()
        if began_s < min(creation.next_read_s, creation.ends_s):
            return
        creation.next_read_s = began_s + READ_AGAIN_S
        path = f"/api/v1/namespaces/{key[0]}/pods/{key[1]}"
        is_over = began_s >= creation.ends_s
        try:
            stored = msgspec.json.decode(await self._session.get(path, timeout_s=self.timeout_s))
        except NotFoundError:
            if is_over:
                self._open.pop(key, None)
            return
        except (EdlError, msgspec.DecodeError):
            return
        if is_over or not (stored.get("metadata") or {}).get("deletionTimestamp"):  # else it may be a predecessor
            self._open.pop(key, None)
        self._found(stored)
