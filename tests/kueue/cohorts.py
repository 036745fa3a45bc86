"""Waves in many cohorts at once: each has a namespace, queues and nodes of its own on one control plane."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.control_plane.nodes import NodeSpec
from tests.kueue.history import Histories
from tests.kueue.scene import NODES, Cluster
from tests.kueue.wave_results import Result, together
from tests.kueue.waves import Say, Stage, play, waves_of

_LABEL = "edl.test/cohort"


def add_nodes(cluster: Cluster, cohorts: int) -> None:
    """Add nodes like those of the cluster for each of so many cohorts."""
    specs = [
        NodeSpec(f"cohort-{number}-{one.name}", one.capacity, labels={_LABEL: str(number)})
        for number in range(cohorts)
        for one in NODES
    ]
    cluster.world.plane.add_nodes(specs)


def play_at_once(cluster: Cluster, mode: str, seeds: Sequence[int], waves: int, say: Say) -> Result:
    """Play random waves in as many cohorts as there are seeds.

    Args:
        cluster: with Kueue, edl, and the nodes of `add_nodes`.
        mode: one of `MODES`.
        seeds: of the waves of each cohort.
        waves: so many in each cohort, at least one.
        say: is called with a line about each wave.
    """
    found = [Result() for _ in seeds]
    with Histories(cluster.kube) as histories, ThreadPoolExecutor(len(seeds)) as pool:

        def play_one(number: int) -> None:
            stage = Stage(cluster, histories, {_LABEL: str(number)}, len(seeds))
            seed = seeds[number]
            try:
                play(stage, mode, waves_of(seed, waves), found[number], lambda text: say(f"seed {seed}, {text}"))
            except Exception as error:  # the other cohorts play on
                found[number].broken.append(f"seed {seed}, after {found[number].waves} waves: {error!r:.2000}")

        list(pool.map(play_one, range(len(seeds))))
    return together(found)
