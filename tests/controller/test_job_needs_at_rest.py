"""A job that lacked nothing is looked at again only if something has changed that decides what it lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from unittest.mock import patch

import pytest

from edl.controller.backoff import Backoff
from edl.controller.job_needs import REPAIR_S, JobNeeds
from edl.controller.settled_jobs import LOOK_AFTER_S
from edl.lifecycle.data_progress import MasterView
from edl.model.actions import Action, Outcome, PatchStatus, Result
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.plan import Limits
from tests.controller.loop_stage import FittingPod, plan_of
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.fakes import FakeRecorder

NODES = make_nodes(2)


@dataclass
class Moment:
    """A clock that stands still."""

    at_s: float = 1000.0

    def now_s(self) -> float:
        return self.at_s

    monotonic_s = now_s

    async def sleep(self, duration_s: float) -> None:
        self.at_s += duration_s


@dataclass
class Asked:
    """One job, and what the rounds know about it."""

    job: Job = field(default_factory=lambda: make_job("a", trainers=2, min_trainers=1, max_trainers=3, on=("n000",)))
    target: int = 2
    starts: tuple[FittingPod, ...] = ()
    lost: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()
    master_view: MasterView | None = None
    clock: Moment = field(default_factory=Moment)
    backoff: Backoff = field(default_factory=Backoff)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.recorder = FakeRecorder()
        self.needs = JobNeeds(self.clock, self.recorder, self.backoff, self.limits, lambda _: self.master_view)

    def lacks(self) -> tuple[Action, ...]:
        """What the job lacks now."""
        snapshot = replace(make_snapshot(NODES, (self.job,)), missing_priority_classes=self.missing)
        decision = plan_of(snapshot, {"a": self.target}).decisions[0]
        facts = self.needs.read(snapshot, {self.job.key: decision}, self.starts, self.lost)
        return self.needs.of(self.job, facts)

    def is_looked_at(self) -> bool:
        """True if the job is looked at in a round, and not only remembered."""
        with patch.object(self.needs, "_find", wraps=self.needs._find) as found:
            self.lacks()
        return found.called


def at_rest() -> Asked:
    """The job has the status that it is to have, and lacked nothing when it was looked at."""
    asked = Asked()
    for _ in range(3):
        status = next((a.status for a in asked.lacks() if isinstance(a, PatchStatus)), asked.job.status)
        asked.job = asked.job if status is asked.job.status else replace(asked.job, status=status)
    assert asked.lacks() == ()
    return asked


def refuse(asked: Asked) -> None:
    assert asked.job.status is not None
    action = PatchStatus(asked.job.key, asked.job.uid, asked.job.status)
    asked.backoff.record(Outcome(action, Result.REFUSED, "Forbidden", "no"), asked.clock.at_s)


CHANGES: dict[str, Callable[[Asked], object]] = {
    "the job": lambda asked: setattr(asked, "job", replace(asked.job, max_trainers=4)),
    "its pods": lambda asked: setattr(asked, "job", replace(asked.job, pods=asked.job.pods[:1])),
    "the decision": lambda asked: setattr(asked, "target", 1),
    "what may start": lambda asked: setattr(asked, "starts", (FittingPod(asked.job.key, Role.TRAINER, "n001"),)),
    "a lost pod": lambda asked: setattr(asked, "lost", frozenset({"somebody's"})),
    "the priority classes": lambda asked: setattr(asked, "missing", ("edl-trainer",)),
    "what its master says": lambda asked: setattr(asked, "master_view", MasterView(is_given_up=True)),
    "the limits": lambda asked: asked.needs.use(replace(asked.limits, serving_grace_s=1.0)),
    "a refusal": refuse,
    "the time": lambda asked: setattr(asked.clock, "at_s", asked.clock.at_s + LOOK_AFTER_S),
    "a repair": lambda asked: setattr(asked.clock, "at_s", asked.clock.at_s + REPAIR_S),
    "another job": lambda asked: asked.needs.keep_only(set()),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_job_at_rest_is_looked_at_again_once_something_has_changed(what: str) -> None:
    asked = at_rest()
    assert not asked.is_looked_at()
    CHANGES[what](asked)
    assert asked.is_looked_at()


def test_what_concerns_another_job_changes_nothing() -> None:
    asked = at_rest()
    asked.starts = (FittingPod(JobKey("default", "b"), Role.TRAINER, "n001"),)
    assert not asked.is_looked_at()


def test_a_plan_that_says_the_same_changes_nothing() -> None:
    asked = at_rest()
    asked.clock.at_s += 10.0
    assert not asked.is_looked_at()


def test_a_job_that_breaks_the_code_is_reported_in_each_round() -> None:
    asked = at_rest()
    with patch("edl.controller.job_needs.desired_state", side_effect=RuntimeError("broken")):
        asked.target = 1
        for count in (1, 2, 3):
            assert asked.lacks() == ()
            assert len(asked.recorder.failures) == count
    assert asked.is_looked_at()
