"""Records when each pod was created and deleted while a test runs, and by whom. Times are monotonic seconds."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, defaultdict
from typing import Any

from tests.e2e.control_plane.kube import Kube
from tests.e2e.worlds import facts
from tests.e2e.worlds.follow import Follower

Object = dict[str, Any]


class PodLog:
    """Use it as a context manager; when it ends, it has seen every earlier change.

    Attributes:
        lowest: for each job, the least number of live trainers since it first had its minimum.
        most: for each job, the largest number of live trainers.
        created: when each trainer was created, by uid; not those that existed at the start.
        made: how many trainers each job had created.
        ended: when each trainer was first seen terminating or gone, by uid.
        fixed_ended: for masters and pservers, by uid: the last object, and when it first terminated or was gone.
        changed: when any pod last changed.
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
        self.made: Counter[str] = Counter()
        self.ended: dict[str, float] = {}
        self.fixed_ended: dict[str, tuple[float, Object]] = {}
        self.changed = time.monotonic()

    def expect(self, job: str, min_trainers: int) -> None:
        """Record the lowest count of that job once it first has that many trainers."""
        with self._lock:
            self._minimums[job] = min_trainers
            self._count(job)

    def forget(self, job: str) -> None:
        """The job is being deleted: ignore its count and the end of its pods from now on."""
        with self._lock:
            self._minimums.pop(job, None)
            self._forgotten.add(job)

    def ended_trainers(self, since: float = 0.0, until: float = math.inf) -> list[Object]:
        """Every trainer that was deleted or vanished in that time, in the order of their names."""
        with self._lock:
            ended = [self._last_words[uid] for uid, at in self.ended.items() if since <= at <= until]
        return sorted(ended, key=lambda pod: str(pod["metadata"]["name"]))

    def ended_of(self, job: str) -> list[tuple[float, Object]]:
        """Every trainer of a job that was deleted or vanished, with the time of that, in that order."""
        with self._lock:
            ended = [(at, self._last_words[uid]) for uid, at in self.ended.items()]
        mine = [(at, pod) for at, pod in ended if pod["metadata"]["labels"].get(facts.JOB_LABEL) == job]
        return sorted(mine, key=lambda end: end[0])

    def causes(self, since: float = 0.0, until: float = math.inf) -> Counter[str]:
        """The number of trainers deleted in that time, by cause (`cause_of_end`)."""
        return Counter(cause_of_end(pod) for pod in self.ended_trainers(since, until))

    def ready(self, app: str) -> list[tuple[float, int]]:
        """(time, number of ready pods with that label `app`) for each change."""
        with self._lock:
            return list(self._series[app])

    def _look(self, pods: list[Object]) -> None:
        """Start with all existing pods; a pod that is missing has vanished meanwhile."""
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
                self.made[pod["metadata"]["labels"].get(facts.JOB_LABEL, "")] += 1
            self._see(pod, is_gone=change == "DELETED")

    def _see(self, pod: Object, *, is_gone: bool) -> None:
        self.changed = time.monotonic()
        uid, labels = pod["metadata"]["uid"], pod["metadata"].get("labels") or {}
        self._pods[uid] = pod
        if is_gone:
            del self._pods[uid]
        if _role(pod) == "trainer":
            job = labels.get(facts.JOB_LABEL, "")
            leaves = is_gone or facts.is_terminating(pod)
            if leaves and job not in self._forgotten and not facts.is_finished(pod):
                self.ended.setdefault(uid, time.monotonic())
                self._last_words[uid] = pod
            _put(self._live[job], uid, is_in=not leaves and not facts.is_finished(pod))
            self._count(job)
        if _role(pod) in {"master", "pserver"} and (is_gone or facts.is_terminating(pod)):
            self.fixed_ended.setdefault(uid, (time.monotonic(), pod))
        if app := labels.get("app"):
            _put(self._ready[app], uid, is_in=not is_gone and facts.is_ready(pod))
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

    def __exit__(self, *_: object) -> None:
        self._follower.__exit__()


def _role(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(facts.ROLE_LABEL, ""))


def _put(members: set[str], uid: str, *, is_in: bool) -> None:
    if is_in:
        members.add(uid)
    else:
        members.discard(uid)


def cause_of_end(pod: Object) -> str:
    """Who deleted a pod, by its own fields: `scheduler`, `controller: INTENT`, another disruption, or `other`."""
    if intent := facts.intent_of(pod):
        return f"controller: {intent}"
    for condition in pod["status"].get("conditions") or []:
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return "scheduler" if condition["reason"] == "PreemptionByScheduler" else str(condition["reason"])
    return "other"
