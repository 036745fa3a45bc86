"""Who chooses the trainers that end for serving, what that costs training, and how long serving waits for it.

    python -m benchmarks.victims     # case 2 of 2017 and a small wave in the simulator, each with three seeds

The least is an integer program over the nodes as they are before each rise. It knows all pods of the rise at once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from edl.model.names import Role
from edl.sim.scenario import DeploymentSpec, Scenario
from edl.sim.scenario_file import read_scenario
from edl.sim.shapes import shape_of
from edl.sim.simulation import simulate
from edl.sim.world import World

RESULTS = Path(__file__).parent / "results" / "victims.json"
CASE_2 = Path(__file__).parents[1] / "example" / "scenarios" / "edl2017-case2.yaml"
SEEDS = (0, 1, 2)
CHOOSERS = ("kube-scheduler", "edl", "edl, before the pods exist")
FIGURES = {
    "waiting_pod_s": "serving_shortfall_pod_s",
    "wait_p95_s": "serving_wait_p95_s",
    "ended": "trainers_deleted",
    "ended_in_rises": "trainers_deleted_early",
    "by_kube_scheduler": "trainers_preempted",
    "trainer_hours": "trainer_hours",
}


def small() -> Scenario:
    """Twenty nodes of 8 cores full of trainers of 2; pods of 3 cores go 0 -> 10 -> 20 -> 0, twice."""
    wave = [(0, 0), (150, 10), (300, 20), (450, 0), (600, 10), (750, 20)]
    return Scenario.model_validate(
        {
            "name": "small-wave",
            "duration_s": 900,
            "nodes": [{"name": "n", "count": 20, "resources": {"cpu": "8", "memory": "64Gi"}}],
            "jobs": [
                {"name": "job", "count": 3, "min": 2, "max": 60, "trainer": {"cpu": 2, "memory": "1Gi"}},
            ],
            "serving": [{"name": "web", "resources": {"cpu": 3, "memory": "1Gi"}, "replicas": wave}],
            "latency": {
                "start_s": {"trainer": [1, 3], "serving": [1, 3]},
                "stop_s": {"trainer": [8, 8], "serving": [1, 3]},
            },
        }
    )


def chosen_by(scenario: Scenario, chooser: str) -> Scenario:
    """The scenario in which one of `CHOOSERS` ends trainers for serving.

    With `edl` the pods of serving may not preempt (`preemptionPolicy: Never`); before they exist edl deletes by the
    timeline, so it never errs about what comes.
    """
    preempts = chooser != CHOOSERS[1]
    ahead = {"serving_headroom": "foresight", "serving_slo": 200.0} if chooser == CHOOSERS[2] else {}
    return scenario.model_copy(
        update={
            "scheduler": scenario.scheduler.model_copy(update={"preempts": preempts}),
            "controller": scenario.controller.model_copy(update=ahead),
        }
    )


def least_victims(world: World, spec: DeploymentSpec, more: int) -> int:
    """The least number of trainers to end so that so many more pods fit.

    Args:
        world: the cluster; trainers that end already count as gone.
        spec: the Deployment that grows.
        more: by how many pods, >= 1.

    Raises:
        ValueError: they do not fit even without any trainer.
    """
    need = world.vector(shape_of(spec.resources))
    if need is None:
        raise ValueError(f"no node has what pods of {spec.name} request")
    free = np.where(world.ready_nodes[:, None], world.allocatable - world.used, 0).astype(np.float64)
    groups: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for row, name in enumerate(world.names):
        for pod in world.on_node[name].values():
            vector = world.request_of(pod)
            if pod.role is not Role.TRAINER or vector is None or not world.ready_nodes[row]:
                continue
            if pod.terminating:
                free[row] += vector
            else:
                groups[row, tuple(vector.tolist())] += 1
    kinds = sorted(groups)
    nodes, width = len(free), len(free) + len(kinds)
    fits = np.zeros((nodes, len(need), width))
    fits[np.arange(nodes), :, np.arange(nodes)] = need
    for column, (row, amounts) in enumerate(kinds, nodes):
        fits[row, :, column] = -np.array(amounts)
    scale = np.maximum(1, need)
    found = milp(
        c=np.concatenate([np.zeros(nodes), np.ones(len(kinds))]),
        constraints=[
            LinearConstraint((fits / scale[:, None]).reshape(-1, width), -np.inf, (free / scale).ravel()),
            LinearConstraint(np.concatenate([np.ones(nodes), np.zeros(len(kinds))])[None], more, more),
        ],
        integrality=np.ones(width, dtype=np.int64),
        bounds=Bounds(0, np.concatenate([np.full(nodes, more), [groups[kind] for kind in kinds]])),
    )
    if found.x is None:
        raise ValueError(f"{more} more pods of {spec.name} do not fit even without any trainer: {found.message}")
    return round(float(found.fun))


def figures(name: str, scenario: Scenario, chooser: str) -> dict[str, Any]:
    """The means over the seeds.

    Raises:
        SystemExit: the controller could not do something.
    """
    runs, least = [], 0
    for seed in SEEDS:
        found: list[int] = []
        run = simulate(
            chosen_by(scenario, chooser),
            "maxmin",
            seed,
            lambda *rise, found=found: found.append(least_victims(*rise)),
        )
        if run.problems:
            raise SystemExit(f"{name}, {chooser}, seed {seed}: {run.problems[0]}")
        runs.append(run.figures)
        least += sum(found)
    means = {key: round(sum(run[figure] for run in runs) / len(runs), 1) for key, figure in FIGURES.items()}
    return {"case": name, "chooser": chooser, **means, "least": round(least / len(SEEDS), 1)}


def lines() -> Iterator[dict[str, Any]]:
    """Each case with each chooser."""
    for name, scenario in (("case 2", read_scenario(CASE_2)), ("small wave", small())):
        for chooser in CHOOSERS:
            yield figures(name, scenario, chooser)


def main() -> None:
    """Run the cases, print a line for each, and store them."""
    stored = []
    for one in lines():
        stored.append(one)
        print(json.dumps(one), flush=True)
        RESULTS.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
