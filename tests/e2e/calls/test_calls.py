"""Whatever happens to one call, the job gets its trainers, gives way to serving, and leaves nothing behind."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from edl.processes.controller import LEASE_NAME
from tests.e2e.calls.table import Case, cases, markdown, sample
from tests.e2e.control_plane.commands import Settings
from tests.e2e.sandbox.plane import SandboxPlane
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import serving, training_job
from tests.e2e.worlds.pod_log import PodLog

pytestmark = pytest.mark.sandbox("faults are injected into the embedded API server")

SAMPLED = 8
SEED = int(os.environ.get("EDL_TEST_SEED", "1"))
SETTINGS = Settings(pod_delete_s=0.5, pod_ready_s=0.1)
MAXIMUM = 8
SOON_S = 90.0
MODEST = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "modest"},
    "value": 10,
    "preemptionPolicy": "Never",
}
"""Serving that may not preempt gets its room from the controller, which deletes trainers for it."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All cases, or a sample."""
    if "case" in metafunc.fixturenames:
        is_full = metafunc.config.getoption("--campaign") == "full"
        metafunc.parametrize("case", cases() if is_full else sample(SAMPLED, SEED), ids=str)


@dataclass
class Theatre:
    """A cluster whose API server can be made to fail, a controller, and what the cases took."""

    plane: SandboxPlane
    here: World
    seconds: dict[Case, float] = field(default_factory=dict)
    _played: int = 0

    def name_of_next(self) -> str:
        """The name of a job that no other case has had."""
        self._played += 1
        return f"job-{self._played}"


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    with SandboxPlane.start(tmp_path_factory.mktemp("cluster"), nodes="small", settings=SETTINGS) as plane:
        assert isinstance(plane, SandboxPlane)
        here = World(plane, "--interval-s", "1")
        here.kube.create(MODEST)
        here.kube.create(serving(priorityClassName="modest", cpu="7"))
        theatre = Theatre(plane, here)
        with here.controller:
            yield theatre
        print(f"\n{markdown(theatre.seconds)}")


def test_a_call_that_goes_wrong_once_changes_nothing_in_the_end(theatre: Theatre, case: Case) -> None:
    here, call = theatre.here, case.call
    kube, name = here.kube, theatre.name_of_next()
    if not here.controller.is_alive():  # the case before could not start it
        here.controller.start()
    if call.at_start:
        here.controller.stop()
        kube.delete("leases", LEASE_NAME, "paddlecloud")
    theatre.plane.inject(call.verb, call.resource, call.subresource, case.effect)
    began_s = time.monotonic()
    with PodLog(kube) as log:
        if call.at_start:
            here.controller.start()
        here.submit(training_job(name, min_trainers=2, max_trainers=MAXIMUM, cpu="3", memory="1Gi"))
        kube.wait_until(lambda: here.running(name) == MAXIMUM, SOON_S, f"{MAXIMUM} trainers of {name} run")
        kube.scale("deployments", "web", 1)
        kube.wait_until(lambda: here.ready_serving() == 1, SOON_S, "serving got its capacity")
        kube.wait_until(lambda: here.running(name) == MAXIMUM - 2, SOON_S, "and two trainers gave way")
        here.withdraw(name)
        kube.scale("deployments", "web", 0)
        kube.wait_until(lambda: not kube.list("pods", "default"), SOON_S, "no pod is left")
    assert theatre.plane.faults_used() == 1, "the controller never made this call"
    assert log.most[name] <= MAXIMUM
    assert here.controller.is_alive(), here.controller.tail()
    assert "Traceback" not in here.controller.log.read_text()
    theatre.seconds[case] = time.monotonic() - began_s
