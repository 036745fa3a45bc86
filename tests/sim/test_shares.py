"""How the CPU of a node is divided between serving and trainers that lend."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.pods import Pod
from edl.sim.shares import shares_of
from tests.worlds.builders import make_job, make_serving

BASE, FIRST, SECOND = make_job("ctr", trainers=3, cpu=5, on=("n",)).pods


def lends(pod: Pod, milli: int = 4500) -> Pod:
    return replace(pod, lent_cpu_milli=milli)


def serving(cpu: float) -> Pod:
    return make_serving("web-0", cpu=cpu, node="n")


def test_a_trainer_that_lends_has_all_of_its_cpu_while_nobody_uses_it() -> None:
    assert shares_of(12_000, [BASE, lends(FIRST)]) == {FIRST.uid: 1.0}


def test_serving_and_trainers_that_do_not_lend_have_theirs_first() -> None:
    assert shares_of(12_000, [BASE, lends(FIRST), serving(5)]) == {FIRST.uid: pytest.approx(0.4)}


def test_trainers_that_lend_share_by_their_requests() -> None:
    found = shares_of(12_000, [lends(FIRST, 4500), lends(SECOND, 4000), serving(9)])
    assert found == {FIRST.uid: pytest.approx(0.2), SECOND.uid: pytest.approx(0.4)}


def test_what_one_cannot_use_the_other_has() -> None:
    found = shares_of(12_000, [lends(FIRST, 4900), lends(SECOND, 1000), serving(5)])
    assert found == {SECOND.uid: 1.0, FIRST.uid: pytest.approx(0.4)}


def test_a_pod_that_does_not_run_yet_uses_nothing() -> None:
    waiting = replace(make_serving("web-0", cpu=9), node="n")
    assert shares_of(12_000, [lends(FIRST), waiting]) == {FIRST.uid: 1.0}
