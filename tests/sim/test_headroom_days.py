"""The first hours of the two weeks, in the simulator: what `make two-weeks` runs in full."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from benchmarks.headroom import CHARGED, nodes, waiting_within
from edl.sim.policies import Decider
from edl.sim.simulation import Run, simulate

HOURS = 4
_decide = Decider.__call__


@cache
def run(headroom: int | str, hours: int = HOURS) -> Run:
    done = simulate(nodes(headroom, CHARGED, hours / 24), "maxmin", 0)
    assert done.problems == ()
    return done


def test_learned_room_is_between_none_and_foresight() -> None:
    none, learned, foresight = (run(rule).figures["serving_shortfall_pod_s"] for rule in (0, "auto", "foresight"))
    assert foresight < learned < none
    assert run("auto").figures["trainers_preempted"] < run(0).figures["trainers_preempted"]
    assert run("foresight").figures["trainers_preempted"] == 0


def test_room_costs_utilisation() -> None:
    assert run("auto").figures["utilisation"] < run(0).figures["utilisation"]


def test_a_seed_gives_the_same_figures_on_a_slower_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    first = run("auto", 1)
    monkeypatch.setattr(Decider, "__call__", lambda self, *args: replace(_decide(self, *args), seconds=1.0))
    assert run.__wrapped__("auto", 1).figures == first.figures


def test_the_parts_of_the_waiting_add_up() -> None:
    done = run(0)
    parts = waiting_within(done, 0, 5000) + waiting_within(done, 5000, HOURS * 3600)
    assert abs(parts - done.figures["serving_shortfall_pod_s"]) < 1e-6


def test_another_load_has_other_hours_of_the_same_service() -> None:
    first, second = (nodes(0, load=load).serving[0].replicas for load in (0, 1))
    assert first != second
    assert max(pods for _, pods in first) == pytest.approx(max(pods for _, pods in second), rel=0.2)
