"""What somebody with one namespace, or who reaches one port, could do to all others: on a real API server."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.e2e.faults import leading
from tests.e2e.faults.stage import SMALL, Stage
from tests.e2e.worlds.jobs import training_job


@pytest.fixture
def mallory(stage: Stage) -> Iterator[str]:
    """The one namespace."""
    with leading.mallory(stage) as space:
        yield space


def test_a_finalizer_on_a_deleted_job_keeps_none_of_its_pods(stage: Stage, mallory: str) -> None:
    kube = stage.here.kube
    job = training_job("kept", min_trainers=1, max_trainers=1, **SMALL)
    job["metadata"] |= {"namespace": mallory, "finalizers": ["example.org/never"]}
    kube.create(job)
    kube.wait_until(lambda: len(kube.list("pods", mallory)) == 2, 40, "it runs")
    kube.delete("tj", "kept", mallory)
    kube.wait_until(lambda: not kube.list("pods", mallory), 30, "its pods end although the job stays")
    assert kube.get("tj", "kept", mallory)["metadata"]["deletionTimestamp"]
    kube.patch("tj", "kept", {"metadata": {"finalizers": None}}, mallory)


def test_connections_without_number_stop_neither_probes_nor_pods(stage: Stage) -> None:
    """Half-open requests of one address, more than the controller had files for, are its own loss."""
    controller = stage.here.controller
    size = controller.log.stat().st_size
    held = []
    try:
        for _ in range(1500):
            with contextlib.suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", controller.port), timeout=1))
                held[-1].sendall(b"GET /metrics HTTP/1.1\r\n")
        assert len(held) > 1000
        assert controller.answers("/healthz")
        stage.submit("meanwhile")
        stage.wait_grown("meanwhile")
        assert controller.answers("/readyz")
        assert controller.log.stat().st_size - size < 2**20
    finally:
        for one in held:
            one.close()
