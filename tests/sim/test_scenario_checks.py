"""What a scenario file says of nodes, jobs and times that would run and mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.test_scenario_file import LATE, refusal


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max: 4", "max: 4\n  arrival: {first_s: 61}", f"line 9, jobs.0.arrival '61': {LATE}"),
        (
            "max: 4",
            "max: 4\n  arrival: {first_s: 9}\n  removal: {first_s: 5}",
            "line 10, jobs.0.removal '5': job-0 arrives at second 9; choose a later second for its removal",
        ),
        (
            "jobs:",
            "serving: [{name: web, resources: {cpu: 1}, replicas: [[0, 1], [61, 2]]}]\njobs:",
            f"line 6, serving.0.replicas.1 '[61, 2]': {LATE}",
        ),
        (
            "max: 4",
            "max: 4\n  fixed: 8",
            "line 9, jobs.0.fixed '8': min is 1 and max is 4; choose a count from min to max, or 0 for max",
        ),
        (
            "max: 4",
            "min: 2\n  max: 4\n  start: 1",
            "line 10, jobs.0.start '1': min is 2 and max is 4; choose a count from min to max, or 0 for min",
        ),
        (
            "max: 4",
            "max: 4\n  throughput: [[2, 1], [2, 5]]",
            "line 9, jobs.0.throughput: it has two speeds of 2 trainers; keep one of them",
        ),
        (
            "max: 4",
            "max: 4\n  arrival: {times_s: [1], every_s: 5}",
            "line 9, jobs.0.arrival.every_s '5': times_s lists each moment; remove every_s, or times_s",
        ),
        (
            "max: 4",
            "max: 4\n  arrival: {times_s: [1, 2, 3]}",
            "line 9, jobs.0.arrival.times_s: it lists 3 times for count 1; remove the others, or raise count",
        ),
        (
            "32Gi}",
            "32Gi}\n- {name: m, system_cpu: 5, resources: {cpu: 4500m}}",
            "line 6, nodes.1.system_cpu '5': the nodes have 4500m cpu; lower it, or give the nodes more cpu",
        ),
        (
            "32Gi}",
            "32Gi}\n- {name: m, resources: {memory: 4Gi}}",
            "line 6, nodes.1.resources: the nodes have no cpu; give them cpu of more than 0",
        ),
        (
            "32Gi}",
            "32Gi}\n- {name: m, resources: {cpu: 4, pods: 0}}",
            "line 6, nodes.1.resources.pods '0': no pod could run there; raise it, or remove it for the usual 110",
        ),
        (
            "32Gi}",
            "32Gi}\n- {name: n, resources: {cpu: 4}}",
            "line 6, nodes.1.name: two entries are called node group n; rename one",
        ),
        (
            "jobs:",
            "latency: {decide_s: [8, 2]}\njobs:",
            "line 6, latency.decide_s '[8, 2]': the shortest time 8 exceeds the longest one 2;"
            " write [shortest, longest]",
        ),
        (
            "cpu: 8",
            f"cpu: {10**400}",
            "line 5, nodes.0.resources.cpu: cpu '10000000000000000000'... is more than any node has; give at most"
            " 9223372036854775807",
        ),
    ],
)
def test_what_means_nothing_is_refused_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert refusal(tmp_path, old, new) == f", {message}"
