"""Follows every pod while a test runs, and remembers what became of each. Times are monotonic seconds."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, defaultdict
from types import TracebackType
from typing import Any

from tests.e2e import world
from tests.e2e.control_plane.kube import Kube
from tests.e2e.follow import Follower

Object = dict[str, Any]


class PodLog:
    """Use as a context manager; at its end it has seen all that happened before.

    Attributes:
        lowest: per job, the least number of live trainers seen since it first had its minimum.
        most: per job, the largest number of live trainers ever seen.
        created: when each trainer was created, by uid, but for those that were there at the start.
        ended: when each trainer was first seen on its way out, by uid.
        fixed_ended: masters and pservers as they were last seen, and when each was first seen on its way out, by uid.
        changed: when any pod was last seen to change.
    """

    def __init__(self, kube: Kube, minimums: dict[str, int] | None = None) -> None:
        self._minimums = dict(minimums or {})
        self._pods: dict[str, Object] = {}
        self._last_words: dict[str, Object] = {}
        self._live: defaultdict[str, set[str]] = defaultdict(set)
        self._ready: defaultdict[str, set[str]] = defaultdict(set)
        self._series: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        self._forgotten: set[str] = set()
        self._lock = threading.Lock()
        self._follower = Follower(kube, "pods", self._look, self._change)
        self.lowest: dict[str, int] = {}
        self.most: dict[str, int] = defaultdict(int)
        self.created: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.fixed_ended: dict[str, tuple[float, Object]] = {}
        self.changed = time.monotonic()

    def expect(self, job: str, min_trainers: int) -> None:
        """Watch that job's count from the moment it first has that many."""
        with self._lock:
            self._minimums[job] = min_trainers
            self._count(job)

    def forget(self, job: str) -> None:
        """The job is being deleted: its count may fall, and what ends with it has no other cause."""
        with self._lock:
            self._minimums.pop(job, None)
            self._forgotten.add(job)

    def ended_trainers(self, since: float = 0.0, until: float = math.inf) -> list[Object]:
        """Every trainer that anyone asked to go in that time, or that vanished, in the order of their names."""
        with self._lock:
            ended = [self._last_words[uid] for uid, at in self.ended.items() if since <= at <= until]
        return sorted(ended, key=lambda pod: str(pod["metadata"]["name"]))

    def ended_of(self, job: str) -> list[tuple[float, Object]]:
        """Every trainer of a job that anyone asked to go, or that vanished, and when that was seen, in that order."""
        with self._lock:
            ended = [(at, self._last_words[uid]) for uid, at in self.ended.items()]
        mine = [(at, pod) for at, pod in ended if pod["metadata"]["labels"].get(world.JOB_LABEL) == job]
        return sorted(mine, key=lambda end: end[0])

    def causes(self, since: float = 0.0, until: float = math.inf) -> Counter[str]:
        """How many trainers ended in that time for which cause, in the words of `cause_of_end`."""
        return Counter(cause_of_end(pod) for pod in self.ended_trainers(since, until))

    def ready(self, app: str) -> list[tuple[float, int]]:
        """How many pods with that label `app` were ready from which time on."""
        with self._lock:
            return list(self._series[app])

    def _look(self, pods: list[Object]) -> None:
        """Begin with what there is; what has vanished while nobody looked is gone."""
        present = {pod["metadata"]["uid"] for pod in pods}
        with self._lock:
            for pod in [pod for uid, pod in self._pods.items() if uid not in present]:
                self._see(pod, is_gone=True)
            for pod in pods:
                self._see(pod, is_gone=False)

    def _change(self, change: str, pod: Object) -> None:
        with self._lock:
            if change == "ADDED" and _role(pod) == "trainer":
                self.created[pod["metadata"]["uid"]] = time.monotonic()
            self._see(pod, is_gone=change == "DELETED")

    def _see(self, pod: Object, *, is_gone: bool) -> None:
        self.changed = time.monotonic()
        uid, labels = pod["metadata"]["uid"], pod["metadata"].get("labels") or {}
        self._pods[uid] = pod
        if is_gone:
            del self._pods[uid]
        if _role(pod) == "trainer":
            job = labels.get(world.JOB_LABEL, "")
            leaves = is_gone or world.is_terminating(pod)
            if leaves and job not in self._forgotten and not world.is_finished(pod):
                self.ended.setdefault(uid, time.monotonic())
                self._last_words[uid] = pod
            _put(self._live[job], uid, is_in=not leaves and not world.is_finished(pod))
            self._count(job)
        if _role(pod) in {"master", "pserver"} and (is_gone or world.is_terminating(pod)):
            self.fixed_ended.setdefault(uid, (time.monotonic(), pod))
        if app := labels.get("app"):
            _put(self._ready[app], uid, is_in=not is_gone and world.is_ready(pod))
            self._series[app].append((time.monotonic(), len(self._ready[app])))

    def _count(self, job: str) -> None:
        if job not in self._minimums:
            return
        count = len(self._live[job])
        self.most[job] = max(self.most[job], count)
        if job in self.lowest or count >= self._minimums[job]:
            self.lowest[job] = min(self.lowest.get(job, count), count)

    def __enter__(self) -> PodLog:
        self._follower.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._follower.__exit__(kind, error, trace)


def _role(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(world.ROLE_LABEL, ""))


def _put(members: set[str], uid: str, *, is_in: bool) -> None:
    if is_in:
        members.add(uid)
    else:
        members.discard(uid)


def cause_of_end(pod: Object) -> str:
    """Who ended a pod, by what stands on it: `scheduler`, `controller: <intent>`, another disruption, or `other`."""
    if intent := (pod["metadata"].get("annotations") or {}).get(world.INTENT):
        return f"controller: {intent}"
    for condition in pod["status"].get("conditions") or []:
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return "scheduler" if condition["reason"] == "PreemptionByScheduler" else str(condition["reason"])
    return "other"
