"""Follows all objects of a kind by the API server's own stream of changes, so that nothing passes unseen."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tests.e2e.control_plane.kube import Kube, KubeError

Object = dict[str, Any]
WATCH_S = 1  # a watch is opened anew so often: the longest that the end takes
RETRY_S = 0.1


class Follower:
    """Hands on what there is and then every change; use as a context manager.

    Args:
        kube: whom to ask.
        kind: what to follow, in every namespace.
        look: is given all objects, at the start, at the end, and after the server was away; from any thread, one
            call at a time.
        see: is given each change: ADDED, MODIFIED or DELETED, and the object.
    """

    def __init__(
        self, kube: Kube, kind: str, look: Callable[[list[Object]], None], see: Callable[[str, Object], None]
    ) -> None:
        self._kube, self._kind, self._look, self._see = kube, kind, look, see
        self._version = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow-{kind}")

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if not self._version:
                    self._list()
                for change, body in self._kube.watch(self._kind, since=self._version, seconds=WATCH_S):
                    self._version = body["metadata"]["resourceVersion"]
                    self._see(change, body)
            except KubeError:  # a server that restarts is a test's business
                self._version = ""
                self._stop.wait(RETRY_S)

    def _list(self) -> None:
        objects, self._version = self._kube.list_at(self._kind)
        self._look(objects)

    def __enter__(self) -> Follower:
        self._list()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(KubeError):
            self._list()
