"""The work of jobs: how far each has come, what changes of its trainers cost, and when it is done.

A job works while all its masters and pservers and at least one trainer are ready, as fast as its throughput curve
says for the trainers that take part. A job without work never ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from edl.model.names import JobKey, Role
from edl.model.pods import Pod, PodPhase
from edl.model.resources import CPU
from edl.planner.speedup import Curve
from edl.sim.batches.phases import Phase, phases_of
from edl.sim.scenario import JobGroup
from edl.sim.shares import shares_of
from edl.sim.world import Engine, World

ROUNDING = 1e-9
"""A phase of which no larger part is left is over."""


@dataclass(slots=True)
class JobRun:
    """One job as it runs.

    Attributes:
        phases: its speeds through the training.
        created_s: its creation.
        first_pod_s, first_running_s: when its first trainer was created and first ran; None until then.
        ended_s: when its work was done, or when it was deleted.
        is_done: its work was done.
        done: samples so far.
        attained_s: trainer-seconds so far, working or not.
        lost_s: trainer-seconds that resizes cost so far.
        ready: UIDs of its ready trainers -> when each begins to take part.
        slowed: UIDs of its ready trainers that have not all of their CPU -> the part that they have.
        stalled_until_s: the job stands still until then.
        at_phase: the phase that it is in.
    """

    key: JobKey
    uid: str
    group: JobGroup
    phases: tuple[Phase, ...]
    created_s: float
    fixed_left: int
    first_pod_s: float | None = None
    first_running_s: float | None = None
    ended_s: float | None = None
    is_done: bool = False
    done: float = 0.0
    attained_s: float = 0.0
    lost_s: float = 0.0
    stalled_until_s: float = 0.0
    since_s: float = 0.0
    version: int = 0
    ready: dict[str, float] = field(default_factory=dict)
    slowed: dict[str, float] = field(default_factory=dict)
    at_phase: int = 0

    @property
    def phase(self) -> Phase:
        """The part of the training that it is in."""
        return self.phases[self.at_phase]

    @property
    def curve(self) -> Curve:
        """The speed of the job by number of trainers, as policies know it."""
        return self.phase.curve

    @property
    def is_over(self) -> bool:
        """True if the job is done or deleted."""
        return self.ended_s is not None

    @property
    def remaining(self) -> float:
        """Samples that are left; infinite for a job that never ends."""
        return float("inf") if self.group.work is None else max(0.0, self.group.work - self.done)

    def working(self, now_s: float) -> int:
        """How many trainers take part now."""
        if self.fixed_left > 0 or now_s < self.stalled_until_s or self.is_over:
            return 0
        return sum(since_s <= now_s for since_s in self.ready.values())

    def next_change_s(self, now_s: float) -> float:
        """When the number of trainers that take part changes by itself; infinite if it does not."""
        later = [s for s in (self.stalled_until_s, *self.ready.values()) if s > now_s]
        return min(later, default=float("inf"))

    def speed(self, count: int) -> float:
        """Samples per second of `trainers` trainers that have all of their CPU."""
        return self.phase.truth.at(count) if count else 0.0

    def alone_s(self, count: int) -> float:
        """How many seconds the job's work takes with a constant number of trainers; 0 without work."""
        done, work = 0.0, self.group.work or 0.0
        lasts_s = 0.0
        for phase in self.phases:
            until = min(work, phase.until)
            lasts_s += (until - done) / phase.truth.at(count)
            done = until
        return lasts_s

    @property
    def pace(self) -> float:
        """The part of its speed that the job has: its slowest trainer's if all wait for it, else the mean."""
        if not self.slowed:
            return 1.0
        if self.group.resize.stops == "job":
            return min(self.slowed.values())
        return 1.0 - sum(1.0 - share for share in self.slowed.values()) / len(self.ready)


