"""The pods of DaemonSets by node: which DaemonSet has one there, and what those request that wait for the node."""

from __future__ import annotations

from collections import Counter

from edl.kube.translate.daemonsets import DaemonKey
from edl.model.pods import Pod
from edl.model.resources import Resources

Place = tuple[str, str, str]
"""The place of a pod in the book: its namespace, its name, and the namespace under which it is stored."""


class DaemonBook:
    """The pods of DaemonSets in one cluster.

    Attributes:
        touched: the nodes that such pods have reached or left, or wait for, since they were taken last.
    """

    def __init__(self) -> None:
        self.touched: set[str] = set()
        self._reached: dict[Place, tuple[DaemonKey, str]] = {}
        self._reaching: Counter[tuple[DaemonKey, str]] = Counter()  # how many pods each of these has
        self._awaited: dict[str, dict[Place, tuple[DaemonKey, Resources]]] = {}  # by node, pods to come
        self._awaiting: dict[Place, str] = {}

    def take_touched(self) -> set[str]:
        """Return `touched`, and clear it."""
        touched, self.touched = self.touched, set()
        return touched

    def has_reached(self, daemon: DaemonKey, node: str) -> bool:
        """Return True if a pod of the DaemonSet is bound to the node, or nominated for it."""
        return (daemon, node) in self._reaching

    def awaited_on(self, node: str) -> dict[DaemonKey, Resources]:
        """Add up, by DaemonSet, the requests of its pods that wait for the node."""
        found: dict[DaemonKey, Resources] = {}
        for daemon, request in self._awaited.get(node, {}).values():
            found[daemon] = found.get(daemon, Resources()) + request
        return found

    def put(self, place: Place, daemon: DaemonKey, pod: Pod) -> None:
        """Add a pod of a DaemonSet; the book must not contain the pod yet."""
        if node := pod.node or pod.nominated:
            self._reached[place] = (daemon, node)
            self._reaching[daemon, node] += 1
            self.touched.add(node)
        elif not pod.terminating and (node := pod.shape.only_node):
            self._awaiting[place] = node
            self._awaited.setdefault(node, {})[place] = (daemon, pod.shape.request)
            self.touched.add(node)

    def drop(self, place: Place) -> None:
        """Forget a pod, if it is there."""
        if (reached := self._reached.pop(place, None)) is not None:
            self.touched.add(reached[1])
            self._reaching[reached] -= 1
            if not self._reaching[reached]:
                del self._reaching[reached]
        if (awaited := self._awaiting.pop(place, None)) is not None:
            self.touched.add(awaited)
            del self._awaited[awaited][place]
            if not self._awaited[awaited]:
                del self._awaited[awaited]
