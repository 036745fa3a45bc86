"""What a pod may list is bounded; what is beyond a bound is named with the bound and a remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.model.jobs import FixedPods
from edl.model.names import Role
from edl.model.pod_limits import MAX_TERMS, excess_of
from edl.model.resources import NodeTerm, Preference
from tests.worlds.builders import make_job, make_shape
from tests.worlds.oversized_pods import SHAPES, job_at_limits, keeps_away_from, oversized_serving


@pytest.mark.parametrize("kind", SHAPES)
def test_names_what_exceeds_a_limit_and_the_remedy(kind: str) -> None:
    shape, says = SHAPES[kind]

    assert excess_of(shape) == f"{says} that a pod may have; list fewer"


def test_preferences_count_like_requirements() -> None:
    preference = Preference(1, NodeTerm((keeps_away_from(40),)))

    assert not excess_of(make_shape(), (preference,) * 50)
    assert "2040 values of the node affinity" in excess_of(make_shape(), (preference,) * 51)
    assert "65 terms of the preferred" in excess_of(make_shape(), (preference,) * (MAX_TERMS + 1))


def test_a_job_names_the_role_that_exceeds_a_limit() -> None:
    job = make_job("a", fixed=(FixedPods(Role.PSERVER, SHAPES["tolerations"][0], 1),))

    assert job.excess.startswith("pserver: 10000 tolerations")
    assert not make_job("a").excess


def test_a_job_at_the_limits_is_within_them() -> None:
    assert not job_at_limits(0).excess


@pytest.mark.parametrize("kind", SHAPES)
def test_no_room_is_made_for_a_pod_beyond_a_limit(kind: str) -> None:
    pod = oversized_serving(kind)

    assert pod.is_waiting_serving
    assert not pod.needs_capacity
    assert replace(pod, shape=make_shape()).needs_capacity
