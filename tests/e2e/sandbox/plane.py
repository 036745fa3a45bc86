"""A cluster of the sandbox that tests use as they use a `ControlPlane`."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.control_plane import lost
from tests.e2e.control_plane.cluster import READY_TIMEOUT_S, ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.kube import Kube
from tests.e2e.control_plane.nodes import NodeSpec, load_mix
from tests.e2e.control_plane.report import tail_logs
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.e2e.worlds.forked import Forked

_STOP_S = 60.0


class _Process:
    """The process of a sandbox."""

    def __init__(self, workdir: Path, settings: Settings) -> None:
        self._workdir, self._lock = workdir, threading.Lock()
        (their_input, ours), (our_input, theirs) = os.pipe(), os.pipe()
        self._commands, self._answers = os.fdopen(ours, "w"), os.fdopen(our_input)
        with (workdir / "logs" / "sandbox.log").open("wb") as log:
            self._process = Forked(
                "sandbox",
                *(str(workdir), json.dumps(asdict(settings))),
                environment=os.environ,
                files=(their_input, theirs, log.fileno()),
            )
        os.close(their_input)
        os.close(theirs)

    def answer(self) -> dict[str, Any]:
        """The next answer.

        Raises:
            ControlPlaneError: it has ended; the message holds its log.
        """
        line = self._answers.readline()
        if not line:
            raise ControlPlaneError(f"the sandbox has ended:\n{tail_logs(self._workdir)}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def ask(self, *words: str) -> dict[str, Any]:
        """Give a command; returns once it is done."""
        with self._lock:
            self._commands.write(json.dumps(words) + "\n")
            self._commands.flush()
            return self.answer()

    def end(self) -> None:
        """End it."""
        self._commands.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()


@dataclass
class SandboxPlane(ControlPlane):
    """A sandbox with hollow nodes: API server, scheduler and controllers of `edl.sandbox` in one process."""

    _process: _Process | None = field(default=None)

    @classmethod
    def start(
        cls,
        workdir: Path,
        *,
        nodes: Sequence[NodeSpec] | str | Path = "small",
        settings: Settings | None = None,
        detached: bool = False,
    ) -> ControlPlane:
        """Start a fresh cluster and wait until it is ready for work.

        Raises:
            ControlPlaneError: it did not become ready; the message ends with the log.
        """
        if detached:
            raise ControlPlaneError("a sandbox under test ends with its owner; use `edl sandbox` for one that stays")
        specs = load_mix(nodes) if isinstance(nodes, str | Path) else tuple(nodes)
        settings = settings or Settings()
        (workdir / "logs").mkdir(parents=True, exist_ok=True)
        process = _Process(workdir, settings)
        try:
            process.answer()
            kubeconfig = workdir / "kubeconfig"
            plane = cls(workdir, kubeconfig, Kube(kubeconfig), settings, None, _process=process)
            plane.add_nodes(specs)
        except BaseException:
            process.end()
            raise
        return plane

    def stop(self) -> None:
        """End the cluster; harmless when done twice."""
        self._running.end()
        self.kube.close()

    def lose_node(self, name: str, *, wait: bool = True, timeout_s: float = 60.0) -> None:
        """Let a machine die: no heartbeat, and its pods stay as they are."""
        self._running.ask("lose", name)
        if wait:
            lost.wait_readiness(self.kube, name, ready=False, timeout_s=timeout_s)

    def recover_node(self, name: str, *, wait: bool = True, timeout_s: float = 60.0) -> None:
        """Bring a lost machine back."""
        self._running.ask("recover", name)
        if wait:
            lost.wait_readiness(self.kube, name, ready=True, timeout_s=timeout_s)

    def stop_api_server(self) -> None:
        """Let the API server be away, with its connections reset; everything else runs on."""
        self._running.ask("stop-server")

    def start_api_server(self) -> None:
        """Start it again on the same port with the same data; returns once it answers."""
        self._running.ask("start-server")
        self.kube.wait_until(lambda: self.kube.request("GET", "/readyz"), READY_TIMEOUT_S, "the server answers again")

    def compact(self) -> int:
        """Make the server forget every version but the present one; returns that version."""
        return int(self._running.ask("compact")["version"])

    def inject(self, verb: str, resource: str, subresource: str, effect: str) -> None:
        """Let the next such call of edl's controller go wrong as `effects` says, and nothing else."""
        self._running.ask("inject", verb, resource, subresource, effect)

    def faults_used(self) -> int:
        """How many calls went wrong since the last `inject`."""
        return int(self._running.ask("faults-used")["count"])

    @property
    def _running(self) -> _Process:
        assert self._process is not None
        return self._process
