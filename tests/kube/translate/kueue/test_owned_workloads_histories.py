"""Every history of small Jobs whose Workloads edl makes: no pod without quota, and everything comes to rest."""

from __future__ import annotations

import pytest

from tests.worlds.kueue.loops import loops
from tests.worlds.kueue.owned_histories import BLUE, GREEN, OTHERS, Histories, Sized, State

OWNER, URGENT, SCALED = {"owner comes", "owner goes"}, {"urgent comes", "urgent goes"}, {"train scaled"}
LOAD = {"load rises", "load falls"}
WHOLE = 2000
"""More states than any scene of one Job has."""


@pytest.mark.parametrize("reclaims", [True, False])
@pytest.mark.parametrize(
    ("jobs", "events", "most"),
    [
        (("train",), OWNER, WHOLE),
        (("train",), URGENT, WHOLE),
        (("train",), SCALED, WHOLE),
        (("train", "next"), {"owner comes"}, 120),
        (("train", "next"), LOAD, 60),
        (("train",), {"owner comes", "load rises"}, 120),
    ],
)
def test_no_pod_is_without_quota_and_every_state_comes_to_rest(
    jobs: tuple[str, ...], events: set[str], most: int, reclaims: bool
) -> None:
    histories = Histories(reclaims)
    found = histories.search(State(tuple(map(Sized, jobs)), left=frozenset(events)), most)
    assert len(found) < WHOLE
    assert not histories.broken, histories.broken[0]
    assert not [name for name, _ in loops(found, histories.steps, ("waits",)) if " acts" in name]
    for state, way in found.items():
        rest = histories.rest(state)
        assert rest is not None, f"never at rest after {way}"
        others = dict(rest.others)
        assert all(others.values()), f"somebody waits after {way}"
        quota = BLUE + GREEN - sum(OTHERS[name][1] for name in others)
        left = min(quota, rest.around.cpus - rest.around.placed)
        if "train scaled" not in way:
            assert sum(job.live for job in rest.jobs) == left, f"of {left} pods are unused after {way}"
