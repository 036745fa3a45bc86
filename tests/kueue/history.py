"""Everything that happens to pods and Workloads of a namespace, in the order in which the API server stored it.

The resource versions of one API server are one sequence over all kinds. So what was true at the same moment is known
exactly, and no sample misses anything.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from tests.e2e.control_plane.kube import Kube, KubeError
from tests.e2e.worlds import facts
from tests.kueue.programs import WORKLOADS
from tests.kueue.scene import Object, owner_of, true_of

KINDS = ("pods", WORKLOADS, "jobs", "events")
_WATCH_S = 86400
_RECENT = 500
"""So many changes are remembered after they were taken."""


@dataclass(frozen=True, slots=True)
class Change:
    """One object after a change.

    Attributes:
        version: its resource version.
        at_s: when it was seen, in monotonic seconds.
        body: None if the object is gone.
    """

    version: int
    at_s: float
    kind: str
    name: str
    body: Object | None


@dataclass
class Moment:
    """What exists at one moment, by name, without finished Workloads."""

    pods: dict[str, Object] = field(default_factory=dict)
    workloads: dict[str, Object] = field(default_factory=dict)

    def apply(self, change: Change) -> None:
        """Take a change into account."""
        known = {"pods": self.pods, WORKLOADS: self.workloads}.get(change.kind)
        if known is None:
            return
        if change.body is None or (change.kind == WORKLOADS and "Finished" in true_of(change.body)):
            known.pop(change.name, None)  # each growth leaves a finished Workload, and nobody asks for those
        else:
            known[change.name] = change.body

    def live(self, job: str) -> set[str]:
        """The UIDs of the pods of a job that have a node, have not ended, and are not being deleted."""
        return {
            pod["metadata"]["uid"]
            for pod in self.pods.values()
            if owner_of(pod) == job and is_live(pod) and pod["spec"].get("nodeName")
        }

    def held(self, workload: str) -> int:
        """For how many pods a Workload holds quota."""
        return held_by(self.workloads[workload])

    def reserved(self, job: str) -> int:
        """For how many pods of a job its Workloads hold quota; of the sizes of an elastic job the largest counts."""
        found = [one for one in self.workloads.values() if owner_of(one) == job]
        own = [held_by(one) for one in found if "paddlepaddle.org/workload-index" in _annotations(one)]
        return sum(own) if own else max(map(held_by, found), default=0)


class History:
    """The changes of one namespace; `Histories.of` makes it.

    Attributes:
        moment: what exists, as far as the changes were taken.
        last_s: when the last change was seen, in monotonic seconds; minus infinity before the first.
    """

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._recent: deque[tuple[float, str]] = deque(maxlen=_RECENT)
        self.moment, self.last_s = Moment(), float("-inf")

    def take(self) -> Iterator[Change]:
        """Each change since the last call, in the order of the API server; `moment` has it.

        It is to be called at rest: the watches of several kinds are not equally fast.
        """
        taken, self._changes = self._changes, []
        for change in sorted(taken, key=lambda change: change.version):
            self.moment.apply(change)
            yield change

    def note(self, change: Change) -> None:
        """Keep a change."""
        self.last_s = change.at_s
        self._changes.append(change)
        self._recent.append((change.at_s, f"{change.kind} {change.name}"))

    def changed_after(self, since_s: float) -> list[str]:
        """What has changed since then, the most often first, each with how often."""
        found = Counter(what for at_s, what in [*self._recent] if at_s > since_s)
        return [f"{what} ({times}x)" for what, times in found.most_common()]


class Histories:
    """Watches all namespaces from a thread for each kind, until the end of its `with` block.

    Args:
        kube: the cluster.
    """

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._kept: dict[str, History] = {}
        self._ends: list[Callable[[], None]] = []
        self._is_closed = False
        self._threads = []
        for kind in KINDS:
            _, since = kube.list_at(kind)
            thread = threading.Thread(target=self._follow, args=(kind, since), daemon=True)
            thread.start()
            self._threads.append(thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        for end in self._ends:
            end()
        for thread in self._threads:
            thread.join(10)

    def of(self, namespace: str) -> History:
        """What happens in a namespace from now on."""
        self._kept[namespace] = History()
        return self._kept[namespace]

    def _follow(self, kind: str, since: str) -> None:
        """Watch a kind; the API server ends the watches of a resource whose definition changes."""
        while not self._is_closed:
            with contextlib.suppress(KubeError):
                for verb, body in self._kube.watch(kind, since=since, seconds=_WATCH_S, opened=self._ends.append):
                    since = body["metadata"]["resourceVersion"]
                    self._note(kind, verb, body)
            time.sleep(0.01)

    def _note(self, kind: str, verb: str, body: Object) -> None:
        metadata = body["metadata"]
        if (history := self._kept.get(metadata.get("namespace", ""))) is not None:
            kept = None if verb == "DELETED" else body
            version = int(metadata["resourceVersion"])
            history.note(Change(version, time.monotonic(), kind, metadata["name"], kept))


def has_ended(pod: Object) -> bool:
    """True for a pod that has finished, so that it uses no quota."""
    return facts.is_finished(pod)


def is_live(pod: Object) -> bool:
    """True for a pod that has not ended and is not being deleted."""
    return not facts.is_finished(pod) and "deletionTimestamp" not in pod["metadata"]


def _annotations(body: Object) -> dict[str, Any]:
    return body["metadata"].get("annotations") or {}


def held_by(workload: Object) -> int:
    """For how many pods a Workload holds quota."""
    admission = (workload.get("status") or {}).get("admission") or {}
    if "QuotaReserved" not in true_of(workload):
        return 0
    granted = {one["name"]: one.get("count", 0) for one in admission.get("podSetAssignments") or ()}
    return sum(min(one["count"], granted.get(one["name"], 0)) for one in workload["spec"]["podSets"])
