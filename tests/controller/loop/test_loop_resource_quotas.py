"""A ResourceQuota of a namespace is planned for: nobody is shrunk beyond it, and no request is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from edl.model.actions import CreatePod, Result
from edl.model.cluster import ResourceQuota
from edl.model.names import JobKey
from tests.worlds.builders import make_job, make_nodes
from tests.worlds.simulated_controller import Living

A, B, C = JobKey("default", "a"), JobKey("team-b", "b"), JobKey("team-b", "c")


@pytest.fixture
def living() -> Iterator[Living]:
    with closing(Living(make_nodes(5, cpu=4))) as made:
        made.do(lambda w: w.add(make_job("a", min_trainers=2, max_trainers=20)))
        made.settle()
        yield made


def limit(living: Living, *, others: int = 0, **hard: int) -> None:
    amounts = tuple(sorted(hard.items()))
    pods = (("pods", others),) if others else ()
    living.do(lambda w: w.quotas.update({"team-b": ResourceQuota("team-b", "small", amounts, others=pods)}))
    living.do(lambda w: w.changed.set())


def refused(living: Living) -> int:
    return sum(o.result is Result.REFUSED for o in living.recorder.outcomes)


def test_a_job_grows_up_to_the_quota_of_its_namespace_without_a_refused_request(living: Living) -> None:
    limit(living, pods=7, others=3)
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    counts = set()
    for _ in range(20):
        living.step(5.0)
        counts.add(living.trainers(A))
    assert (living.trainers(B), min(counts)) == (4, 16)
    assert refused(living) == 0
    assert living.status_of(B).reason == "QuotaReached"
    assert living.status_of(B).explanation == (
        "4 of 20: ResourceQuota small of namespace team-b uses all of its quota of 7 pods; a trainer requests 1 pod"
    )


def test_a_job_whose_minimum_exceeds_the_quota_takes_nothing_and_keeps_nobody_waiting(living: Living) -> None:
    limit(living, cpu=1000)
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    living.settle()
    assert (living.trainers(A), living.trainers(B)) == (20, 0)
    assert (
        living.status_of(B).explanation == "its minimum exceeds the quota of ResourceQuota small of namespace team-b"
    )
    assert refused(living) == 0


def test_two_jobs_of_a_namespace_share_its_quota_although_terminating_pods_still_count(living: Living) -> None:
    limit(living, pods=8)
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    living.settle()
    living.do(lambda w: w.add(make_job("c", namespace="team-b", min_trainers=2, max_trainers=20)))
    for _ in range(40):
        living.step(2.0)
    assert living.trainers(B) + living.trainers(C) == 8
    assert living.trainers(C) >= 2
    assert living.trainers(A) == 12
    assert refused(living) == 0


def test_a_lowered_quota_deletes_no_running_trainer(living: Living) -> None:
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    living.settle()
    before = living.trainers(B)
    limit(living, pods=3)
    for _ in range(30):
        living.step(5.0)
    assert living.trainers(B) == before == 10


def test_a_raised_quota_is_used_at_once(living: Living) -> None:
    limit(living, pods=3)
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    living.settle()
    limit(living, pods=9)
    for _ in range(20):
        living.step(5.0)
    assert living.trainers(B) >= 8


def test_a_quota_that_edl_may_not_read_is_found_by_its_refusals(living: Living) -> None:
    living.world.hides_quotas = True
    limit(living, pods=4)
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    for _ in range(60):
        living.step(5.0)
    created = [o for o in living.recorder.outcomes if isinstance(o.action, CreatePod) and o.action.job == B]
    assert living.trainers(B) == 4
    assert living.trainers(A) == 16
    assert sum(o.result is Result.REFUSED for o in created) <= 16
    assert "ResourceQuota small of its namespace is used up" in living.status_of(B).explanation
