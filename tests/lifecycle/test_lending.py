"""Which new trainers lend CPU, and that they require the node for which the plan counted them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.lifecycle.lending import lend, nodes_without_lending
from edl.lifecycle.status import describe
from edl.lifecycle.step import Stage, Step
from edl.model.actions import CreatePod, EnsureService
from edl.model.lending import Lending
from edl.model.limits import LendingLimits, Limits
from edl.model.names import LABEL_LENDING, Role
from edl.model.status import LentCpu
from edl.model.tenants import TenantRule, Tenants
from tests.worlds.builders import make_job, make_node

JOB = make_job("ctr", min_trainers=2)
LENDS = Limits(lending=LendingLimits(surplus_cpu_request=0.1))


def new(index: int, node: str | None = "n007", role: Role = Role.TRAINER) -> CreatePod:
    return CreatePod(JOB.key, JOB.uid, role, index, node)


def test_surplus_trainers_lend_and_require_their_node() -> None:
    service = EnsureService(JOB.key, JOB.uid)
    actions = lend((service, new(1), new(2)), JOB, LENDS, {})
    assert actions == (service, new(1), replace(new(2), cpu_request=0.1, pinned=True))


def test_nothing_changes_while_the_operator_lends_nothing() -> None:
    assert lend((new(2),), JOB, Limits(), {}) == (new(2),)


def test_a_trainer_that_may_run_anywhere_requests_all_that_it_declares() -> None:
    assert lend((new(2, node=None),), JOB, LENDS, {}) == (new(2, node=None),)
    assert lend((new(2),), JOB, LENDS, {(JOB.uid, "ctr-trainer-2"): 1e9}) == (new(2),)


def test_masters_pservers_and_jobs_that_lend_never_request_all() -> None:
    pserver = new(5, role=Role.PSERVER)
    assert lend((pserver,), replace(JOB, lending=Lending.ALL), LENDS, {}) == (pserver,)
    assert lend((new(2),), replace(JOB, lending=Lending.NEVER), LENDS, {}) == (new(2),)


def test_the_status_shows_what_is_lent_and_how_many_are_slow() -> None:
    job = make_job("ctr", trainers=3, on=("n",))
    step = Step(Stage.RUNNING, 3, "AtMax", "", slowed=1)
    assert describe(job, step, 1000.0)[0].lending is None
    lends = replace(job, pods=tuple(replace(pod, lent_cpu_milli=900) for pod in job.pods[1:]))
    assert describe(lends, step, 1000.0)[0].lending == LentCpu(1800, 1)


@pytest.mark.parametrize(
    ("asked", "most", "lenders"),
    [
        (Lending.ALL, None, [1, 2]),
        (Lending.ALL, Lending.SURPLUS, [2]),
        (Lending.SURPLUS, Lending.ALL, [2]),
        (Lending.ALL, Lending.NEVER, []),
    ],
)
def test_a_namespace_lends_no_more_than_its_rule_says(
    asked: Lending, most: Lending | None, lenders: list[int]
) -> None:
    limits = replace(LENDS, tenants=Tenants((TenantRule("default", lending=most),)))
    found = lend((new(1), new(2)), replace(JOB, lending=asked), limits, {})
    assert [a.index for a in found if isinstance(a, CreatePod) and a.cpu_request < 1] == lenders


def test_no_trainer_lends_on_a_node_that_is_labelled_so() -> None:
    closed = nodes_without_lending(
        (make_node("n007", labels={LABEL_LENDING: "Never"}), make_node("n008", labels={LABEL_LENDING: "Surplus"}))
    )
    assert lend((new(2), new(3, "n008")), JOB, LENDS, {}, closed) == (
        new(2),
        replace(new(3, "n008"), cpu_request=0.1, pinned=True),
    )
