"""One job in a `PodWorld`, whose plan follows its spec: for tests of spec changes and policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edl.lifecycle.desired_state import JobContext, as_planned, desired_state
from edl.model.actions import Action, CreatePod, DeletePod, Outcome
from edl.model.jobs import FixedPods, Job
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.status import Condition, JobPhase, JobStatus, Reason
from tests.worlds.builders import make_job, make_shape
from tests.worlds.fakes import PodWorld
from tests.worlds.job_by_target import decision

MASTER = FixedPods(Role.MASTER, make_shape(0.25), 1)
PSERVERS = FixedPods(Role.PSERVER, make_shape(0.5), 2)


class Life:
    """One job, its pods and its rounds.

    Attributes:
        wanted: the target of the plan; it is clamped to the bounds of the job's spec.
        room: how many pods of each role fit in one round.
    """

    def __init__(self, job: Job, *, wanted: int = 4) -> None:
        self.world = PodWorld()
        self.world.add(job)
        self.key, self.wanted, self.room, self.now_s = job.key, wanted, 99, 1000.0
        self.context = JobContext()
        self.actions: tuple[Action, ...] = ()

    @property
    def job(self) -> Job:
        return self.world.jobs[self.key]

    @property
    def status(self) -> JobStatus:
        assert self.job.status is not None
        return self.job.status

    @property
    def phase(self) -> JobPhase:
        return self.status.phase

    @property
    def names(self) -> set[str]:
        return {pod.name for pod in self.job.pods}

    @property
    def uids(self) -> set[str]:
        return {pod.uid for pod in self.job.pods}

    @property
    def event_reasons(self) -> list[str]:
        return [event.reason for event in self.world.events]

    def uid(self, name: str) -> str:
        return self.world.pods(self.key)[name].uid

    def condition(self, kind: str) -> Condition:
        found = self.status.condition(kind)
        assert found is not None
        return found

    def created(self) -> list[str]:
        return [a.pod_name for a in self.actions if isinstance(a, CreatePod)]

    def deleted(self) -> list[str]:
        return [a.pod for a in self.actions if isinstance(a, DeletePod)]

    def edit(self, **fields: Any) -> None:
        """Change the spec, as a user does."""
        self.world.add(replace(self.job, generation=self.job.generation + 1, **fields))

    def forge(self, **fields: Any) -> None:
        """Overwrite fields of the status, as a user might."""
        self.world.add(replace(self.job, status=replace(self.status, **fields)))

    def round(self, **given: Any) -> list[Outcome]:
        places: Sequence[tuple[Role, str]] = [(role, f"n{i:03d}") for role in Role for i in range(self.room)]
        view = as_planned(self.job)
        target = given.pop("target", max(view.min_trainers, min(self.wanted, view.max_trainers)))
        live = view.live_trainers
        if target < len(live) and "victims" not in given:
            given["victims"] = tuple(p.name for p in live[target:])
            given["shrink_reason"] = Reason.AT_MAX.value
        plan = None if given.pop("held", False) else decision(view, target, **given)
        _, self.actions = desired_state(self.job, plan, places, self.now_s, self.context)
        return [self.world.apply(action) for action in self.actions]

    def settle(self, rounds: int = 10, **given: Any) -> None:
        for _ in range(rounds):
            self.now_s += 1
            self.round(**given)
            self.world.step()

    def finish_all(self, role: Role, exit_code: int = 0) -> None:
        for pod in self.job.pods:
            if pod.role is role and pod.is_live:
                self.world.finish(self.key, pod.name, exit_code)

    def evict(self, name: str) -> None:
        """Evict a pod through the eviction API; it terminates."""
        self.world.change(self.key, name, terminating=True, ready=False, disruption="EvictionByEvictionAPI")


def fault_tolerant(min_trainers: int = 2, max_trainers: int = 6, *, wanted: int = 4, **fields: Any) -> Life:
    """A running job with a master, two pservers and four trainers."""
    fields = {"fixed": (MASTER, PSERVERS), **fields}
    return _running(make_job("a", min_trainers=min_trainers, max_trainers=max_trainers), wanted, fields)


def gang(size: int = 3, **fields: Any) -> Life:
    """A running gang of two pservers and three trainers."""
    fields = {"fixed": (PSERVERS,), "fault_tolerant": False, **fields}
    return _running(make_job("a", min_trainers=size, max_trainers=size), size, fields)


def _running(job: Job, wanted: int, fields: dict[str, Any]) -> Life:
    life = Life(replace(job, **fields), wanted=wanted)
    life.settle(4)
    assert life.phase is JobPhase.RUNNING
    assert all(p.phase is PodPhase.RUNNING for p in life.job.pods)
    return life
