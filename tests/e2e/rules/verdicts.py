"""What kube-scheduler says about many pods at once, followed by a watch."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any

from tests.e2e.control_plane.kube import Kube, KubeError
from tests.worlds.waiting import PATIENCE

Object = dict[str, Any]
Named = tuple[str, str]
NOT_YET = ("waiting for", "not found", "not yet", "unbound immediate")
"""A refusal that only says that some object was not there yet."""


class Verdicts:
    """Follows all pods, and the claims for which the scheduler chooses a node; use as a context.

    Args:
        kube: the cluster.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._nodes: dict[Named, str | None] = {}
        self._why: dict[Named, str] = {}
        self._claims: dict[Named, str] = {}
        self._changed = threading.Condition()
        self._ends: list[Callable[[], None]] = []
        self._is_closing = False
        self._threads = [
            threading.Thread(target=self._follow, args=(kind, see))
            for kind, see in (("pods", self._see_pod), ("persistentvolumeclaims", self._see_claim))
        ]

    def __enter__(self) -> Verdicts:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing = True
        for end in self._ends:
            end()
        for thread in self._threads:
            thread.join()

    def of(self, name: Named, provisioned: str = "") -> str | None:
        """The node that the scheduler chose for a pod; empty if it found none, None if it has not decided.

        Args:
            name: its namespace and name.
            provisioned: the claim for which it chooses the node, and that nobody binds.
        """
        if found := self._claims.get((name[0], provisioned)):
            return found
        return self._nodes.get(name)

    def why(self, name: Named) -> str:
        """What the scheduler said last."""
        return self._why.get(name, "")

    def wait(self, is_done: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds, which is asked after each change; False if it does not in time."""
        with self._changed:
            return self._changed.wait_for(is_done, seconds * PATIENCE)

    def forget(self, names: Iterable[Named]) -> None:
        """Forget pods that are to be created again."""
        with self._changed:
            for name in names:
                self._nodes.pop(name, None)
                self._why.pop(name, None)

    def _follow(self, kind: str, see: Callable[[Object], None]) -> None:
        while not self._is_closing:
            items, since = self._kube.list_at(kind)
            self._see(see, items)
            with contextlib.suppress(KubeError):  # a watch ends when nothing has happened for a minute
                for change, body in self._kube.watch(kind, since=since, seconds=600, opened=self._ends.append):
                    if change != "DELETED":
                        self._see(see, [body])

    def _see(self, see: Callable[[Object], None], bodies: Iterable[Object]) -> None:
        with self._changed:
            for body in bodies:
                see(body)
            self._changed.notify_all()

    def _see_pod(self, pod: Object) -> None:
        name = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        if node := pod["spec"].get("nodeName"):
            self._nodes[name] = str(node)
            return
        for one in pod.get("status", {}).get("conditions") or ():
            if one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable":
                self._why[name] = one.get("message", "")
                if not any(words in self._why[name] for words in NOT_YET):
                    self._nodes[name] = ""

    def _see_claim(self, claim: Object) -> None:
        chosen = (claim["metadata"].get("annotations") or {}).get("volume.kubernetes.io/selected-node")
        if chosen:
            self._claims[claim["metadata"]["namespace"], claim["metadata"]["name"]] = chosen
