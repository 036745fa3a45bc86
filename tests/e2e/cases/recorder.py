"""Follows a cluster by watches, and records what the simulator's meter records, so that the same code measures both.

Times are seconds since the scenario began.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from edl.model.names import JobKey
from edl.sim.batches.phases import phases_of
from edl.sim.meter import Recording, Sample
from edl.sim.scenario import JobGroup
from edl.sim.training import JobRun
from tests.e2e.cases.spans import SERVING, Spans
from tests.e2e.control_plane.kube import Kube
from tests.e2e.worlds import facts
from tests.e2e.worlds.follow import Follower

Object = dict[str, Any]
NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What counts of a pod."""

    role: str
    job: JobKey | None
    app: str
    cpu_milli: int
    created_s: float
    runs: bool = False
    ready: bool = False
    leaves: bool = False
    preempted: bool = False

    @property
    def is_live_trainer(self) -> bool:
        return self.job is not None and not self.leaves


class Recorder:
    """Records a cluster.

    Attributes:
        recording: what was seen since `begin`.
        runs: each job that was submitted, by its key.
        spans: how long pods took, since `begin`.
    """

    def __init__(self, kube: Kube, system_cores: float) -> None:
        self._kube, self._system = kube, system_cores
        self._lock = threading.Lock()
        self._pods: dict[str, _Seen] = {}
        self._targets: Counter[str] = Counter()
        self._began_s = time.monotonic()
        self.recording = Recording()
        self.runs: dict[JobKey, JobRun] = {}
        self.spans = Spans()

    @contextmanager
    def following(self) -> Iterator[Recorder]:
        """Record while the context lasts."""
        with Follower(self._kube, "pods", self._look, self._change):
            yield self

    def begin(self) -> None:
        """The scenario begins: second 0, with what runs already."""
        with self._lock:
            self._began_s, self.recording, self.spans = time.monotonic(), Recording(), Spans()
            self._sample()

    def end(self) -> Recording:
        """The scenario ends: what was recorded."""
        with self._lock:
            self._sample()
            return self.recording

    def now_s(self) -> float:
        """Seconds since the scenario began."""
        return time.monotonic() - self._began_s

    def submitted(self, group: JobGroup, name: str) -> None:
        """A job is created now."""
        key, now_s = JobKey(NAMESPACE, name), self.now_s()
        with self._lock:
            self.runs[key] = JobRun(key, name, group, phases_of(group), now_s, fixed_left=0, since_s=now_s)

    def removed(self, name: str) -> None:
        """A job is deleted now."""
        with self._lock:
            self.runs[JobKey(NAMESPACE, name)].ended_s = self.now_s()

    def scaled(self, name: str, replicas: int) -> None:
        """A Deployment is to have so many replicas from now on."""
        with self._lock:
            self._targets[name] = replicas
            self._sample()

    def ready(self) -> int:
        """Serving pods that are ready."""
        with self._lock:
            return self._ready()

    def _look(self, pods: list[Object]) -> None:
        with self._lock:
            present = {pod["metadata"]["uid"] for pod in pods}
            for uid in [uid for uid in self._pods if uid not in present]:
                self._see(uid, None)
            for pod in pods:
                self._see(pod["metadata"]["uid"], pod)

    def _change(self, change: str, pod: Object) -> None:
        with self._lock:
            self._see(pod["metadata"]["uid"], None if change == "DELETED" else pod)

    def _see(self, uid: str, pod: Object | None) -> None:
        before = self._pods.pop(uid, None)
        after = None if pod is None else _seen(pod, before.created_s if before else self.now_s())
        if after is not None:
            self._pods[uid] = after
        one = after or before
        if one is not None:
            self.spans.see(uid, pod, one.role, self.now_s())
        if one is None or before == after:
            return
        if one.job is not None:
            self._note_trainer(one.job, before, after)
        elif one.app and after is not None and after.runs and not (before and before.runs):
            self.recording.waits_s.append(self.now_s() - after.created_s)
        self._sample()

    def _note_trainer(self, job: JobKey, before: _Seen | None, after: _Seen | None) -> None:
        now_s, run = self.now_s(), self.runs.get(job)
        ran, runs = bool(before and before.runs), bool(after and after.runs)
        leaves = bool(before and before.is_live_trainer) and not (after and after.is_live_trainer)
        if ran != runs:
            self.recording.count_trainer(job, now_s, 1 if runs else -1)
        if leaves and ran:
            self.recording.deleted_s.append(now_s)
        if run is None or run.is_over:
            return
        if run.first_running_s is not None:
            if leaves and after is not None and after.preempted:
                self.recording.resizes.note(job, now_s, grows=False, is_forced=True)
                self.recording.preempted += 1
            elif leaves or before is None:
                self.recording.resizes.note(job, now_s, grows=before is None)
        if runs and run.first_running_s is None:
            run.first_running_s = now_s

    def _ready(self) -> int:
        return sum(pod.ready for pod in self._pods.values() if pod.app)

    def _sample(self) -> None:
        running = [pod for pod in self._pods.values() if pod.runs]
        cores = self._system + sum(pod.cpu_milli for pod in running) / 1000
        trainers = sum(pod.job is not None for pod in running)
        sample = Sample(self.now_s(), cores, cores, self._targets.total(), self._ready(), trainers, cores)
        self.recording.put(sample)


def _seen(pod: Object, created_s: float) -> _Seen:
    labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
    role = labels.get(facts.ROLE_LABEL, SERVING)
    return _Seen(
        role=role,
        job=JobKey(NAMESPACE, labels[facts.JOB_LABEL]) if role == "trainer" else None,
        app="" if facts.JOB_LABEL in labels else labels.get("app", ""),
        cpu_milli=facts.request(pod).get("cpu", 0),
        created_s=created_s,
        runs=pod["status"].get("phase") == "Running",
        ready=facts.is_ready(pod),
        leaves=facts.is_terminating(pod) or facts.is_finished(pod),
        preempted=any(
            condition["type"] == "DisruptionTarget" and condition["status"] == "True"
            for condition in pod["status"].get("conditions") or ()
        ),
    )
