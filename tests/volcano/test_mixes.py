"""Ten random mixes of TrainingJobs, `batch/v1` Jobs and Volcano Jobs under waves of serving, beside the real Volcano.

`--campaign full` plays them with TrainingJobs alone as well, and prints how long serving waited in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.e2e.control_plane.nodes import NodeSpec
from tests.volcano.mixes import nodes_of, play
from tests.volcano.scene import Scene
from tests.worlds.mixes.random_mix import mix_of

pytestmark = pytest.mark.cluster("Volcano runs on a real control plane only")

Start = Callable[[Sequence[NodeSpec]], Scene]
MIXES = tuple(map(mix_of, range(10)))


@pytest.mark.timeout(3600)
def test_ten_mixes_keep_every_bound_and_no_resize_restarts_a_job(scene: Start, *, is_full_campaign: bool) -> None:
    broken, waited = play(scene(nodes_of(MIXES)), MIXES)
    assert not broken, "\n".join(broken)
    alone: dict[int, list[float]] = {}
    if is_full_campaign:
        mixes = [mix.alone for mix in MIXES]
        broken, alone = play(scene(nodes_of(mixes)), mixes)
        assert not broken, "\n".join(broken)
    print("\nseconds until all serving pods of a wave are ready")
    for seed, seconds in waited.items():
        beside = f", with TrainingJobs alone {_shown(alone[seed])}" if alone else ""
        print(f"mix {seed}: {_shown(seconds)}{beside}")


def _shown(seconds: Sequence[float]) -> str:
    return " ".join(f"{one:.1f}" for one in seconds)
