"""The operator changes a file: the next plan is made with what it holds now, and nothing old is kept."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from edl.model.limits import Limits, Quota
from edl.model.names import JobKey
from edl.model.tenants import TenantRule, Tenants, UnknownQueues
from tests.worlds.builders import make_job, make_nodes
from tests.worlds.simulated_controller import Living

A, B = JobKey("default", "a"), JobKey("team-b", "b")


def pods(count: int) -> Limits:
    return Limits(quotas=(Quota("default", (("pods", count),)),))


def test_a_changed_quota_counts_in_the_next_round_although_the_cluster_is_unchanged() -> None:
    with closing(Living(make_nodes(2, cpu=4), pods(3))) as living:
        living.do(lambda w: w.add(replace(make_job("a", max_trainers=12), cooldown_s=0.0)))
        living.settle()
        assert living.trainers(A) == 3
        living.changed_limits = pods(5)
        living.settle()
        assert living.trainers(A) == 5
        living.changed_limits = pods(2)
        living.settle()
        assert living.trainers(A) == 2


def test_a_changed_right_of_a_namespace_counts_for_jobs_that_were_seen_before() -> None:
    def limits(most: int) -> Limits:
        rules = (TenantRule("*", max_priority=0), TenantRule("team-b", max_priority=most))
        return Limits(tenants=Tenants(rules, UnknownQueues.ALLOW))

    with closing(Living(make_nodes(2, cpu=4), limits(0))) as living:
        living.do(lambda w: w.add(make_job("a", min_trainers=8, max_trainers=8)))
        living.settle()
        living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=4, tier=10)))
        living.settle()
        assert (living.trainers(A), living.trainers(B)) == (8, 0)
        living.changed_limits = limits(10)
        for _ in range(20):
            living.step(5.0)
        assert (living.trainers(A), living.trainers(B)) == (0, 8)
        degraded = living.status_of(B).condition("Degraded")
        assert degraded is not None
        assert degraded.reason == "AsExpected"
