"""The real planner in virtual time, and serving pods that cannot use the capacity freed for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from edl.controller.loop import Controller
from edl.controller.plan_maker import Planner
from edl.explain.decision import decide
from edl.model.actions import DeletePod
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits, ServingLimits
from edl.model.names import JobKey
from edl.model.plan import ScalePlan
from edl.observability.decision_records import DecisionRecord, decode_record, encode_record
from edl.planner.guard import check
from edl.planner.policies.registry import policy_named
from edl.planner.starts import startable
from edl.sim.virtual_time import LoopClock, run_virtual
from tests.controller.loop_stage import at_work
from tests.worlds.builders import make_job, make_node, make_serving
from tests.worlds.fakes import FakeCluster, FakeLease, FakeRecorder, PodWorld

A = JobKey("default", "a")
STUCK = replace(make_serving("web", cpu=3), tried=True)
LIMITS = Limits(serving=ServingLimits(grace_s=2.0))


@dataclass
class Film:
    """What happened, second by second: how many trainers the job had, and what the controller reported."""

    trainers: list[int] = field(default_factory=list)
    recorder: FakeRecorder = field(default_factory=FakeRecorder)
    world: PodWorld = field(default_factory=PodWorld)

    @property
    def deleted(self) -> int:
        return len({action.pod_uid for action in self.world.writes if isinstance(action, DeletePod)})

    @property
    def pauses(self) -> list[str]:
        return [said.rpartition(" for ")[2] for said in self.recorder.put_off if "did not use free capacity" in said]


PodEvent = Callable[[FakeCluster, int], None]
"""What happens to the cluster in a second."""


def play(
    seconds: int,
    event: PodEvent = lambda *_: None,
    *,
    cores: int = 4,
    beside_plan: Callable[[FakeCluster], None] = lambda _: None,
) -> Film:
    """A job may use every core of the only node; a serving pod requests three of them and never binds.

    `beside_plan` is called while each plan is made.
    """
    film = Film()
    film.world.add(make_job("a", trainers=4, max_trainers=cores, on=("n000",)))
    cluster = FakeCluster(film.world, (make_node("n000", cores),), (STUCK,))
    policy = policy_named("maxmin")

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def decided(snapshot: ClusterSnapshot, limits: Limits) -> ScalePlan:
            loop.call_soon_threadsafe(beside_plan, cluster)
            return decide(snapshot, policy, limits)

        planner = Planner(decided, check, startable)
        controller = Controller(
            cluster=cluster, clock=LoopClock(), lease=FakeLease(), recorder=film.recorder, planner=planner,
            limits=LIMITS,
        )  # fmt: skip
        async with at_work(controller):
            for second in range(seconds):
                film.world.step()
                event(cluster, second)
                film.trainers.append(len(film.world.jobs[A].live_trainers))
                await asyncio.sleep(1)

    run_virtual(main())
    assert not film.recorder.failures
    assert not film.recorder.problems
    return film


def test_trainers_shrink_for_serving_return_and_shrink_more_and_more_rarely() -> None:
    film = play(420)
    shrunk = [second for second, (n, m) in enumerate(pairwise(film.trainers)) if m < n]
    grown = [second for second, (n, m) in enumerate(pairwise(film.trainers)) if m > n]
    assert (min(film.trainers), max(film.trainers)) == (1, 4)
    assert film.pauses == ["30 s", "60 s", "120 s", "240 s"]
    assert len(shrunk) == len(grown) == 4
    offered = [grow - shrink for shrink, grow in zip(shrunk, grown, strict=True)]
    assert all(30 <= seconds <= 40 for seconds in offered)
    assert film.deleted == 12
    assert film.trainers[-1] == 4


def test_the_marks_are_in_the_record_and_the_replay_is_the_same() -> None:
    film = play(90)
    planned = [
        (snapshot, plan)
        for snapshot, plan in zip(film.recorder.views, film.recorder.plans, strict=True)
        if any(pod.unplaceable for pod in snapshot.pods)
    ]
    assert planned
    for snapshot, plan in planned:
        record = decode_record(encode_record(DecisionRecord("maxmin", LIMITS, snapshot, plan)))
        again = decide(record.snapshot, policy_named(record.policy), record.limits)
        assert replace(again, seconds=0.0) == replace(record.plan, seconds=0.0)
        assert again.serving.short == 1


def test_serving_that_is_bound_in_time_is_never_marked() -> None:
    def bind(cluster: FakeCluster, second: int) -> None:
        if second == 20:
            cluster.serving = (replace(STUCK, node="n000"),)

    film = play(200, bind)
    assert film.pauses == []
    assert film.deleted == 3
    assert film.trainers[-1] == 1


def test_no_trainer_is_deleted_for_another_pod_that_has_capacity_while_one_is_marked() -> None:
    """The other pod waits when the plan is begun, and is nominated before it is made."""
    other = replace(make_serving("db", cpu=2), tried=True)

    def come(cluster: FakeCluster, second: int) -> None:
        if second == 45:
            cluster.serving = (other, STUCK)

    def nominate(cluster: FakeCluster) -> None:
        if other in cluster.serving:
            cluster.serving = (replace(other, nominated="n000"), STUCK)

    film = play(46, come, cores=12, beside_plan=nominate)
    assert film.pauses == ["30 s"]
    assert film.trainers[44] == 12
    assert film.deleted == 0
    assert any("have capacity now" in said for said in film.recorder.put_off)
