"""A batch Job that fits by its template and not by its pods, however late its controller and kube-scheduler look.

What a plan counts for it is learned from the pods that were made. Between the stop by edl and the end of those pods
kube-scheduler may still preempt others for them.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from edl.sim.virtual_time import START_S
from tests.worlds.storms.play import Played, play_hour
from tests.worlds.storms.random_hour import Hour, JobPlan
from tests.worlds.storms.troubles import Kind, Trouble

LASTS_S = 300.0
LOOKS_S = (0.0, 2.5, 20.0)
ORDERS = list(product(LOOKS_S, LOOKS_S))
NEIGHBOUR = JobPlan("blue", "neighbour", "elastic", low=1, high=7, cores=1)
SIDE = JobPlan("red", "side", "batch", low=6, high=7, cores=1, comes_s=30.0)
"""Six pods of a core fit on the node of eight, and with the sidecar of half a core only five do."""
SIDECARS = Trouble(Kind.WEBHOOK_INJECTS, "red", START_S, 1e9)


@cache
def played(owner_s: float, scheduler_s: float) -> Played:
    hour = Hour(0, 1, (NEIGHBOUR, SIDE), (), (SIDECARS,), owner_s, scheduler_s, LASTS_S)
    with TemporaryDirectory() as folder:
        return play_hour(hour, Path(folder))


def resizes(hour: Played) -> list[tuple[float, int]]:
    """When edl gave the Job another count, and which."""
    found = [one for one in hour.server.asked if one.method == "PATCH" and "/jobs/side" in one.path]
    return [(one.at_s, one.body["spec"]["parallelism"]) for one in found if "parallelism" in one.body.get("spec", {})]


def made(hour: Played) -> dict[str, list[float]]:
    """When each trainer of the neighbour was made."""
    return {name: times for (_, name), times in hour.rules.made_by_name.items() if "/neighbour-trainer-" in name}


@pytest.mark.parametrize(("owner_s", "scheduler_s"), ORDERS)
def test_it_is_stopped_once_and_costs_no_trainer_of_its_neighbour_twice(owner_s: float, scheduler_s: float) -> None:
    hour = played(owner_s, scheduler_s)
    assert hour.broken == []
    assert [count for _, count in resizes(hour)] == [0]
    lost = Counter({name: len(times) - 1 for name, times in made(hour).items()})
    assert len(lost) == NEIGHBOUR.high
    assert max(lost.values()) <= 1, lost
    (neighbour,) = hour.server.objects("trainingjobs.paddlepaddle.org")
    assert neighbour["status"]["trainer"]["ready"] == NEIGHBOUR.high


def test_kube_scheduler_may_preempt_for_its_pods_after_the_stop() -> None:
    """So whoever counts a neighbour's trainers at the stop may count them before they are lost."""
    orders = [played(owner_s, scheduler_s) for owner_s, scheduler_s in ORDERS]
    preempted = [hour.life.preempted_s[0] - resizes(hour)[0][0] for hour in orders if hour.life.preempted_s]
    assert min(preempted) < 0 < max(preempted)
