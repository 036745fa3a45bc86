"""A controller with a lease, in place of the one without, while one namespace does all that it may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.faults.stage import Stage
from tests.e2e.worlds import facts
from tests.e2e.worlds.controller_process import ControllerProcess
from tests.e2e.worlds.usage import resident_bytes

_LEADS = "leading: this controller holds the Lease"


@dataclass
class Leader:
    """A controller whose memory is all its own.

    Attributes:
        process: it.
        peak_bytes: what it has held in memory at most, once it was judged.
    """

    process: ControllerProcess
    peak_bytes: int = 0

    def assert_led(self, most_mib: float) -> None:
        """It answers, has led since it started, and never held more memory than that."""
        assert self.process.is_alive(), self.process.tail()
        assert self.process.answers("/healthz")
        assert self.process.log.read_text().count(_LEADS) == 1, self.process.tail()
        self.peak_bytes = resident_bytes(self.process.pid)
        assert self.peak_bytes < most_mib * 2**20


@contextmanager
def leading(stage: Stage, kubeconfig: Path) -> Iterator[Leader]:
    """Let a controller with a lease run while the block does.

    Args:
        stage: whose own controller waits meanwhile.
        kubeconfig: of the controller.
    """
    process = ControllerProcess(kubeconfig, stage.here.plane.workdir)
    process.is_preloaded = False
    with stage.without_controller(), process:
        stage.here.kube.wait_until(lambda: _LEADS in process.log.read_text(), 30, "it leads")
        yield Leader(process)


@contextmanager
def mallory(stage: Stage) -> Iterator[str]:
    """One namespace, whose jobs and pods go at the end, finalizers or not."""
    kube, space = stage.here.kube, stage.here.plane.namespace("mallory")
    yield space
    for kind in ("trainingjobs", "jobs.batch", "pods"):
        for body in kube.list(kind, space):
            kube.delete(kind, body["metadata"]["name"], space)
    kube.wait_until(lambda: not _without_finalizers(stage, space), 60, "its pods are gone")


def _without_finalizers(stage: Stage, space: str) -> list[str]:
    """Take the finalizers of the pods of a namespace away; the names of the pods that are still there."""
    pods = stage.here.kube.list("pods", space)
    for pod in pods:
        if pod["metadata"].get("finalizers") and facts.is_terminating(pod):
            stage.here.kube.patch("pods", pod["metadata"]["name"], {"metadata": {"finalizers": None}}, space)
    return [pod["metadata"]["name"] for pod in pods]
