"""How many serving pods fit if no training runs: pods that may go to few nodes do not lose these to others."""

from __future__ import annotations

import pytest

from edl.model.limits import Limits
from edl.planner.minimums.serving import count_serving
from edl.planner.problem_reader import read_problem
from edl.planner.programs.engine import with_engine
from tests.worlds.builders import make_nodes, make_serving, make_snapshot, only_on


@pytest.mark.parametrize("tied", [20, 105])
def test_larger_pods_go_where_no_smaller_pod_must_go(tied: int) -> None:
    nodes = make_nodes(tied + 5)
    small = (only_on(make_serving(f"small-{i:03d}", cpu=2), node.name) for i, node in enumerate(nodes[:tied]))
    large = (make_serving(f"large-{i}", cpu=7) for i in range(5))
    problem = with_engine(read_problem(make_snapshot(nodes, (), (*small, *large)), Limits()))
    served = count_serving(problem, 60.0)
    assert (sum(served.due.values()), served.short) == (tied + 5, 0)
