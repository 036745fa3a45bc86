"""Follows all objects of a kind by a watch, so that no change is missed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from tests.e2e.control_plane.kube import Kube, KubeError

Object = dict[str, Any]
WATCH_S = 60
RETRY_S = 0.1


class Follower:
    """Reports all objects and then every change; use it as a context manager.

    Args:
        kube: the client.
        kind: what to follow, in every namespace.
        look: called with all objects, at the start, at the end, and if the watch must be restarted from a list.
        see: called with each change: ADDED, MODIFIED or DELETED, and the object.
    """

    def __init__(
        self, kube: Kube, kind: str, look: Callable[[list[Object]], None], see: Callable[[str, Object], None]
    ) -> None:
        self._kube, self._kind, self._look, self._see = kube, kind, look, see
        self._version = ""
        self._hang_up: Callable[[], None] = lambda: None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow-{kind}")

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if not self._version:
                    self._list()
                for change, body in self._watch():
                    self._version = body["metadata"]["resourceVersion"]
                    self._see(change, body)
            except KubeError as error:  # some tests restart the API server or keep it busy
                if error.code == HTTPStatus.GONE:
                    self._version = ""
                self._stop.wait(RETRY_S)

    def _watch(self) -> Iterator[tuple[str, Object]]:
        return self._kube.watch(self._kind, since=self._version, seconds=WATCH_S, opened=self._opened)

    def _opened(self, hang_up: Callable[[], None]) -> None:
        self._hang_up = hang_up
        if self._stop.is_set():
            hang_up()

    def _list(self) -> None:
        objects, self._version = self._kube.list_at(self._kind)
        self._look(objects)

    def __enter__(self) -> Follower:
        self._list()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._hang_up()
        self._thread.join()
        with contextlib.suppress(KubeError):
            self._list()
