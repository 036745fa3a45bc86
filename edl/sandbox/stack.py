"""Starts the parts of a sandbox in order, and stops them in reverse order.

API server, scheduler, controllers and kubelet run in this process. The controller of edl is a process of its own,
started like a container, so it ends with the sandbox however that ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from edl.api.crd import render_crd, render_queue_crd
from edl.errors import ConfigError, PermanentError
from edl.install import objects
from edl.kube.client.api_errors import AlreadyExistsError
from edl.kube.client.session import ApiSession
from edl.observability.status_server import split_address
from edl.sandbox.apiserver.server import ApiServer
from edl.sandbox.controllers.manager import STORAGE_CLASS_MANIFEST, run_controllers
from edl.sandbox.kubelet import network_hook
from edl.sandbox.kubelet.images import Image
from edl.sandbox.kubelet.kubelet import Kubelet, KubeletSettings, running
from edl.sandbox.kubelet.node import NodeShape
from edl.sandbox.kubelet.runtime import Process, ProcessSpec
from edl.sandbox.scheduler.scheduler import Scheduler

Object = dict[str, Any]
_LOOPBACK = "127.0.0.1"
_READY_S = 60.0
_POLL_S = 0.1
_COLLECTIONS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "Namespace": "/api/v1/namespaces",
}


@dataclass(frozen=True, slots=True)
class StackSettings:
    """The settings of a sandbox.

    Attributes:
        nodes: the number of nodes.
        shape: what each offers.
        port: the port of the API server; 0 for a free one.
        folder: for everything that it writes; it is removed at the end.
        images: the image table.
        kubeconfig: where its kubeconfig goes.
        controller_flags: more flags of `edl controller`.
    """

    nodes: int
    shape: NodeShape
    port: int
    folder: Path
    images: tuple[Image, ...]
    kubeconfig: Path
    controller_flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stack:
    """A sandbox that is at work.

    Attributes:
        session: its API server.
        kubelet: its nodes.
        controller: the process of edl's controller.
        controller_log: its log.
        status_address: HOST:PORT where it serves /metrics.
        parts: runs as long as the parts in this process do.
    """

    session: ApiSession
    kubelet: Kubelet
    controller: Process
    controller_log: Path
    status_address: str
    parts: asyncio.Task[None]

    async def wait(self) -> None:
        """Wait until a part ends, which none should.

        Raises:
            PermanentError: the controller has ended.
        """
        ended = asyncio.ensure_future(asyncio.shield(self.controller.ended))
        watched: set[asyncio.Future[Any]] = {ended, self.parts}
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        if self.parts.done():
            self.parts.result()
            raise PermanentError("the sandbox ended because the supervisor of its containers was killed")
        log = tail(self.controller_log)
        raise PermanentError(f"edl controller ended with code {ended.result().code}; its log ends with:\n{log}")


@asynccontextmanager
async def started(settings: StackSettings) -> AsyncIterator[Stack]:
    """Within the block, run a sandbox whose controller is ready; at the end nothing of it is left.

    Raises:
        ConfigError: the port is in use, a file cannot be written, or --listen of the controller cannot be followed.
        EdlError: a part does not start.
    """
    address = status_address(settings.controller_flags)
    async with ApiServer(port=settings.port) as server:
        server.write_kubeconfig(settings.kubeconfig)
        async with await ApiSession.open(str(settings.kubeconfig)) as session:
            await install(session)
            wanted = KubeletSettings(
                settings.nodes, settings.shape, settings.folder, settings.images, owns_folder=True
            )
            async with running(session, wanted) as kubelet:
                parts = asyncio.create_task(_run_parts(session, kubelet))
                try:
                    yield await _with_controller(settings, session, kubelet, parts, address)
                finally:
                    parts.cancel()
                    await asyncio.gather(parts, return_exceptions=True)


async def install(session: ApiSession) -> None:
    """Create what edl needs in a cluster: its resources, its priority classes, and a StorageClass."""
    definitions = render_crd(), render_queue_crd()
    for body in (*definitions, *objects.namespace(), *objects.priority_classes(), STORAGE_CLASS_MANIFEST):
        with suppress(AlreadyExistsError):
            await session.post(_COLLECTIONS[body["kind"]], body)


async def _run_parts(session: ApiSession, kubelet: Kubelet) -> None:
    """Run the scheduler, the controllers and the kubelet; returns if the kubelet has lost its containers."""
    async with asyncio.TaskGroup() as group:
        others = [group.create_task(Scheduler(session).run()), group.create_task(run_controllers(session))]
        await kubelet.run()
        for task in others:
            task.cancel()


async def _with_controller(
    settings: StackSettings, session: ApiSession, kubelet: Kubelet, parts: asyncio.Task[None], address: str
) -> Stack:
    """Start edl's controller, and wait until it is ready."""
    spec = _controller_spec(settings, kubelet, address)
    process = await kubelet.host.runtime.start(spec)
    stack = Stack(session, kubelet, process, spec.log, address, parts)
    waiting = asyncio.create_task(stack.wait())
    ready = asyncio.create_task(_until_ready(address))
    try:
        async with asyncio.timeout(_READY_S):
            await asyncio.wait({waiting, ready}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
    except TimeoutError as error:
        raise PermanentError(f"edl controller is not ready after {_READY_S:g} s:\n{tail(spec.log)}") from error
    finally:
        for task in (waiting, ready):
            task.cancel()
        await asyncio.gather(waiting, ready, return_exceptions=True)
    return stack


def _controller_spec(settings: StackSettings, kubelet: Kubelet, address: str) -> ProcessSpec:
    machine, folder = kubelet.host.machine, settings.folder
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(machine.hook), str(machine.source)))}
    env = {key: value for key, value in env.items() if not key.startswith("EDL_")}
    env[network_hook.NAMES_FILE] = str(machine.names)
    if machine.ports is not None:
        env[network_hook.PORTS_FOLDER] = str(machine.ports)
    argv = [str(machine.programs / "edl"), "controller", "--kubeconfig", str(settings.kubeconfig)]
    argv += ["--key-file", str(folder / "key"), *settings.controller_flags, "--listen", address]
    # There is one replica, and nobody starts another one for it if a busy or sleeping laptop loses the lease.
    argv.append("--no-leader-election")
    return ProcessSpec("edl-controller", argv, env, folder, folder / "controller.log")


