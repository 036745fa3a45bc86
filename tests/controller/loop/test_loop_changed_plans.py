"""Plans that change under the writes, leases that are lost among writes, and servers that are slow or refuse.

The random events of `test_loop_random_events`, and these besides. Planted bugs are found by the rules of
`tests.worlds.write_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from operator import methodcaller
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from edl.controller.pace import Pace
from edl.model.actions import Action, EmitEvent, Outcome, Result
from edl.model.names import JobKey, Role
from tests.controller.loop import test_loop_random_events as random_events
from tests.controller.loop.test_loop_random_events import A, G
from tests.planted.acting import (
    deletions_under_way_unknown,
    slots_used_twice,
    writes_without_the_lease,
)
from tests.planted.install import swapped
from tests.worlds.builders import make_job, make_nodes
from tests.worlds.effort import examples
from tests.worlds.simulated_cluster import STRANDED_S
from tests.worlds.simulated_controller import Living

LATE = ("fewer", "a job comes", "a trainer ends", "a trainer vanishes", "every trainer ends")
CHANGES = ("fewer", "more", "serving comes", "serving goes", "another job is deleted")


class WritersMachine(random_events.LifeMachine):
    """Two jobs on four nodes, and changes while the controller writes."""

    @rule(after=st.integers(1, 8), what=st.sampled_from(CHANGES), slow_s=st.sampled_from([0.0, 0.3, 0.7]))
    def the_plan_changes_under_the_writers(self, after: int, what: str, slow_s: float) -> None:
        def happen() -> None:
            self._change(what)
            self.living.access.urge()

        self.living.soon(after, happen)
        self._step_slowly(slow_s)

    @rule(
        before=st.sampled_from(["fewer", "more", "a job comes"]),
        early=st.sampled_from(["", *LATE]),
        late=st.sampled_from(LATE),
        after=st.integers(1, 8),
        plan_s=st.sampled_from([1.0, 20.0]),
        slow_s=st.sampled_from([0.0, 0.3, 0.7]),
    )
    def jobs_change_while_a_long_plan_is_made_and_written(
        self, *, before: str, early: str, late: str, after: int, plan_s: float, slow_s: float
    ) -> None:
        def happen(what: str) -> None:
            self._change(what)
            self.living.access.urge()

        self.living.do(lambda _: self._change(before))
        self.living.runner.get_loop().call_later(plan_s / 2, happen, early)
        self.living.soon(after, lambda: happen(late))
        with self.living.slow_plans(plan_s):
            self._step_slowly(slow_s)

    def _change(self, what: str) -> None:
        world = self.world
        if what == "a job comes":
            world.delete_job(A)
            self.made += 1
            world.add(replace(self.elastic(), uid=f"job-{self.made}"))
        elif what.endswith(("ends", "vanishes")):
            trainers = [o.pod for o in world.pods.values() if o.pod.role is Role.TRAINER and o.pod.started_s]
            for pod in (pod for pod in trainers[: None if what == "every trainer ends" else 1] if pod.is_live):
                (world.vanish if what.endswith("vanishes") else world.finish)(pod.name)
        if what in {"fewer", "more"} and A in world.jobs:
            job = world.job(A)
            self.ceiling[job.uid] = max(job.max_trainers, len(job.live_trainers), self.ceiling.get(job.uid, 0))
            world.edit(A, max_trainers=job.min_trainers if what == "fewer" else 7)
        elif what == "serving comes":
            world.serve("web-1", 4)
        elif what == "serving goes":
            world.serving.clear()
        elif what == "another job is deleted":
            world.delete_job(G)

    @rule(after=st.integers(1, 8), slow_s=st.sampled_from([0.0, 0.7]))
    def the_lease_is_lost_among_writes(self, after: int, slow_s: float) -> None:
        """Another process takes over; it lists everything before it decides."""
        self.living.soon(after, self._lose_the_lease)
        self._step_slowly(slow_s)
        self.living.step()
        if not self.living.lease.held:
            self.living.crash()
            self.living.lease.held = True

    def _lose_the_lease(self) -> None:
        self.living.lease.held = False

    @rule(every=st.integers(1, 3), retry_s=st.sampled_from([0.5, 2.0]), slow_s=st.sampled_from([0.0, 0.7]))
    def the_server_is_busy(self, every: int, retry_s: float, slow_s: float) -> None:
        count = 0

        def refuse(action: Action) -> tuple[bool, Outcome] | None:
            nonlocal count
            count += 1
            is_hit = count % every == 0 and not isinstance(action, EmitEvent)
            busy = Outcome(action, Result.FAILED, "TooManyRequests", "429", retry_after_s=retry_s)
            return (False, busy) if is_hit else None

        self.world.fault = refuse
        self._step_slowly(slow_s)
        self.world.fault = lambda _: None

    def _step_slowly(self, slow_s: float) -> None:
        access = self.living.access
        access.delay_s = slow_s
        self.living.step()
        access.delay_s, access.meanwhile = 0.0, None  # few writes end before what was to happen

    @invariant()
    def no_write_broke_a_rule(self) -> None:
        assert self.living.broken == []


WritersMachine.TestCase.settings = examples(30, stateful_step_count=40)
TestWriters = WritersMachine.TestCase


class RunningMachine(WritersMachine):
    """The controller runs as in a cluster, with two requests at once, so that more changes while writes wait."""

    def __init__(self) -> None:
        super().__init__()
        self.living.close()
        pace = Pace(unreachable_s=STRANDED_S, writes=2)
        self.living = Living(random_events.NODES, pace=pace, runs=True)


RunningMachine.TestCase.settings = examples(30, stateful_step_count=40)
TestRunning = RunningMachine.TestCase


# --- Planted bugs: one job shrinks and another one grows, on a slow server

B = JobKey("default", "b")


def trained() -> Living:
    """A job of 32 trainers that is to have 2, and another of 2 that is to have 20."""
    living = Living(make_nodes(5, cpu=8), pace=Pace(writes=4), runs=True)
    for name, most in (("a", 32), ("b", 2)):
        living.do(methodcaller("add", make_job(name, min_trainers=1, max_trainers=most)))
    living.settle()
    living.do(lambda w: w.edit(A, max_trainers=2))
    living.do(lambda w: w.edit(B, max_trainers=20))
    return living


def play(living: Living, happen: Callable[[Living], None], slow_s: float) -> None:
    """The controller runs on a slow server; something happens while the first writes are under way."""
    living.access.delay_s = slow_s
    living.soon(8, lambda: happen(living))
    for _ in range(12):
        living.step()


def the_maximum_rises_again(living: Living) -> None:
    living.world.edit(A, max_trainers=32)
    living.access.urge()


def nothing_happens(_: Living) -> None:
    """The deletions of one job and the growth of the other are one plan."""


def the_lease_is_lost(living: Living) -> None:
    living.lease.held = False


BUGS: dict[str, tuple[Any, Callable[[Living], None], float, str]] = {
    "a slot is used twice": (slots_used_twice, nothing_happens, 0.4, "is used already"),
    "a pod is deleted twice": (deletions_under_way_unknown, the_maximum_rises_again, 0.4, "is being deleted"),
    "writes without the lease": (writes_without_the_lease, the_lease_is_lost, 0.4, "without the lease"),
}


@pytest.mark.parametrize("name", BUGS)
def test_the_rules_find_each_planted_bug_and_nothing_without_it(name: str) -> None:
    bug, happen, slow_s, message = BUGS[name]
    with closing(trained()) as living:
        play(living, happen, slow_s)
        assert living.broken == []
    with swapped(bug.target, bug.plant), closing(trained()) as living:
        play(living, happen, slow_s)
        assert any(message in line for line in living.broken), living.broken
