"""Trainers that are hosts of a TPU slice: no job may have a part of one."""

from __future__ import annotations

from typing import Any

import pytest

from edl.api.v1 import parse_job
from edl.errors import InvalidJobError
from tests.worlds.hostile.manifests import make_manifest

SLICE = "cloud.google.com/gke-tpu-topology"


def hosts(low: int, high: int, topology: str = "4x4", chips: str = "4", *, side: str = "limits") -> dict[str, Any]:
    """A job of so many trainers with chips on nodes of a slice."""
    job = make_manifest()
    trainer = job["spec"]["trainer"]
    trainer |= {"min-instance": low, "max-instance": high}
    trainer["resources"] = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    trainer["resources"][side] |= {"google.com/tpu": chips}
    trainer["template"] = {"spec": {"nodeSelector": {SLICE: topology}}}
    job["spec"]["fault_tolerant"] = True
    return job


@pytest.mark.parametrize(
    ("low", "high", "topology", "chips", "says"),
    [
        (1, 8, "4x4", "4", "so 4 work together or not at all, but min-instance 1 and max-instance 8 allow a part"),
        (4, 8, "4x4", "4", "set both bounds to one multiple of 4"),
        (6, 6, "4x4", "4", "6 of them end with a part of a slice"),
        (1, 1, "2x2x2", "4", "2x2x2 has 8 chips, and each requests 4"),
        (2, 3, "2x4", "1", "so 8 work together"),
        (2, 3, "2x4", "3", "so 3 work together"),
    ],
)
def test_a_part_of_a_slice_is_refused_with_the_numbers(
    low: int, high: int, topology: str, chips: str, says: str
) -> None:
    for side in ("limits", "requests"):
        with pytest.raises(InvalidJobError) as caught:
            parse_job(hosts(low, high, topology, chips, side=side))
        assert f"the trainers are hosts of a TPU slice: {SLICE} {topology}" in str(caught.value)
        assert says in str(caught.value)


@pytest.mark.parametrize(
    ("low", "high", "topology", "chips"),
    [
        (4, 4, "4x4", "4"),
        (8, 8, "4x4", "4"),
        (1, 8, "2x2", "4"),
        (1, 8, "1x1", "1"),
        (1, 8, "", "4"),
        (1, 8, "big", "4"),
        (1, 8, "4x4", "0"),
    ],
)
def test_whole_slices_and_slices_of_one_host_are_accepted(low: int, high: int, topology: str, chips: str) -> None:
    assert parse_job(hosts(low, high, topology, chips)).spec.trainer.bounds == (low, high)


def test_an_amount_that_is_no_count_of_chips_is_one_problem() -> None:
    with pytest.raises(InvalidJobError) as caught:
        parse_job(hosts(1, 8, chips="4k"))
    assert len(caught.value.problems) == 1
