"""A thousand queues cost a job about what ten queues cost it, counted in calls."""

from __future__ import annotations

from benchmarks.calls import calls_of
from benchmarks.queues import LIMITS, with_queues
from benchmarks.worlds import fleet
from edl.explain.decision import decide
from edl.planner.policies.registry import policy_named
from edl.planner.queues.borrowing import borrowing_quotas

JOBS = 1000
MOST_TIMES = 2.0
"""The plans differ, because the quotas do, and one plan takes more steps than another."""


def decision_calls(queues: int) -> int:
    """The calls of a whole decision for 1,000 jobs in so many queues."""
    snapshot = with_queues(fleet(60, JOBS), queues)
    return calls_of(lambda: decide(snapshot, policy_named("maxmin"), LIMITS))


def share_calls(queues: int, jobs: int) -> int:
    """The calls of the shares alone."""
    snapshot = with_queues(fleet(20, jobs), queues)
    return calls_of(lambda: borrowing_quotas(snapshot))


def test_a_decision_with_a_thousand_queues_costs_a_job_what_it_costs_with_ten() -> None:
    assert decision_calls(1000) <= MOST_TIMES * decision_calls(10)


def test_the_shares_cost_as_much_as_there_are_queues_and_jobs_and_not_their_product() -> None:
    assert share_calls(2000, 2000) <= 2.2 * share_calls(1000, 1000)
