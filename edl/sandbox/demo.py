"""`edl sandbox --demo`: two real training jobs, a wave of serving, a killed trainer and a killed master.

It does what a person would do with kubectl, and prints at the end what happened: how long serving waited, the
trainers over time, the quality of each model, and the audit of its data.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from edl.errors import ConfigError, PermanentError
from edl.kube.client.session import ApiSession
from edl.master.journal_audit import AuditReport, audit
from edl.sandbox.controllers.loop import collection_of
from edl.sandbox.kubelet.container import Container
from edl.sandbox.kubelet.images import source_folder
from edl.sandbox.kubelet.kubelet import Kubelet
from edl.sandbox.objects import labels_of, name_of
from edl.sandbox.view.chart import chart
from edl.sandbox.view.live import View
from edl.sandbox.view.picture import JOB, JobLine, running_trainers

Object = dict[str, Any]
NAMESPACE, SERVING = "default", "web"
SERVING_PODS = 5
_POLL_S = 0.25
_MOST_KILLS = 5
_SETTLE_S, _RETURN_S = 1.0, 60.0  # the second is beyond the 30 s of a lease
_STEP_S, _TRAINING_S = 180.0, 600.0
"""When the demonstration gives up: a step takes seconds on two free cores, and far longer on busy ones."""
_SCORE = re.compile(r"AUC (\d\.\d+) on \d+ held-out flights, (\d+) pushes")
_LEAST_AUC = 0.7
_CORES = 2  # for which example/sandbox.yaml is written
BUSY = 2.0  # processes that want each core: with more, a step may take longer than the demonstration waits
_MOST_EPOCHS = 4.0  # times those of two cores: beyond, the parameter servers are the limit


@dataclass
class Account:
    """What the demonstration notes while it runs, for its summary.

    Attributes:
        trainers: job -> (seconds, running trainers) at each change; likewise `serving` with its ready pods.
        short: pod-seconds that serving pods were wanted and not ready.
        notes: sentences for the summary.
        scores: job -> AUC.
        audits: job -> the audit of its journal.
        problems: what went wrong.
    """

    trainers: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    serving: list[tuple[float, int]] = field(default_factory=list)
    short: float = 0.0
    notes: list[str] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    audits: dict[str, AuditReport] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Demo:
    """Plays the demonstration on a sandbox.

    Args:
        session: its API server.
        kubelet: its nodes, whose containers are killed.
        view: prints, and shows the cluster.
    """

    def __init__(self, session: ApiSession, kubelet: Kubelet, view: View) -> None:
        self._session, self._kubelet, self._view = session, kubelet, view
        self.account = Account()

    async def play(self) -> None:
        """Play to the end.

        Raises:
            PermanentError: a step took too long.
            ConfigError: the examples are not here.
        """
        first, second = demo_jobs()
        watching = asyncio.create_task(self._watch())
        try:
            await self._start(first)
            await self._until(lambda: self._running(first) >= 2, f"{name_of(first)} runs")
            await self._start(second)
            await self._until(lambda: self._running(second) >= 1, f"{name_of(second)} runs")
            await self._serve()
            await self.kill_trainers(name_of(first))
            await self.kill_master(name_of(first))
            await self._scale(0)
            jobs = [name_of(first), name_of(second)]
            await self._until(
                lambda: all(self._job(job).phase == "Succeeded" for job in jobs), "both jobs end", _TRAINING_S
            )
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        for job in jobs:
            self._read_results(job)

    async def _start(self, job: Object) -> None:
        trainer = job["spec"]["trainer"]
        cpu = trainer["resources"]["requests"]["cpu"]
        bounds = f"{trainer['min-instance']} to {trainer['max-instance']} trainers of {cpu} cpu"
        self._view.say(f"TrainingJob {name_of(job)} is created: {bounds}")
        await self._session.post(collection_of("TrainingJob", NAMESPACE), job)
        took_s = await self._until(lambda: self._running(job) >= trainer["min-instance"], "its minimum runs")
        self.account.notes.append(f"{name_of(job)}: its minimum ran {took_s:.1f} s after its creation")

    async def _serve(self) -> None:
        await self._session.post(collection_of("Deployment", NAMESPACE), serving_manifest())
        await self._scale(SERVING_PODS)
        took_s = await self._until(lambda: self._ready() == SERVING_PODS, "serving is ready")
        self.account.notes.append(
            f"serving: {SERVING_PODS} pods of 1 cpu were ready {took_s:.1f} s after they were wanted"
        )

    async def _scale(self, count: int) -> None:
        self._view.say(f"serving is scaled to {count} pods of 1 cpu")
        path = f"{collection_of('Deployment', NAMESPACE)}/{SERVING}/scale"
        await self._session.patch(path, {"spec": {"replicas": count}})

    async def kill_trainers(self, job: str) -> None:
        """Kill trainers that hold records, until records of a killed trainer have come back to the master."""
        for _ in range(_MOST_KILLS):
            await self._until(lambda: self._holder(job) is not None or self._has_ended(job), f"{job} holds records")
            if (victim := self._holder(job)) is None:
                break
            before = self.returned(job)
            await self._kill_trainer(victim)
            if (again := await self._records_that_came_back(job, name_of(victim), before)) > 0:
                self.account.notes.append(
                    f"{job}: a trainer was killed; {again} records that it held are dispatched again"
                )
                return
        if self._has_ended(job):
            self.account.notes.append(f"{job}: it ended before a trainer that held records was killed")
        else:
            self.account.problems.append(f"{job}: trainers were killed, and no record was dispatched again")

    async def _records_that_came_back(self, job: str, trainer: str, before: int) -> int:
        """Wait for the records of a killed trainer; 0 if it held none, or if the job has ended."""
        # Its master may still write down what the trainer reported last; what is leased after that comes back.
        await asyncio.sleep(_SETTLE_S)
        since_s = self._view.seconds
        while self.returned(job) == before and self._leased(job)[trainer] and not self._has_ended(job):
            if self._view.seconds - since_s > _RETURN_S:
                break
            await asyncio.sleep(_POLL_S)
        return self.returned(job) - before

    def _has_ended(self, job: str) -> bool:
        return self._job(job).phase == "Succeeded"

    def returned(self, job: str) -> int:
        """How many records of a job came back undone so far, by its journal."""
        return sum(epoch.redispatched for report in self.audits(job) for epoch in report.epochs)

    def _leased(self, job: str) -> Counter[str]:
        """By trainer, how many records it holds according to the journal."""
        return sum((report.leased for report in self.audits(job)), Counter[str]())

    def _holder(self, job: str) -> Object | None:
        """The running trainer that holds most records; None if none holds any."""
        leased = self._leased(job)
        trainers = [pod for pod in running_trainers(self._view["Pod"], job) if leased[name_of(pod)]]
        return max(trainers, key=lambda pod: (leased[name_of(pod)], name_of(pod)), default=None)

    def audits(self, job: str) -> list[AuditReport]:
        """The audits of a job's journals so far; none before its master has begun one."""
        try:
            return [audit(claim) for claim in self._journals(job)]
        except ConfigError:
            return []

    async def _kill_trainer(self, victim: Object) -> None:
        self._view.say(f"trainer {name_of(victim)} is killed with SIGKILL")
        await self._container(victim, "trainer").kill()

    async def kill_master(self, job: str) -> None:
        """Kill the master of a job, and wait until it is ready again or the job has ended."""
        pod = self._view["Pod"].get(NAMESPACE, f"{job}-master-0")
        if pod is None or self._has_ended(job):
            self.account.notes.append(f"{job}: it ended before its master could be killed")
            return
        container = self._container(pod, "master")
        restarts = container.record.restarts
        self._view.say(f"master {name_of(pod)} is killed with SIGKILL")
        await container.kill()

        def is_ready_again() -> bool:
            return container.record.restarts > restarts and container.record.is_ready

        # The last records may be done at that moment: then the job ends, and its master is not started again.
        took_s = await self._until(
            lambda: is_ready_again() or self._has_ended(job), "the master is ready again, or the job has ended"
        )
        outcome = f"its master was ready again {took_s:.1f} s after it was killed"
        self.account.notes.append(f"{job}: {outcome if is_ready_again() else 'it ended while its master was killed'}")

    async def _until(self, done: Callable[[], bool], what: str, timeout_s: float = _STEP_S) -> float:
        """Wait until a condition holds; returns how long that took, in seconds."""
        since_s = self._view.seconds
        while not done():
            if self._view.seconds - since_s > timeout_s:
                raise PermanentError(f"the demonstration waited {timeout_s:g} s in vain: {what}")
            await asyncio.sleep(_POLL_S)
        return self._view.seconds - since_s

    async def _watch(self) -> None:
        """Write down how many trainers run and serving pods are ready, forever."""
        last_s = self._view.seconds
        while True:
            picture, now_s = self._view.picture(), self._view.seconds
            for job in picture.jobs:
                _note(self.account.trainers.setdefault(job.name, []), now_s, job.running)
            for one in picture.serving:
                _note(self.account.serving, now_s, one.ready)
                self.account.short += max(0, one.wanted - one.ready) * (now_s - last_s)
            last_s = now_s
            await asyncio.sleep(_POLL_S)

    def _running(self, job: Object) -> int:
        return len(running_trainers(self._view["Pod"], name_of(job)))

    def _ready(self) -> int:
        return sum(one.ready for one in self._view.picture().serving)

    def _job(self, name: str) -> JobLine:
        return next(job for job in self._view.picture().jobs if job.name == name)

    def _container(self, pod: Object, name: str) -> Container:
        found = self._kubelet.container(NAMESPACE, name_of(pod), name)
        if found is None:
            raise PermanentError(f"pod {name_of(pod)} has no container {name} on this machine")
        return found

    def _read_results(self, job: str) -> None:
        """The AUC from the logs of a job's trainers, and the audit of its journal."""
        texts = []
        for pod in self._view["Pod"]:
            container = self._kubelet.container(NAMESPACE, name_of(pod), "trainer")
            if labels_of(pod).get(JOB) == job and container is not None and container.log.exists():
                texts.append(container.log.read_text(errors="replace"))
        found = [match for text in texts for match in _SCORE.findall(text)]
        if found:
            self.account.scores[job] = float(max(found, key=lambda one: int(one[1]))[0])
        for claim in self._journals(job):
            self.account.audits[job] = audit(claim)

    def _journals(self, job: str) -> list[Path]:
        """The folders with the journals of a job."""
        return sorted((self._kubelet.host.folder / "claims" / NAMESPACE).glob(f"{job}-journal-*"))


