"""Who may lend CPU, and how much a trainer that lends still requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.lending import LEAST_CPU_MILLI, Lending, requested_milli
from edl.model.resources import CPU
from tests.worlds.builders import make_job


@pytest.mark.parametrize(
    ("lending", "fault_tolerant", "lenders"),
    [
        (Lending.SURPLUS, True, [2, 3]),
        (Lending.SURPLUS, False, []),
        (Lending.NEVER, True, []),
        (Lending.ALL, True, [0, 1, 2, 3]),
        (Lending.ALL, False, [0, 1, 2, 3]),
    ],
)
def test_surplus_lends_and_a_synchronous_job_lends_evenly_or_not_at_all(
    lending: Lending, fault_tolerant: bool, lenders: list[int]
) -> None:
    job = replace(make_job("ctr", min_trainers=2), lending=lending, fault_tolerant=fault_tolerant)
    assert [index for index in range(4) if job.may_lend(index)] == lenders


@pytest.mark.parametrize(
    ("declared", "fraction", "requested"),
    [
        (5000, 0.1, 500),
        (5000, 1.0, 5000),
        (1001, 0.5, 501),
        (3, 0.1, 3),
        (50, 0.01, LEAST_CPU_MILLI),
        (3000, 0.1, 300),
    ],
)
def test_a_trainer_requests_its_part_rounded_up_and_no_less_than_the_floor(
    declared: int, fraction: float, requested: int
) -> None:
    assert requested_milli(declared, fraction) == requested


def test_a_pod_requests_what_it_declares_without_what_it_lends() -> None:
    (pod,) = make_job("ctr", trainers=1, cpu=5, on=("n",)).pods
    assert pod.requested == pod.shape.request
    lent = replace(pod, lent_cpu_milli=4500)
    assert lent.requested.as_dict() == pod.shape.request.as_dict() | {CPU: 500}