async def _until_ready(address: str) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as client:
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with client.get(f"http://{address}/readyz") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(_POLL_S)


def status_address(flags: Sequence[str]) -> str:
    """The HOST:PORT at which the controller serves /metrics: by its flags, or a free loopback port.

    Raises:
        ConfigError: the flags give an address whose port only the controller would know.
    """
    given = ""
    for at, flag in enumerate(flags):
        name, equals, value = flag.partition("=")
        following = "".join(flags[at + 1 : at + 2])
        if name == "--listen":
            given = value if equals else following
    if not given:
        return f"{_LOOPBACK}:{free_port()}"
    try:
        host, port = split_address(given)
    except ValueError as error:
        raise ConfigError(f"--controller-flags: --listen {given}: {error}; give one") from error
    if not port:
        raise ConfigError(f"--controller-flags: --listen {given}: the sandbox must know the port; give one above 0")
    return f"{host}{given}" if given.startswith(":") else given


def free_port() -> int:
    """Find a loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def tail(path: Path, lines: int = 20) -> str:
    """The last lines of a file."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def check_kubeconfig(path: Path) -> None:
    """Check that a kubeconfig may be written to a path: nothing is there, or one of a sandbox that has ended.

    Raises:
        ConfigError: it is a folder, the file is another's, or its sandbox runs.
    """
    if not path.exists():
        return
    if path.is_dir():
        raise ConfigError(f"--kubeconfig {path}: this is a folder; give the path of a file")
    try:
        found = yaml.safe_load(path.read_text())
        server = found["clusters"][0]["cluster"]["server"] if found["current-context"] == "edl-sandbox" else None
    except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError):
        server = None
    if server is None:
        raise ConfigError(
            f"--kubeconfig {path}: this file exists and is not that of a sandbox; give another path, or delete it"
        )
    host, _, port = server.partition("://")[2].partition("/")[0].partition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        raise ConfigError(
            f"--kubeconfig {path}: the sandbox of this file is still running; stop it, or give another path"
        )
