"""Random waves in cohorts of the real Kueue, with edl and with Kueue alone: `make kueue-waves` prints the figures.

It is no part of `make kueue-test`: a wave takes up to forty seconds. Many waves are played in several cohorts at
once, each of its own seed, from SEED on; those of one seed are played again alone by that SEED and COHORTS=1.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.kueue.cohorts import add_nodes, play_at_once
from tests.kueue.legs import legs_table
from tests.kueue.scene import Cluster
from tests.kueue.wave_results import Result, table
from tests.kueue.waves import EDL, MODES

pytestmark = pytest.mark.cluster("Kueue runs on a real control plane only")
SEED = int(os.environ.get("EDL_KUEUE_SEED", "1"))
WAVES = int(os.environ.get("EDL_KUEUE_WAVES", "9"))
"""So many waves in each mode, or a few more: equally many in each cohort."""
COHORTS = int(os.environ.get("EDL_KUEUE_COHORTS") or 0) or max(1, min(12, WAVES // 9))
PLAYED = os.environ.get("EDL_KUEUE_MODES", "").split() or MODES
"""The modes that are played, such as `owner`."""
OWNER_WITHIN_S = 2.0
POD_ENDS_S = 1.0
"""Pods take longer than this to end on the nodes here. Kueue lowers a quota before the pods of it are deleted."""
USED_AT_REST = 0.95


@pytest.mark.alone
@pytest.mark.timeout(0)
def test_waves_of_serving_owners_and_borrowers(cluster: Cluster) -> None:
    seeds = range(SEED, SEED + COHORTS)
    each = -(-WAVES // COHORTS)
    add_nodes(cluster, COHORTS)
    results: dict[str, Result] = {}
    try:
        for mode in PLAYED:
            start_s = time.monotonic()
            results[mode] = play_at_once(cluster, mode, seeds, each, print)
            print(f"{mode}: {results[mode].waves} waves in {time.monotonic() - start_s:.0f} s")
    finally:
        print(f"\n{each} waves in each of {COHORTS} cohorts, seeds from {SEED}\n{table(results)}")
        for mode, found in results.items():
            print(f"{mode}, below what is allowed: {[one for one in found.used if one[0] < one[1]]}")
            print(f"{mode}, longest above quota: {found.worst}")
            print("\n".join([*found.broken, legs_table(found.legs), *found.accounts]))
    for mode in set(EDL) & results.keys():
        _judge(mode, results[mode])


def _judge(mode: str, found: Result) -> None:
    """Check what edl promises. Seconds are those of one cohort: many share the two cores of the programs."""
    assert not found.broken, f"{mode}: {found.broken}"
    assert found.never == 0, f"{mode}: every owner is admitted"
    assert found.utilisation >= USED_AT_REST, f"{mode}: used of what is allowed: {found.used}"
    assert found.writes == 0, f"{mode}: nothing is written at rest"
    if COHORTS == 1:
        assert max(found.owner_s, default=0.0) < OWNER_WITHIN_S, f"{mode}: owners wait: {found.owner_s}"
        assert found.above < POD_ENDS_S, f"{mode}: pods ran above quota: {found.worst}"
    if mode == "owner":
        assert found.above == 0, "no pod runs above what is admitted"
        assert found.stops == 0, "no job loses all of its pods"
