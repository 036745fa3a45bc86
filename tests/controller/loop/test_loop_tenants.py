"""Whose work stops for whose is the operator's: priorities and queues by namespace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from edl.model.limits import Limits, Quota
from edl.model.names import JobKey
from edl.model.tenants import TenantRule, Tenants, UnknownQueues
from tests.worlds.builders import make_job, make_nodes
from tests.worlds.simulated_controller import Living

A, B = JobKey("default", "a"), JobKey("team-b", "b")


def world(*rules: TenantRule, unknown: UnknownQueues = UnknownQueues.ALLOW, **pods: int) -> Living:
    quotas = tuple(Quota(queue, (("pods", n),)) for queue, n in sorted(pods.items()))
    return Living(make_nodes(2, cpu=4), Limits(quotas=quotas, tenants=Tenants(rules, unknown)))


@pytest.fixture
def honest() -> Iterator[Living]:
    with closing(world(TenantRule("*", max_priority=0, queues=("default",)))) as living:
        living.do(lambda w: w.add(make_job("a", min_trainers=8, max_trainers=8)))
        living.settle()
        yield living


def test_a_priority_beyond_what_its_namespace_may_use_unadmits_nobody(honest: Living) -> None:
    honest.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=4, tier=1_000_000)))
    for _ in range(20):
        honest.step(5.0)
    assert (honest.trainers(A), honest.trainers(B)) == (8, 0)
    degraded = honest.status_of(B).condition("Degraded")
    assert degraded is not None
    assert degraded.reason == "PriorityLimited"
    assert degraded.message.startswith("spec.priority 1000000 counts as 0, the most that namespace team-b may use")


def test_a_namespace_may_use_the_priority_that_the_operator_gave_it() -> None:
    with closing(world(TenantRule("*", max_priority=0), TenantRule("team-b", max_priority=10))) as living:
        living.do(lambda w: w.add(make_job("a", min_trainers=8, max_trainers=8)))
        living.settle()
        living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=4, tier=10)))
        for _ in range(20):
            living.step(5.0)
        assert (living.trainers(A), living.trainers(B)) == (0, 8)


def test_a_queue_that_is_not_open_to_the_namespace_gives_no_pods_and_says_so(honest: Living) -> None:
    honest.do(lambda w: w.edit(A, min_trainers=2))
    honest.do(lambda w: w.add(replace(make_job("b", namespace="team-b"), queue="gold")))
    honest.settle()
    assert (honest.trainers(A), honest.trainers(B)) == (8, 0)
    assert honest.status_of(B).reason == "QueueNotAllowed"
    assert honest.status_of(B).explanation == "queue gold is not open to namespace team-b; use default"
    honest.do(lambda w: w.edit(B, queue="default"))
    honest.settle()
    assert honest.trainers(B) > 0


@pytest.mark.parametrize(
    ("unknown", "count", "reason"),
    [(UnknownQueues.ALLOW, 8, "AtMax"), (UnknownQueues.DEFAULT, 3, "QuotaReached"), (UnknownQueues.REFUSE, 0, "")],
)
def test_a_queue_that_is_not_in_the_file_is_treated_as_configured(
    unknown: UnknownQueues, count: int, reason: str
) -> None:
    with closing(world(unknown=unknown, default=3, blue=8)) as living:
        living.do(lambda w: w.add(replace(make_job("a", max_trainers=8), queue="of-my-own")))
        living.settle()
        assert living.trainers(A) == count
        status = living.status_of(A)
        assert status.reason == (reason or "QueueNotAllowed")
        if not count:
            assert status.explanation == "queue of-my-own does not exist; use a Queue of the cluster or of --queues"


def test_the_default_queue_can_be_limited() -> None:
    with closing(world(default=3)) as living:
        living.do(lambda w: w.add(make_job("a", max_trainers=8)))
        living.settle()
        assert living.trainers(A) == 3
