"""What the controller would have cost."""

from __future__ import annotations

import pytest

from edl.controller.planning import plan_snapshot
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.shadow.costs import CostMeter, class_of, length_of, quantile, resident_bytes
from edl.shadow.document import Costs
from tests.worlds.builders import make_job, make_node, make_snapshot
from tests.worlds.job_owner import make_batch


def meter() -> CostMeter:
    return CostMeter(Costs(), {})


def plan(found: CostMeter, view: ClusterSnapshot) -> int:
    """How many more writes a plan would bring."""
    before = found.costs.writes
    found.planned(view, plan_snapshot(view, "", Limits()))
    return found.costs.writes - before


@pytest.mark.parametrize("seconds", [0.0, 1e-5, 0.001, 0.02, 1.0, 9.99])
def test_a_class_is_two_percent_wide(seconds: float) -> None:
    length = length_of(class_of(seconds))
    assert seconds <= length * (1 + 1e-9)
    assert length <= max(1e-4, 1.021 * seconds)


def test_quantiles_are_those_of_the_lengths() -> None:
    found = meter()
    for milliseconds in range(1, 101):
        found.decided(milliseconds / 1000, is_plan=True)
    found.decided(9.0, is_plan=False)
    costs = found.finish(60.0)
    assert costs.median_s == pytest.approx(0.05, rel=0.03)
    assert costs.p99_s == pytest.approx(0.099, rel=0.03)
    assert (costs.worst_s, costs.decisions, costs.failed) == (0.1, 100, 1)
    assert quantile({}, 0.5) is None


def test_a_new_job_brings_its_trainers_and_a_status_and_nothing_more_while_the_plan_stays() -> None:
    found, view = meter(), make_snapshot((make_node("n1"),), (make_job("ctr", max_trainers=6),))
    assert plan(found, view) == 6 + 1 + 1  # trainers, event, status
    assert plan(found, view) == 0


def test_a_job_of_another_controller_brings_one_patch_and_one_event() -> None:
    found, view = meter(), make_snapshot((make_node("n1"),), (make_batch("train", 2),))
    assert plan(found, view) == 2
    assert plan(found, view) == 0


def test_a_later_run_adds_its_cpu_to_that_of_the_ones_before() -> None:
    found = CostMeter(Costs(cpu_s=100.0, writes=30), {10: 5})
    costs = found.finish(600.0)
    assert costs.cpu_s > 100.0
    assert costs.cpu_share == pytest.approx(costs.cpu_s / 600.0)
    assert costs.writes_per_minute == 3.0
    assert costs.median_s == length_of(10)


def test_this_process_has_memory() -> None:
    assert resident_bytes() > 10 * 2**20
    found = meter()
    found.look()
    assert found.costs.rss_bytes > 10 * 2**20
