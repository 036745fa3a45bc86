"""Watches every pod while a test runs, and remembers what became of each.

A pod takes at least half a second to go on these clusters, and the log looks ten times a second, so nothing that
matters passes unseen; a test that wants to be sure compares the log's first and last look.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from types import TracebackType
from typing import Any

from tests.e2e import world
from tests.e2e.control_plane.kube import Kube, KubeError

Object = dict[str, Any]
LOOK_EVERY_S = 0.1


class PodLog:
    """A thread that looks at all pods; use as a context manager.

    Attributes:
        lowest: per job, the least number of live trainers seen since it first ran at its minimum.
        most: per job, the largest number of live trainers ever seen.
    """

    def __init__(self, kube: Kube, minimums: dict[str, int] | None = None) -> None:
        self._kube = kube
        self._minimums = minimums if minimums is not None else {}
        self._ended: dict[str, Object] = {}
        self._seen: dict[str, Object] = {}
        self._forgotten: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pod-log")
        self.lowest: dict[str, int] = {}
        self.most: dict[str, int] = defaultdict(int)

    def expect(self, job: str, minimum: int) -> None:
        """Watch that job's count from the moment it first has that many."""
        self._minimums[job] = minimum

    def forget(self, job: str) -> None:
        """The job is being deleted: its count may fall, and what ends with it has no other cause."""
        self._minimums.pop(job, None)
        self._forgotten.add(job)

    def ended_trainers(self) -> list[Object]:
        """Every trainer that anyone asked to go, or that vanished, in the order of their names."""
        return sorted(self._ended.values(), key=lambda pod: str(pod["metadata"]["name"]))

    def causes(self) -> Counter[str]:
        """How many trainers ended for which cause, in the words of `cause_of_end`."""
        return Counter(cause_of_end(pod) for pod in self.ended_trainers())

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            try:
                self._look(self._kube.list("pods"))
            except KubeError:
                continue  # a server that restarts is a test's business, not the log's

    def _look(self, pods: list[Object]) -> None:
        now = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid, pod in (self._seen | now).items():
            is_trainer = (pod["metadata"].get("labels") or {}).get(world.ROLE_LABEL) == "trainer"
            if (
                is_trainer
                and self._is_of_interest(pod)
                and (uid not in now or world.is_terminating(pod))
                and not world.is_finished(pod)
            ):
                self._ended[uid] = pod
        self._seen = now
        for job, minimum in list(self._minimums.items()):
            count = len(world.trainers(pods, job))
            self.most[job] = max(self.most[job], count)
            if job in self.lowest or count >= minimum:
                self.lowest[job] = min(self.lowest.get(job, count), count)

    def _is_of_interest(self, pod: Object) -> bool:
        return pod["metadata"]["labels"].get(world.JOB_LABEL) not in self._forgotten

    def __enter__(self) -> PodLog:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()


def cause_of_end(pod: Object) -> str:
    """Who ended a pod, by what stands on it: `scheduler`, `controller: <intent>`, another disruption, or `other`."""
    if intent := (pod["metadata"].get("annotations") or {}).get(world.INTENT):
        return f"controller: {intent}"
    for condition in pod["status"].get("conditions") or []:
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return "scheduler" if condition["reason"] == "PreemptionByScheduler" else str(condition["reason"])
    return "other"
