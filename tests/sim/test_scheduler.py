"""The model of kube-scheduler: where it binds, whom it preempts, when it tries again."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from edl.model.pods import Pod
from edl.sim.kubelet import Kubelet
from edl.sim.scenario import LatencySpec, SchedulerSpec
from edl.sim.scheduler import Scheduler
from edl.sim.world import Engine, World
from tests.worlds.builders import make_node, make_shape


class Bench:
    """A world with a scheduler and kubelets, whose time the test advances."""

    def __init__(self, *cpus: float, spec: SchedulerSpec | None = None, stop_s: float = 5.0) -> None:
        self.now_s = 0.0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.world = World(make_node(f"n{i}", cpu) for i, cpu in enumerate(cpus))
        engine = Engine(lambda: self.now_s, self._later, random.Random(0))  # noqa: S311 - no secret
        Kubelet(self.world, engine, LatencySpec(start_s={"serving": (0, 0)}, stop_s={"serving": (stop_s, stop_s)}))
        self.scheduler = Scheduler(self.world, engine, spec or SchedulerSpec())

    def _later(self, pause_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (self.now_s + pause_s, next(self._order), call))

    def wait(self, duration_s: float) -> None:
        until_s = self.now_s + duration_s
        while self._timers and self._timers[0][0] <= until_s:
            self.now_s, _, call = heapq.heappop(self._timers)
            call()
        self.now_s = until_s

    def add(self, name: str, cpu: float, *, priority: int = 0, **fields: Any) -> None:
        pod = Pod("ns", name, f"uid-{name}", make_shape(cpu, 1), priority=priority, created_s=self.now_s)
        self.world.put(replace(pod, **fields))

    def node_of(self, name: str) -> str:
        return self.world.pods["ns", name].node

    def names(self) -> set[str]:
        return {name for _, name in self.world.pods}


def test_a_pod_goes_to_the_node_with_the_most_room() -> None:
    bench = Bench(4, 8)
    bench.add("a", 1)
    bench.wait(1)
    assert bench.node_of("a") == "n1"


def test_a_preferred_node_wins_over_more_room() -> None:
    bench = Bench(4, 8)
    bench.add("a", 1, planned="n0")
    bench.wait(1)
    assert bench.node_of("a") == "n0"


def test_a_pinned_pod_waits_for_its_node() -> None:
    bench = Bench(1, 8)
    bench.add("a", 2, planned="n0", pinned=True)
    bench.wait(1)
    assert bench.node_of("a") == ""
    assert bench.world.pods["ns", "a"].tried


def test_of_a_deployment_pods_spread_over_equal_nodes() -> None:
    bench = Bench(8, 8, 8)
    for i in range(3):
        pod = Pod("ns", f"web-{i}", f"u{i}", make_shape(0.001, 0.001))
        bench.world.put(pod, group="web")
        bench.wait(1)
    assert len({bench.node_of(f"web-{i}") for i in range(3)}) == 3


def test_the_pod_of_lowest_priority_is_preempted_and_the_fewest_that_do() -> None:
    bench = Bench(8)
    bench.add("base", 4, priority=-5)
    bench.add("small", 1, priority=-100)
    bench.add("large", 3, priority=-100)
    bench.wait(1)
    bench.add("web", 3)
    bench.wait(1)
    pods = bench.world.pods
    assert [pods["ns", name].terminating for name in ("base", "small", "large")] == [False, False, True]
    assert pods["ns", "web"].nominated == "n0"
    bench.wait(6)
    assert bench.node_of("web") == "n0"
    assert bench.scheduler.preempted == 1


def test_a_nominated_pod_does_not_preempt_again_while_its_victim_ends() -> None:
    bench = Bench(4, stop_s=20)
    bench.add("a", 2, priority=-100)
    bench.add("b", 2, priority=-100)
    bench.wait(1)
    bench.add("web", 2)
    bench.wait(15)
    assert bench.scheduler.preempted == 1


def test_room_for_a_nominated_pod_is_not_given_to_a_lesser_one() -> None:
    bench = Bench(4, 4, stop_s=5)
    bench.add("victim", 4, priority=-100)
    bench.add("other", 4, priority=-5)
    bench.wait(1)
    bench.add("web", 4)
    bench.wait(1)
    bench.add("late", 4, priority=-50)
    bench.world.drop(("ns", "other"))
    bench.wait(6)
    assert {bench.node_of("web"), bench.node_of("late")} == {"n0", "n1"}


def test_a_pod_does_not_pause_while_the_scheduler_has_nothing_else_to_do() -> None:
    bench = Bench(4, stop_s=0.3)
    bench.add("victim", 4, priority=-100)
    bench.wait(1)
    bench.add("web", 4)
    bench.wait(0.5)
    assert bench.node_of("web") == "n0", "its pause of a second after the first try is not over"


def test_whenever_a_bound_pod_is_gone_each_waiting_pod_is_tried_in_turn() -> None:
    bench = Bench(4, 1, spec=SchedulerSpec(pod_s=0.1, preempts=False))
    bench.add("large", 4)
    bench.add("small", 1, node="n1")
    bench.wait(1)
    for i in range(5):
        bench.add(f"web-{i}", 2)
    bench.wait(2)
    bench.world.drop(("ns", "large"))
    bench.wait(0.15)
    assert [i for i in range(5) if bench.node_of(f"web-{i}")] == [0]
    bench.wait(0.1)
    assert [i for i in range(5) if bench.node_of(f"web-{i}")] == [0, 1]
    bench.wait(5)
    bench.world.drop(("ns", "small"))
    bench.add("late", 1)
    bench.wait(0.35)
    assert bench.node_of("late") == "", "the three that wait are tried first, though they do not fit where it does"
    bench.wait(0.1)
    assert bench.node_of("late") == "n1"


def test_a_try_takes_longer_if_it_ends_with_a_new_status_of_the_pod() -> None:
    def behind_s(*, is_first: bool) -> float:
        """How long a pod that fits waits while the scheduler tries one again that waits for its victim."""
        bench = Bench(4, 1, 1, 1, spec=SchedulerSpec(preempt_s=1.0, pod_s=0.1), stop_s=20)
        bench.add("victim", 4, priority=-100)
        for i in range(3):
            bench.add(f"small-{i}", 1, node=f"n{i + 1}")
        bench.wait(1)
        bench.add("web", 4)
        bench.wait(3)
        if not is_first:
            bench.world.drop(("ns", "small-0"))
            bench.wait(5)
        bench.world.drop(("ns", "small-1"))
        bench.add("late", 1)
        began_s = bench.now_s
        while not bench.node_of("late"):
            bench.wait(0.05)
        return bench.now_s - began_s

    assert behind_s(is_first=True) == pytest.approx(1.1, abs=0.1), "the reason is a new one: a victim is still ending"
    assert behind_s(is_first=False) == pytest.approx(0.2, abs=0.1)


def test_a_pod_that_comes_while_another_is_tried_waits_for_its_end() -> None:
    bench = Bench(4, spec=SchedulerSpec(preempt_s=1.0), stop_s=20)
    bench.add("victim", 4, priority=-100)
    bench.wait(1)
    bench.add("web", 4)
    bench.wait(0.1)
    bench.add("late", 4)
    bench.wait(0.5)
    assert not bench.world.pods["ns", "late"].tried
    bench.wait(1)
    assert bench.world.pods["ns", "late"].tried


def test_pods_of_negative_priority_preempt_nobody() -> None:
    bench = Bench(4)
    bench.add("surplus", 4, priority=-100)
    bench.wait(1)
    bench.add("base", 4, priority=-5)
    bench.wait(30)
    assert bench.scheduler.preempted == 0


def test_a_pod_is_tried_again_once_it_fits() -> None:
    bench = Bench(4)
    bench.add("first", 4)
    bench.wait(1)
    bench.add("second", 4)
    bench.wait(30)
    bench.world.drop(("ns", "first"))
    bench.wait(0.1)
    assert bench.node_of("second") == "n0"


def test_the_old_scheduler_tries_again_only_after_growing_pauses() -> None:
    bench = Bench(4, spec=SchedulerSpec(retry="backoff", backoff_max_s=60, preempts=False))
    bench.add("first", 4)
    bench.wait(1)
    bench.add("second", 4)
    bench.wait(35)
    bench.world.drop(("ns", "first"))
    bench.wait(20)
    assert bench.node_of("second") == "", "its tries are at 1, 3, 7, 15, 31 and 63 seconds"
    bench.wait(15)
    assert bench.node_of("second") == "n0"


def test_in_a_large_cluster_a_hundred_feasible_nodes_end_the_search() -> None:
    bench = Bench(*[8] * 200, 16)
    for i in range(101):
        bench.add(f"p{i}", 8)
    bench.wait(5)
    assert bench.node_of("p0") != "n200", "the largest node is beyond the first hundred"
    assert len({bench.node_of(f"p{i}") for i in range(101)}) >= 100