def demo_jobs(cores: int | None = None) -> list[Object]:
    """The jobs of example/sandbox.yaml, which train long enough on two cores, and for more epochs on more cores.

    Args:
        cores: the cores of this machine; by default those that this process may use.

    Raises:
        ConfigError: edl does not run from a checkout.
    """
    path: Path = source_folder() / "example" / "sandbox.yaml"
    try:
        jobs = list(yaml.safe_load_all(path.read_text()))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(
            f"--demo needs the examples: {path} cannot be read: {error}; run edl from a checkout of its repository"
        ) from error
    factor = min(_MOST_EPOCHS, max(1.0, (cores or len(os.sched_getaffinity(0))) / _CORES))
    for job in jobs:
        job["spec"]["trainer"]["passes"] = round(job["spec"]["trainer"]["passes"] * factor)
    return jobs


def serving_manifest() -> Object:
    """A Deployment with 0 replicas, which the demonstration scales."""
    labels = {"app": SERVING}
    container = {
        "name": "server",
        "image": "edl/serve:0.1.0",
        "ports": [{"containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": SERVING, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 2, "containers": [container]},
            },
        },
    }


def summary(account: Account, seconds: float, *, is_whole: bool = True) -> list[str]:
    """Summarise the demonstration in lines; add to `problems` if a result is missing or bad.

    A demonstration that was not played to its end (`is_whole` is False) has no results.
    """
    largest = max((value for line in (*account.trainers.values(), account.serving) for _, value in line), default=0)
    lines = [*account.notes, f"serving pods were missing for {account.short:.1f} pod-seconds in all"]
    lines.append(f"trainers and serving pods over {seconds:.0f} s (a full block is {largest}):")
    rows = {**account.trainers, "serving": account.serving}
    width = max(map(len, rows))
    lines += [
        f"  {name:<{width}} {chart(line, seconds, largest)} {max((v for _, v in line), default=0)} at most"
        for name, line in rows.items()
    ]
    for job in account.trainers if is_whole else ():
        score, report = account.scores.get(job), account.audits.get(job)
        if score is None or score < _LEAST_AUC:
            account.problems.append(f"{job}: the AUC is {score}, expected at least {_LEAST_AUC}")
        else:
            lines.append(f"{job}: AUC {score:.4f} on held-out flights (0.5 is chance)")
        if report is None or report.problems or not report.epochs:
            account.problems.append(f"{job}: the audit failed: {report.problems if report else 'no journal'}")
        else:
            lines += [audit_line(job, report)]
    return lines


def why_slow(load: float, cores: int) -> str:
    """Advise what to try after a step that took too long, from the load of the machine in the last minute."""
    if load > BUSY * cores:
        return f"this machine is busy (load {load:.1f} on {cores} cores); try again when it is not"
    return "the log of the controller, and of each job (edl logs), say what went on"


def audit_line(job: str, report: AuditReport) -> str:
    """Say in one line what the audit of a job's journal has found."""
    done, total = sum(one.done for one in report.epochs), sum(one.total for one in report.epochs)
    again = sum(one.redispatched for one in report.epochs)
    return (
        f"{job}: audit ok: {done} of {total} records of {len(report.epochs)} epochs were counted once;"
        f" {again} were dispatched again"
    )


def _note(line: list[tuple[float, int]], now_s: float, value: int) -> None:
    if not line or line[-1][1] != value:
        line.append((now_s, value))
