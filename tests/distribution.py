"""Shares out the files of tests among the processes of `pytest -n N`, so that no core is idle.

Some tests wait most of the time, for processes and for clusters; others compute. Every second process prefers the
files that wait and the rest prefer those that compute, so with two or three processes per core each core
always has something to compute. A process whose kind is used up takes files of the other kind. The longest files come
first.
"""

from __future__ import annotations

from collections import Counter

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.progress import file_of, is_end_to_end

LONGEST = (
    "tests/sandbox/test_command.py",
    "tests/e2e/scenarios/test_unstarted.py",
    "tests/e2e/faults/test_server.py",
    "tests/e2e/parts/test_shadow.py",
    "tests/e2e/rules/test_scenes.py",
    "tests/e2e/rules/test_agreement.py",
    "tests/e2e/scenarios/test_batch_jobs.py",
    "tests/e2e/scenarios/test_nodes_on_demand.py",
    "tests/e2e/scenarios/test_faults.py",
    "tests/sandbox/test_demo.py",
    "tests/e2e/scenarios/test_gpus.py",
    "tests/e2e/calls/test_calls.py",
    "tests/e2e/scale/test_small.py",
    "tests/e2e/cases/test_cases.py",
    "tests/sandbox/test_stack_broken_node.py",
    "tests/e2e/faults/test_election.py",
    "tests/e2e/faults/test_one_namespace.py",
    "tests/e2e/scenarios/test_changed_requests.py",
    "tests/e2e/control_plane/test_control_plane.py",
    "tests/e2e/scenarios/test_modes.py",
    "tests/e2e/scenarios/test_masters.py",
    "tests/e2e/scenarios/test_lending.py",
    "tests/e2e/scenarios/test_main_job.py",
    "tests/sandbox/kubelet/test_kubelet.py",
    "tests/e2e/scenarios/test_lending_by_resize.py",
    "tests/e2e/scenarios/test_queues.py",
    "tests/sandbox/test_stack.py",
    "tests/controller/master_monitor/test_master_monitor.py",
    "tests/controller/loop/test_loop_small_scope.py",
    "tests/controller/loop/test_loop_storms.py",
    "tests/controller/loop/test_loop_random_histories.py",
    "tests/sim/test_headroom_days.py",
    "tests/test_planted.py",
    "tests/test_how_to_guides.py",
    "tests/example/test_fit_flights.py",
    "tests/controller/loop/test_loop_mixes.py",
    "tests/sim/test_headroom.py",
    "tests/planner/decide/test_decide_random_worlds.py",
    "tests/master/test_master_recovery.py",
    "tests/planner/solvers/test_solvers.py",
    "tests/planner/decide/test_decide_brute_force.py",
    "tests/planner/decide/test_decide_oscillation.py",
    "tests/planner/decide/test_decide_in_time.py",
    "tests/controller/loop/test_loop_crashes.py",
    "tests/sim/test_simulation.py",
    "tests/planner/decide/test_decide_properties.py",
    "tests/controller/master_monitor/test_master_monitor_crashes.py",
    "tests/planner/policies/test_utility.py",
    "tests/controller/loop/test_loop_random_events.py",
    "tests/worker/test_worker.py",
    "tests/worker/test_steps_hung.py",
    "tests/pod/test_entrypoint.py",
    "tests/e2e/scenarios/test_scale.py",
    "tests/e2e/scenarios/test_lending_at_scale.py",
    "tests/e2e/scenarios/test_serving_wave.py",
    "tests/e2e/scenarios/test_oscillation.py",
)
"""Files that start first, because one that starts last keeps the other processes idle."""

WAITING = (
    "tests/e2e/",
    "tests/contract/",
    "tests/sandbox/test_",
    "tests/sandbox/kubelet/test_kubelet",
    "tests/controller/master_monitor/test_master_monitor.py",
    "tests/master/test_master_kills.py",
    "tests/pod/test_entrypoint.py",
    "tests/worker/test_",
)
"""How the names of files begin whose tests wait most of the time."""


SCENES = ("tests/e2e/cases/", "tests/e2e/faults/", "tests/e2e/scale/", "tests/e2e/scenarios/")
"""The folders of the tests that play scenes of a cluster, each of them a minute or so."""

SHARED_ONE_IN = 5


def without_most_shared(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of the scenes that the sandbox plays too, every fifth one of each file; all other tests."""
    seen: Counter[str] = Counter()
    kept = []
    for item in items:
        file = file_of(item.nodeid)
        if file.startswith(SCENES) and item.get_closest_marker("cluster") is None:
            seen[file] += 1
            if seen[file] % SHARED_ONE_IN != 1:
                continue
        kept.append(item)
    return kept


def longest_first(items: list[pytest.Item]) -> None:
    """Sort tests: the end-to-end tests at the end, and of each kind the files of LONGEST first."""
    items.sort(key=lambda item: (is_end_to_end(item.nodeid), _rank(file_of(item.nodeid))))


def is_waiting(test: str) -> bool:
    """True if the test, or the tests of the file, wait most of the time."""
    return test.startswith(WAITING)


class ByKind(LoadFileScheduling):
    """Gives each process whole files, of the kind that it prefers as long as there are some."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        wants = int(node.gateway.id.removeprefix("gw")) % 2 == 0
        chosen = min(self.workqueue, key=lambda file: (is_waiting(file) != wants, _rank(file)))
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)


def _rank(file: str) -> int:
    return LONGEST.index(file) if file in LONGEST else len(LONGEST)