class Training:
    """The work of every job of a world.

    Attributes:
        runs: by key, also of jobs that have ended.
        listeners: called when the number of trainers that take part may have changed, although no pod has.
    """

    def __init__(self, world: World, engine: Engine, on_done: Callable[[JobRun], None]) -> None:
        self._world, self._engine, self._on_done = world, engine, on_done
        self.runs: dict[JobKey, JobRun] = {}
        self.listeners: list[Callable[[], None]] = []
        world.listeners.append(self._changed)

    def add(self, key: JobKey, uid: str, group: JobGroup) -> None:
        """Begin to simulate a job that was created."""
        fixed = sum(spec.count for spec in (group.master, group.pserver) if spec is not None)
        now_s = self._engine.now_s()
        self.runs[key] = JobRun(key, uid, group, phases_of(group), now_s, fixed, since_s=now_s)

    def end(self, run: JobRun, *, is_done: bool) -> None:
        """Cease to simulate a job that is done or was deleted."""
        if not run.is_over:
            self._advance(run)
            run.ended_s, run.is_done = self._engine.now_s(), is_done
            run.version += 1

    def advance_all(self) -> None:
        """Bring the work of every job up to now."""
        for run in self.runs.values():
            if not run.is_over:
                self._advance(run)

    def advance(self, key: JobKey) -> None:
        """Bring the work of one job up to now."""
        if not self.runs[key].is_over:
            self._advance(self.runs[key])

    def working(self, key: JobKey) -> frozenset[str]:
        """UIDs of the trainers of a job that take part now."""
        run, now_s = self.runs[key], self._engine.now_s()
        return frozenset(uid for uid, since_s in run.ready.items() if since_s <= now_s and run.working(now_s))

    def _changed(self, before: Pod | None, after: Pod | None) -> None:
        self._joined_or_left(before, after)
        for pod in (before, after):
            if pod is not None and pod.node:
                self._share_out(pod.node)

    def _share_out(self, node: str) -> None:
        """Give the trainers of a node that lend their part of its CPU."""
        here = self._world.on_node[node].values()
        lenders = {pod.uid: pod.job for pod in here if pod.lent_cpu_milli}
        if not lenders:
            return
        cpu = self._world.nodes[node].allocatable[CPU]
        for uid, share in shares_of(cpu, here).items():
            key = lenders[uid]
            run = self.runs.get(key) if key is not None else None
            if run is None or run.is_over or uid not in run.ready or run.slowed.get(uid, 1.0) == share:
                continue
            self._advance(run)
            run.slowed[uid] = share
            if share >= 1.0:
                del run.slowed[uid]
            self._schedule(run)

    def _joined_or_left(self, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        if pod is None or pod.job is None or pod.job not in self.runs:
            return
        run = self.runs[pod.job]
        was, now = bool(before and before.ready), bool(after and after.ready)
        if run.is_over:
            if run.is_done and now and not was:  # it finds no work left, and exits like the others
                self._engine.later(0.0, lambda: complete(self._world, run))
            return
        if before is None and pod.role is Role.TRAINER and run.first_pod_s is None:
            run.first_pod_s = self._engine.now_s()
        if was != now:
            self._advance(run)
            if pod.role is Role.TRAINER:
                self._resize(run, pod.uid, joins=now)
            else:
                run.fixed_left += -1 if now else 1
            self._schedule(run)

    def _resize(self, run: JobRun, uid: str, *, joins: bool) -> None:
        now_s, cost = self._engine.now_s(), run.group.resize
        is_first = run.first_running_s is None
        if joins and is_first:
            run.first_running_s = now_s
        if joins:
            run.ready[uid] = now_s if is_first or cost.stops == "job" else now_s + cost.cost_s
        else:
            run.ready.pop(uid, None)
            run.slowed.pop(uid, None)
        if cost.stops == "job" and not is_first and cost.cost_s:
            run.stalled_until_s = now_s + cost.cost_s

    def _advance(self, run: JobRun) -> None:
        """Count the work since the last change; nothing changed by itself in between."""
        now_s = self._engine.now_s()
        passed_s = now_s - run.since_s
        if passed_s > 0:
            count = run.working(run.since_s)
            run.done += run.speed(count) * run.pace * passed_s
            run.attained_s += len(run.ready) * passed_s
            if run.fixed_left <= 0:
                run.lost_s += (len(run.ready) - count) * passed_s
        run.since_s = now_s
        if run.done >= run.phase.until * (1.0 - ROUNDING):
            run.at_phase += 1
            self._report(run)

    def _report(self, run: JobRun) -> None:
        """Let the job say how fast it is now."""
        job = self._world.jobs.get(run.key)
        if job is not None and run.group.is_declared:
            self._world.put_job(replace(job, throughput=run.phase.processed, goodput=run.phase.known))

    def _schedule(self, run: JobRun) -> None:
        run.version += 1
        version, now_s = run.version, self._engine.now_s()
        speed = run.speed(run.working(now_s)) * run.pace
        left = min(run.remaining, run.phase.until - run.done)
        left_s = left / speed if speed > 0 else float("inf")
        pause_s = min(left_s, run.next_change_s(now_s) - now_s)
        if pause_s < float("inf"):
            self._engine.later(pause_s, lambda: self._due(run, version))

    def _due(self, run: JobRun, version: int) -> None:
        if run.version != version or run.is_over:
            return
        self._advance(run)
        if run.group.work is not None and self._is_as_good_as_done(run, run.group.work):
            self.end(run, is_done=True)
            self._on_done(run)
        else:
            self._schedule(run)
            for listener in self.listeners:
                listener()

    def _is_as_good_as_done(self, run: JobRun, work: float) -> bool:
        """True if the remaining work is smaller than the rounding error of the work or of the time."""
        speed = run.speed(run.working(self._engine.now_s())) * run.pace
        return run.remaining <= max(1e-6 * work, 1e-9 * speed)


def complete(world: World, run: JobRun) -> None:
    """Let the running trainers of a job exit with code 0."""
    for pod in list(world.of_job.get(run.uid, {}).values()):
        if pod.role is Role.TRAINER and pod.phase is PodPhase.RUNNING and not pod.terminating:
            world.put(replace(pod, phase=PodPhase.SUCCEEDED, ready=False, exit_code=0))
