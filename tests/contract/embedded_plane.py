"""A whole cluster on the embedded API server: its own scheduler and controllers, and kwok for kubelets.

It has what the end-to-end tests use of a control plane, so their worlds run on it unchanged.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edl.kube.client.session import ApiSession
from edl.sandbox.controllers.manager import run_controllers
from edl.sandbox.scheduler.scheduler import Scheduler
from tests.contract.embedded_server import EmbeddedServer
from tests.e2e.control_plane.build import ensure_binaries
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.kube import Kube
from tests.e2e.control_plane.nodes import load_mix, manifest
from tests.e2e.control_plane.report import is_ready
from tests.e2e.control_plane.stages import kwok_config

_READY_S = 60.0
_STOP_S = 20.0
_LEASE_S = 40


class _Parts:
    """The scheduler and the controllers, in a thread of their own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="scheduler and controllers", daemon=True)
        self._task: asyncio.Task[None] | None = None
        self._begun = threading.Event()

    def start(self) -> None:
        """Run them from now on."""
        self._thread.start()
        self._begun.wait(_READY_S)

    def stop(self) -> None:
        """End them."""
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        self._task = self._loop.create_task(self._work())
        self._begun.set()
        try:
            self._loop.run_until_complete(asyncio.gather(self._task, return_exceptions=True))
        finally:
            self._loop.close()

    async def _work(self) -> None:
        async with await ApiSession.open(str(self._kubeconfig)) as session, asyncio.TaskGroup() as group:
            group.create_task(Scheduler(session).run())
            group.create_task(run_controllers(session))


@contextmanager
def embedded_plane(folder: Path, *, mix: str = "small") -> Iterator[ControlPlane]:
    """A cluster with the nodes of a mix, which stops at the end of the block."""
    binaries, settings = ensure_binaries(), Settings()
    (folder / "kubeconfigs").mkdir(parents=True)
    config = folder / "kwok.yaml"
    config.write_text(kwok_config(pod_delete_s=settings.pod_delete_s, pod_ready_s=settings.pod_ready_s))
    with EmbeddedServer(folder / "kubeconfig") as server, (folder / "kwok.log").open("w") as log:
        parts = _Parts(server.kubeconfig)
        command = [str(binaries.kwok), f"--config={config}", f"--kubeconfig={server.kubeconfig}"]
        # Without leases the node controller takes the nodes for lost.
        command += ["--manage-all-nodes=true", f"--node-lease-duration-seconds={_LEASE_S}"]
        kwok = subprocess.Popen(command, stdout=log, stderr=log)
        kube = Kube(server.kubeconfig, kubectl=binaries.kubectl)
        parts.start()
        try:
            for number, spec in enumerate(load_mix(mix)):
                kube.create(manifest(spec, number))
            kube.wait_until(lambda: all(map(is_ready, kube.list("nodes"))), _READY_S, "all nodes are ready")
            yield ControlPlane(folder, server.kubeconfig, kube, settings, None)
        finally:
            kwok.terminate()
            kwok.wait(_STOP_S)
            parts.stop()
            kube.close()
