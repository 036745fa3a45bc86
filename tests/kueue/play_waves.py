"""Random waves in a cohort of the real Kueue, with edl and with Kueue alone: `make kueue-waves` prints the figures.

It is no part of `make kueue-test`: a wave takes up to forty seconds.
"""

from __future__ import annotations

import os

import pytest

from tests.kueue.legs import legs_table
from tests.kueue.scene import Cluster
from tests.kueue.waves import EDL, MODES, Result, play, table, waves_of

pytestmark = pytest.mark.cluster("Kueue runs on a real control plane only")
SEED = int(os.environ.get("EDL_KUEUE_SEED", "1"))
WAVES = int(os.environ.get("EDL_KUEUE_WAVES", "9"))
"""So many waves in each mode."""
PLAYED = os.environ.get("EDL_KUEUE_MODES", "").split() or MODES
"""The modes that are played, such as `owner`."""
OWNER_WITHIN_S = 2.0
POD_ENDS_S = 1.0
"""Pods take longer than this to end on the nodes here. Kueue lowers a quota before the pods of it are deleted."""
USED_AT_REST = 0.95


@pytest.mark.alone
@pytest.mark.timeout(0)
def test_waves_of_serving_owners_and_borrowers(cluster: Cluster) -> None:
    waves = waves_of(SEED, WAVES)
    results = {mode: Result() for mode in PLAYED}
    try:
        for mode, found in results.items():
            play(cluster, mode, waves, found, print)
    finally:
        print(f"\n{len(waves)} waves, seed {SEED}\n{table(results)}")
        for mode, found in results.items():
            print(f"{mode}, {found.waves} waves, used of what is allowed: {found.used}")
            print(f"{mode}, longest above quota: {found.worst}")
        print(legs_table([leg for found in results.values() for leg in found.legs]))
    for mode in set(EDL) & results.keys():
        found = results[mode]
        assert found.never == 0, f"{mode}: every owner is admitted"
        assert max(found.owner_s, default=0.0) < OWNER_WITHIN_S, f"{mode}: owners wait: {found.owner_s}"
        assert found.utilisation >= USED_AT_REST, f"{mode}: used of what is allowed: {found.used}"
        assert found.writes == 0, f"{mode}: nothing is written at rest"
        assert found.above < POD_ENDS_S, f"{mode}: pods ran above quota: {found.worst}"
    if (owner := results.get("owner")) is not None:
        assert owner.above == 0, "no pod runs above what is admitted"
        assert owner.stops == 0, "no job loses all of its pods"
