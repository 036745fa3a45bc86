"""Every metric of waiting, resizing, progress and headroom moves while the real controller runs in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits, ServingLimits
from edl.model.names import JobKey
from edl.model.plan import ScalePlan
from edl.model.progress import Measured, Progress, Speed
from edl.model.status import Resize
from edl.observability.metrics import Metrics
from edl.observability.recorder import ControllerRecorder
from tests.worlds.builders import make_job, make_nodes
from tests.worlds.fakes import FakeRecorder
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living
from tests.worlds.simulated_objects import now_s

A = JobKey("default", "a")


@dataclass
class MeasuringRecorder(FakeRecorder):
    """Keeps what it is given, and sets the metrics as in a live controller."""

    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.real = ControllerRecorder(self.metrics, policy="maxmin")

    async def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        await super().observed(snapshot, leader=leader)
        await self.real.observed(snapshot, leader=leader)

    async def planned(self, snapshot: ClusterSnapshot, limits: Limits, plan: ScalePlan) -> None:
        await super().planned(snapshot, limits, plan)
        await self.real.planned(snapshot, limits, plan)

    def value(self, series: str) -> float:
        """The value of a series, such as `edl_job_wait_seconds_count{reached=first}`."""
        found = {}
        for family in text_string_to_metric_families(self.metrics.render().decode()):
            for sample in family.samples:
                labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found.get(series, -1.0)


class Scene(Living):
    """A cluster whose controller sets metrics; `restart` starts one that remembers nothing."""

    def __init__(self, limits: Limits, cores: int) -> None:
        self.measured = MeasuringRecorder()
        super().__init__(make_nodes(2, cpu=cores), limits, self.measured)
        self.step()

    def restart(self) -> None:
        self.measured = self.recorder = MeasuringRecorder()
        self.crash()

    def submit(self, job: Job) -> None:
        self.do(lambda world: world.add(replace(job, created_s=now_s())))

    def value(self, series: str) -> float:
        return self.measured.value(series)


def scene(limits: Limits | None = None, cores: int = 4) -> Scene:
    return Scene(limits or Limits(), cores)


@pytest.fixture
def training() -> Iterator[Scene]:
    """Eight cores, all used by job a."""
    with closing(scene()) as living:
        living.submit(make_job("a", min_trainers=2, max_trainers=8))
        living.settle()
        yield living


def waits(scene: Scene) -> list[float]:
    return [scene.value(f"edl_job_wait_seconds_count{{reached={r}}}") for r in ("first", "minimum", "maximum")]


def test_a_job_is_counted_once_at_its_first_its_minimum_and_its_maximum(training: Scene) -> None:
    assert waits(training) == [1, 1, 1]
    seconds = training.value("edl_job_wait_seconds_sum{reached=maximum}")
    assert 0 < seconds < 30
    training.do(lambda world: world.take_away("a-trainer-7"))
    training.settle()
    assert waits(training) == [1, 1, 1], "a trainer that was replaced is no second wait"


def test_a_job_that_waits_for_its_minimum_shows_its_age_until_it_starts(training: Scene) -> None:
    training.submit(make_job("b", min_trainers=7, max_trainers=7))
    for _ in range(10):
        training.step(5.0)
    assert training.value("edl_oldest_waiting_job_seconds") >= 45
    assert waits(training) == [1, 1, 1]
    training.do(lambda world: world.delete_job(A))
    training.settle()
    assert training.value("edl_oldest_waiting_job_seconds") == 0
    assert waits(training) == [2, 2, 2]
    assert training.value("edl_job_wait_seconds_sum{reached=minimum}") >= 45


def test_a_controller_that_starts_again_counts_no_old_wait_and_no_old_resize(training: Scene) -> None:
    training.restart()
    for _ in range(5):
        training.step(5.0)
    assert waits(training) == [0, 0, 0]
    assert training.value("edl_resize_recovery_seconds_count{direction=up}") == 0


def test_a_standby_counts_nothing(training: Scene) -> None:
    training.do(lambda world: world.delete_job(A))
    training.settle()
    training.restart()
    training.lease.held = False
    training.step()
    training.submit(make_job("b", max_trainers=2))
    training.step()
    assert waits(training) == [0, 0, 0]


def test_serving_that_waits_for_trainers_is_counted_apart_from_serving_that_finds_room(
    training: Scene,
) -> None:
    training.do(lambda world: world.serve("web", 3))
    training.settle()
    assert training.value("edl_serving_wait_seconds_count{behind=training}") == 1
    assert training.value("edl_serving_wait_seconds_sum{behind=training}") >= 10
    training.do(lambda world: world.delete_job(A))
    training.settle()
    training.do(lambda world: world.serve("api", 1))
    training.settle()
    assert training.value("edl_serving_wait_seconds_count{behind=training}") == 1
    assert training.value("edl_serving_wait_seconds_count{behind=other}") == 1


def test_a_resize_is_complete_when_the_pods_are_there_or_gone(training: Scene) -> None:
    assert training.value("edl_resize_recovery_seconds_count{direction=down}") == 0
    training.do(lambda world: world.serve("web", 3))
    training.settle()
    assert training.value("edl_resize_recovery_seconds_count{direction=down}") == 1
    assert 5 <= training.value("edl_resize_recovery_seconds_sum{direction=down}") < 30, "the grace of a pod is 5 s"
    ups = training.value("edl_resize_recovery_seconds_count{direction=up}")
    training.do(leave)
    for _ in range(60):
        training.step(5.0)
    assert training.value("edl_resize_recovery_seconds_count{direction=up}") == ups + 1


def leave(world: World) -> None:
    world.serving.clear()
    world.changed.set()


def test_the_measured_cost_of_a_resize_is_counted_once(training: Scene) -> None:
    cost = Resize(5_000.0, 4, 8, "AtMax", lost_s=2.5)
    training.do(lambda world: world.forge(A, last_resize=cost))
    for _ in range(3):
        training.step()
    assert training.value("edl_resize_cost_seconds_count{direction=up}") == 1
    assert training.value("edl_resize_cost_seconds_sum{direction=up}") == 2.5


def test_fulfilment_falls_when_serving_takes_room(training: Scene) -> None:
    assert training.value("edl_fulfilment_ratio") == 1
    training.do(lambda world: world.serve("web", 3))
    training.settle()
    assert training.value("edl_fulfilment_ratio") == 5 / 8


def test_speed_and_epoch_are_those_of_the_status_and_end_with_the_job(training: Scene) -> None:
    speeds = Measured((Speed(4, 40.0, 60.0), Speed(8, 70.0, 60.0)))
    training.do(lambda world: world.forge(A, measured=speeds, dataset=Progress(1, 25, 100)))
    training.step()
    assert training.value("edl_job_samples_per_second{job=a,namespace=default}") == 70
    assert training.value("edl_job_epoch_done_ratio{job=a,namespace=default}") == 0.25
    training.do(lambda world: world.delete_job(A))
    training.settle()
    assert training.value("edl_job_samples_per_second{job=a,namespace=default}") == -1
    assert training.value("edl_job_epoch_done_ratio{job=a,namespace=default}") == -1


def test_headroom_is_held_and_then_used() -> None:
    with closing(scene(Limits(serving=ServingLimits(headroom=1)))) as living:
        living.do(lambda world: world.serve("web", 2))
        living.submit(make_job("a", min_trainers=1, max_trainers=8))
        living.settle()
        assert living.value("edl_headroom_pods{state=wanted}") == 1
        assert living.value("edl_headroom_pods{state=held}") == 1
        living.do(lambda world: world.serve("api", 2))
        living.wait(1.0)
        living.do(World.live)
        living.round()
        assert living.value("edl_headroom_pods{state=wanted}") == 1
        assert living.value("edl_headroom_pods{state=held}") == 0
        living.do(lambda world: world.delete_job(A))
        living.settle()
        assert living.value("edl_headroom_pods{state=held}") == 1


def test_the_number_of_series_does_not_grow_with_the_jobs_that_have_been() -> None:
    with closing(scene()) as living:
        sizes = []
        for number in range(3):
            key = JobKey("default", f"job-{number}")
            living.submit(make_job(key.name, max_trainers=2))
            living.settle()
            living.do(partial(World.delete_job, key=key))
            living.settle()
            sizes.append(len(living.measured.metrics.render().splitlines()))
        assert len(set(sizes)) == 1
