"""Ten random mixes of TrainingJobs, `batch/v1` Jobs and Volcano Jobs under waves of serving, beside the real Volcano.

The same waves then meet TrainingJobs alone. Serving may not wait longer beside the mixes than `LATER_S` allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import pytest

from tests.e2e.control_plane.nodes import NodeSpec
from tests.volcano.mixes import nodes_of, play
from tests.volcano.scene import Scene
from tests.worlds.mixes.random_mix import Mix, mix_of

pytestmark = pytest.mark.cluster("Volcano runs on a real control plane only")

Start = Callable[[Sequence[NodeSpec]], Scene]
MIXES = tuple(map(mix_of, range(10)))
LATER_S = 2.0
"""How much longer a serving pod may wait on average: other controllers delete pods one after the other."""
LATER_IN_ONE_S = 5.0
"""The same in a single mix, which has a few dozen serving pods at most."""


@pytest.mark.timeout(3600)
def test_ten_mixes_keep_every_bound_and_serving_waits_as_beside_training_jobs_alone(scene: Start) -> None:
    mixed = played(scene, MIXES)
    alone = played(scene, [mix.alone for mix in MIXES])
    print("\npod-seconds that serving waits: beside the mix, beside TrainingJobs alone")
    for mix in MIXES:
        print(f"mix {mix.seed}, {len(mixed[mix.seed])} pods: {sum(mixed[mix.seed]):.1f}, {sum(alone[mix.seed]):.1f}")
    (total, pods), (total_alone, pods_alone) = totals(mixed), totals(alone)
    print(f"together, {pods} pods: {total:.1f}, {total_alone:.1f}")
    assert pods == pods_alone == sum(wave.pods for mix in MIXES for wave in mix.waves)
    assert total <= total_alone + LATER_S * pods
    for mix in MIXES:
        assert fmean(mixed[mix.seed]) <= fmean(alone[mix.seed]) + LATER_IN_ONE_S, f"mix {mix.seed}"


def played(scene: Start, mixes: Sequence[Mix]) -> dict[int, list[float]]:
    """How long each serving pod waited, by seed; no bound of a job is broken and nothing is restarted."""
    broken, waited = play(scene(nodes_of(mixes)), mixes)
    assert not broken, "\n".join(broken)
    return waited


def totals(waited: dict[int, list[float]]) -> tuple[float, int]:
    """All pod-seconds, and the number of pods."""
    return sum(map(sum, waited.values())), sum(map(len, waited.values()))
