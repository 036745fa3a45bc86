"""A Job and a PyTorchJob whose Workloads edl makes, in a loop with models of their controllers and of Kueue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl.kube.workloads.registry import SUSPENDING
from tests.worlds.kueue.owned_jobs import LOW, OwnedJobModel, owned_batch_job, owned_pytorch_job
from tests.worlds.raw_objects import Object, decoded

KINDS: tuple[Callable[[], Object], ...] = (owned_batch_job, owned_pytorch_job)
EVENTS = st.lists(st.one_of(st.integers(1, 4), st.just(0)), min_size=1, max_size=5)


@dataclass
class SlowKueue(OwnedJobModel):
    """Kueue that admits one Workload at a time, each so many seconds after it was made and after the one before."""

    takes_s: int = 6
    last_s: int = 0

    def _admit(self) -> None:
        due = [one for one in self.own.values() if one.state == "waiting" and self.now - one.at >= self.takes_s]
        if due and self.now - self.last_s >= self.takes_s:
            min(due, key=lambda one: one.index).state, self.last_s = "admitted", self.now


def is_suspended(body: Object) -> bool:
    spec: Object = body["spec"]
    return bool(spec["suspend"] if body["kind"] == "Job" else spec["runPolicy"]["suspend"])


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("reclaims", [True, False])
@given(events=EVENTS)
@settings(max_examples=5, deadline=None)
def test_owners_get_their_own_and_the_job_has_all_that_is_left(
    make: Callable[[], Object], reclaims: bool, events: list[int]
) -> None:
    model = OwnedJobModel(reclaims, make())
    model.settle()
    assert len(model.live) == 10
    for number, size in enumerate(events):
        total = sum(one[1] for one in model.others.values())
        if not size or total + size > 6:
            model.others = dict(list(model.others.items())[1:])
        else:
            model.others[f"owner-{number}"] = "green", size, 0, model.now, False
        before = model.live
        model.settle()
        left = 10 - sum(one[1] for one in model.others.values())
        assert all(one[4] for one in model.others.values()), "every owner has its own"
        assert (len(model.pods), len(model.own)) == (left, left - LOW + 1)
        assert before <= model.live or model.live <= before, "none ended to start again"
        assert {one.state for one in model.own.values()} == {"admitted"}
        writes = model.writes
        model.settle(3)
        assert model.writes == writes, "nothing is written at rest"


@pytest.mark.parametrize("make", KINDS)
def test_a_base_that_is_evicted_suspends_the_job_and_starts_again_with_the_nodes_of_its_flavor(
    make: Callable[[], Object],
) -> None:
    model = OwnedJobModel(True, make())
    model.settle()
    assert not is_suspended(model.body)
    assert set(map(str, model.selectors.values())) == {"{'pool': 'a'}"}
    model.others["high"] = "blue", 10, 10, model.now, False
    model.settle()
    assert model.others["high"][4]
    assert is_suspended(model.body)
    assert not model.pods
    assert {one.index: one.state for one in model.own.values()} == {0: "waiting"}
    del model.others["high"]
    model.settle()
    assert (len(model.live), is_suspended(model.body)) == (10, False)


@pytest.mark.parametrize("make", KINDS)
def test_a_job_that_its_owner_starts_before_kueue_has_admitted_it_is_suspended(make: Callable[[], Object]) -> None:
    body = make()
    (body["spec"] if body["kind"] == "Job" else body["spec"]["runPolicy"])["suspend"] = False
    model = OwnedJobModel(True, body)
    model.others["first"] = "blue", 9, 0, 0, True
    adapter = SUSPENDING[model.key.kind]
    model.now += 1
    job = model.seen()
    assert job.owner_count
    model.turn()
    assert adapter.count(decoded(model.body)) == 0
    model.settle()
    assert not model.pods
    del model.others["first"]
    model.settle()
    assert len(model.live) == 10


def test_beside_a_kueue_that_needs_six_seconds_for_each_pod_the_job_has_all_that_is_left() -> None:
    """What edl took back after five seconds, Kueue never admitted."""
    model = SlowKueue(True, owned_batch_job())
    model.settle(65)
    assert len(model.live) == 10
    writes = model.writes
    model.settle(3)
    assert model.writes == writes, "nothing is written at rest"
