"""The trainers that end for serving: kube-scheduler's choice and edl's, against the least number."""

from __future__ import annotations

from benchmarks.victims import CHOOSERS, chosen_by, least_victims
from edl.model.names import JobKey
from edl.sim.scenario import DeploymentSpec
from edl.sim.simulation import simulate
from edl.sim.world import World
from tests.sim.scenarios import make_deployment, make_group, make_scenario

WAVE = make_scenario(
    duration_s=150,
    jobs=[make_group(max=16, trainer={"cpu": 2, "memory": "1Gi"})],
    serving=[make_deployment((0, 1), (100, 4), cpu=3)],
    latency={"start_s": {"trainer": [0, 0], "serving": [0, 0]}, "stop_s": {"trainer": [8, 8], "serving": [0, 0]}},
)


def ended(chooser: str) -> tuple[float, list[int], float]:
    """Trainers that ended, the least of each rise, and how long serving was short."""
    least: list[int] = []

    def before(world: World, spec: DeploymentSpec, more: int) -> None:
        assert (spec.name, more) == ("web", 3)
        assert len(world.job(JobKey("training", "job-0")).pods) == 14
        least.append(least_victims(world, spec, more))

    done = simulate(chosen_by(WAVE, chooser), "maxmin", 0, before)
    assert done.problems == ()
    return done.figures["trainers_deleted"], least, done.figures["serving_shortfall_pod_s"]


def test_edl_takes_the_least_and_kube_scheduler_more() -> None:
    """Two pods of 3 cores fit in the room of three trainers of 2, if it is on one node."""
    by_scheduler, by_edl = ended(CHOOSERS[0]), ended(CHOOSERS[1])
    assert by_scheduler[1] == by_edl[1] == [4]
    assert by_edl[0] == 4
    assert by_scheduler[0] >= 4


def test_room_that_is_made_before_the_pods_exist_ends_the_wait() -> None:
    assert ended(CHOOSERS[2])[2] < 0.2 * ended(CHOOSERS[0])[2]
