"""One job in a `PodWorld`: the test sets the target of each round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edl.lifecycle.desired_state import JobContext, as_planned, desired_state
from edl.model.actions import Action, Outcome
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision
from edl.model.status import JobPhase, Reason
from tests.worlds.builders import make_job, make_shape
from tests.worlds.fakes import PodWorld

KEY = JobKey("default", "a")
FIXED = (FixedPods(Role.MASTER, make_shape(0.25), 1), FixedPods(Role.PSERVER, make_shape(0.5), 2))


def decision(
    job: Job,
    target: int,
    *,
    admitted: bool = True,
    reason: Reason = Reason.ADMITTED,
    victims: tuple[str, ...] = (),
    shrink_reason: str = "",
    moves: tuple[str, ...] = (),
    message: str = "as planned",
    details: str = "",
) -> ScaleDecision:
    return ScaleDecision(
        job=job.key,
        generation=job.generation,
        current=len(job.live_trainers),
        target=target,
        min_trainers=job.min_trainers,
        max_trainers=job.max_trainers,
        admitted=admitted,
        reason=reason,
        message=message,
        victims=victims,
        shrink_reason=shrink_reason,
        moves=moves,
        details=details,
    )


class Story:
    """One job, its pods and its rounds."""

    def __init__(self, job: Job, now_s: float = 1000.0) -> None:
        self.world = PodWorld()
        self.world.add(job)
        self.key = job.key
        self.now_s = now_s
        self.context = JobContext()
        self.actions: tuple[Action, ...] = ()

    @property
    def job(self) -> Job:
        return self.world.jobs[self.key]

    def phase(self) -> JobPhase:
        assert self.job.status is not None
        return self.job.status.phase

    @property
    def names(self) -> set[str]:
        return {pod.name for pod in self.job.pods}

    def event_reasons(self) -> list[str]:
        return [event.reason for event in self.world.events]

    def round(self, target: int, *, starts: int = 99, hold: bool = False, **given: Any) -> list[Outcome]:
        """Run a round: the plan has this target, and `starts` pods of each role fit."""
        places: Sequence[tuple[Role, str]] = [(role, f"n{i:03d}") for role in Role for i in range(starts)]
        plan = None if hold else decision(as_planned(self.job), target, **given)
        _, self.actions = desired_state(self.job, plan, places, self.now_s, self.context)
        return [self.world.apply(action) for action in self.actions]

    def settle(self, target: int, rounds: int = 6, **given: Any) -> None:
        """Run rounds until the pods no longer change."""
        for _ in range(rounds):
            self.now_s += 1
            self.round(target, **given)
            self.world.step()


def story(
    min_trainers: int = 2, max_trainers: int = 6, *, fixed: tuple[FixedPods, ...] = FIXED, **fields: Any
) -> Story:
    return Story(replace(make_job("a", min_trainers=min_trainers, max_trainers=max_trainers, fixed=fixed), **fields))


def running(min_trainers: int = 2, max_trainers: int = 6, *, target: int = 4, **fields: Any) -> Story:
    here = story(min_trainers, max_trainers, **fields)
    here.settle(target)
    assert here.phase() is JobPhase.RUNNING
    return here


def gang(size: int = 3, **fields: Any) -> Story:
    fixed = (FixedPods(Role.PSERVER, make_shape(0.5), 1),)
    return running(size, size, target=size, fixed=fixed, fault_tolerant=False, **fields)
