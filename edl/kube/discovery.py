"""What the API server can do, as its resource lists say: whether running pods can be resized in place."""

from __future__ import annotations

import msgspec

from edl.clock import Clock
from edl.errors import EdlError
from edl.kube.client.session import ApiSession

ASKED_AGAIN_AFTER_S = 600.0
"""An API server is upgraded while the controller runs."""
RETRIED_AFTER_S = 30.0
TIMEOUT_S = 4.5


class _Resource(msgspec.Struct):
    name: str = ""
    verbs: list[str] = []


class _ResourceList(msgspec.Struct):
    resources: list[_Resource] = []


class PodResizing:
    """Whether the API server has the subresource `resize` of pods; asked rarely.

    Args:
        session: the API server.
        clock: for the time between two questions.
    """

    def __init__(self, session: ApiSession, clock: Clock) -> None:
        self._session, self._clock = session, clock
        self._is_there, self._due_s = False, float("-inf")

    async def is_there(self) -> bool:
        """True if pods can be resized; the last answer if the server does not answer now."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._due_s:
            try:
                raw = await self._session.get("/api/v1", timeout_s=TIMEOUT_S)
                found = msgspec.json.decode(raw, type=_ResourceList).resources
                self._is_there = any(one.name == "pods/resize" and "patch" in one.verbs for one in found)
                self._due_s = now_s + ASKED_AGAIN_AFTER_S
            except (EdlError, msgspec.MsgspecError):
                self._due_s = now_s + RETRIED_AFTER_S
        return self._is_there
