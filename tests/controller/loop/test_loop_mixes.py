"""Random mixes of TrainingJobs, `batch/v1` Jobs and Volcano Jobs under waves of serving, in virtual time.

`make test` plays five seeds; `EDL_MIXES` sets another number, and `make mixes` plays 300. `make volcano-mixes` plays
ten of them beside the real Volcano.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from edl.model.names import WorkloadKind
from tests.worlds.mixes.in_virtual_time import OWNER_S, play
from tests.worlds.mixes.random_mix import CORES, KINDS, Member, mix_of
from tests.worlds.mixes.rules import Bounds, unfair

MIXES = int(os.environ.get("EDL_MIXES", "5"))
ONE = Member("one", WorkloadKind.BATCH_JOB, low=2, high=12, pservers=0, wave=0)


@pytest.mark.parametrize("seed", range(MIXES))
def test_a_mix_keeps_every_bound_and_shares_evenly_and_serving_waits_as_beside_training_jobs(seed: int) -> None:
    mix = mix_of(seed)
    mixed, alone = play(mix), play(mix.alone)
    assert (mixed.broken, alone.broken) == ((), ())
    later = [a - b for a, b in zip(mixed.waited_s, alone.waited_s, strict=True)]
    assert max(later) <= OWNER_S, f"serving waits {later} seconds longer than beside TrainingJobs alone"
    assert mixed.resizes, "the mix shows nothing if edl resizes nothing"


def test_the_mixes_have_every_kind_and_room_for_every_minimum_beside_each_wave() -> None:
    for mix in map(mix_of, range(100)):
        assert {member.kind for member in mix.members} == set(KINDS)
        least = sum(member.low + member.fixed for member in mix.alone.members)
        assert all(least + wave.pods * wave.cores <= mix.nodes * CORES for wave in mix.waves)
        assert {member.kind for member in mix.alone.members} == {WorkloadKind.TRAINING_JOB}


def test_a_count_outside_the_bounds_is_noticed() -> None:
    bounds = Bounds()
    for live in (0, 1, 2, 12):
        bounds.see(ONE, live)
    assert bounds.broken == [], "a job that has not had its minimum yet is not below it"
    bounds.see(ONE, 1)
    bounds.see(ONE, 13)
    assert bounds.broken == ["one has 1 trainers, of at least 2", "one has 13 trainers, of at most 12"]


def test_shares_outside_the_dead_band_are_noticed() -> None:
    other = replace(ONE, name="other")
    assert list(unfair({ONE: 7, other: 7}, 14)) == []
    assert list(unfair({ONE: 8, other: 6}, 14)) == [], "one step each is within the band"
    assert len(list(unfair({ONE: 10, other: 4}, 14))) == 1
    assert list(unfair({ONE: 2, replace(other, low=10): 10}, 12)) == [], "a minimum is not given away"
