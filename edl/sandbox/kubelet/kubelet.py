"""The kubelet: nodes, the pods that are bound to them, names, and logs.

It is an ordinary client of an API server. It writes nodes, Leases, the status of its pods and events, and deletes a
pod once its containers have ended. When it stops, its nodes and its processes go with it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edl.kube.client.session import ApiSession
from edl.sandbox.events import EventRecorder
from edl.sandbox.informer import Informer, Wakeup
from edl.sandbox.kubelet import network_hook
from edl.sandbox.kubelet.addresses import AddressPool
from edl.sandbox.kubelet.callers import Callers
from edl.sandbox.kubelet.container import Container
from edl.sandbox.kubelet.host import Host, Pace
from edl.sandbox.kubelet.images import Image, source_folder, write_programs
from edl.sandbox.kubelet.launch import Machine
from edl.sandbox.kubelet.log_server import LogServer
from edl.sandbox.kubelet.names import NamesFile, service_names
from edl.sandbox.kubelet.node import NodeAgent, NodeShape
from edl.sandbox.kubelet.pod_worker import PodWorker
from edl.sandbox.kubelet.runtime import Runtime
from edl.sandbox.kubelet.temporary import TemporaryFolders, links_folder
from edl.sandbox.objects import Amounts, name_of, namespace_of, uid_of

Object = dict[str, Any]
_LONGEST_S = 5.0


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """The settings of a kubelet.

    Attributes:
        nodes: the number of nodes.
        shape: what each offers.
        folder: for logs, volumes and the programs of images.
        images: the image table.
        owns_folder: remove the folder at the end, also after SIGKILL.
        prefix: names of nodes are PREFIX-0, PREFIX-1...
        pace: times.
    """

    nodes: int
    shape: NodeShape
    folder: Path
    images: tuple[Image, ...]
    owns_folder: bool = False
    prefix: str = "sandbox"
    pace: Pace = field(default_factory=Pace)


class Kubelet:
    """Runs the pods of its nodes; see `running`."""

    def __init__(self, session: ApiSession, host: Host, settings: KubeletSettings) -> None:
        self._session, self._host, self._settings = session, host, settings
        self._wakeup = Wakeup()
        self.pods = Informer(session, "Pod", "/api/v1/pods", self._wakeup.set)
        self.services = Informer(session, "Service", "/api/v1/services", self._wakeup.set)
        self._names = NamesFile(host.machine.names)
        self._server = LogServer(self.container, settings.folder, Callers(session))
        self._nodes: dict[str, NodeAgent] = {}
        self._workers: dict[str, tuple[PodWorker, asyncio.Task[None]]] = {}

    @property
    def host(self) -> Host:
        """The resources that the pods of this kubelet share."""
        return self._host

    async def register(self) -> None:
        """Start the log server, and register the nodes.

        Raises:
            EdlError: the API server does not answer, or refuses.
        """
        port = await self._server.start()
        for number in range(self._settings.nodes):
            agent = NodeAgent(self._session, f"{self._settings.prefix}-{number}", self._settings.shape, port)
            self._nodes[agent.name] = agent
        await asyncio.gather(*(agent.register() for agent in self._nodes.values()))

    async def run(self) -> None:
        """Run pods until the supervisor of the containers is lost, which a kubelet does not survive."""
        async with asyncio.TaskGroup() as group:
            parts = (
                self.pods.run(),
                self.services.run(),
                *(one.run() for one in self._nodes.values()),
                self._follow(),
            )
            tasks = [group.create_task(part) for part in parts]
            await self._host.runtime.lost
            for task in tasks:
                task.cancel()

    async def close(self) -> None:
        """End every container at once, and remove the nodes."""
        for _, task in self._workers.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in self._workers.values()), return_exceptions=True)
        await self._host.runtime.close()
        await self._server.stop()
        await asyncio.gather(*(agent.remove() for agent in self._nodes.values()))

    def container(self, namespace: str, pod: str, container: str) -> Container | None:
        """A container that this kubelet runs or has run; None if it does not."""
        for worker, _ in self._workers.values():
            if namespace_of(worker.pod) == namespace and name_of(worker.pod) == pod:
                return worker.container(container)
        return None

    async def _follow(self) -> None:
        """Give each changed pod to the worker that runs it."""
        await asyncio.gather(self.pods.wait_until_synced(), self.services.wait_until_synced())
        while True:
            all_pods = list(self.pods)
            with suppress(OSError):  # the disk is full; the next round tries again
                self._names.write(service_names(self.services, all_pods))
            mine = {uid_of(pod): pod for pod in all_pods if pod["spec"].get("nodeName") in self._nodes}
            for uid, pod in mine.items():
                if uid in self._workers:
                    self._workers[uid][0].update(pod)
                else:
                    self._adopt(pod)
            for uid, (worker, task) in list(self._workers.items()):
                if task.done():
                    task.result()
                    if uid not in mine:
                        del self._workers[uid]
                elif uid not in mine:
                    worker.vanish()
            await self._wakeup.wait(_LONGEST_S)

    def _granted_beside(self, worker: PodWorker) -> list[Amounts]:
        """Add up the resources granted to the other pods of the same node."""
        node = worker.pod["spec"]["nodeName"]
        workers = (one for one, _ in self._workers.values() if one is not worker)
        return [one.granted for one in workers if one.pod["spec"]["nodeName"] == node]

    def _adopt(self, pod: Object) -> None:
        agent = self._nodes[pod["spec"]["nodeName"]]
        worker = PodWorker(self._host, pod, lambda: agent.node, lambda: self._granted_beside(worker))
        task = asyncio.create_task(worker.run())
        task.add_done_callback(lambda _: self._wakeup.set())
        self._workers[uid_of(pod)] = (worker, task)


@asynccontextmanager
async def running(session: ApiSession, settings: KubeletSettings) -> AsyncIterator[Kubelet]:
    """Within the block, run a kubelet with registered nodes; at its end, kill its containers and remove its nodes.

    Raises:
        EdlError: the API server does not answer, or refuses.
        OSError: the folder cannot be written.
    """
    settings.folder.mkdir(parents=True, exist_ok=True)
    with links_folder() as links:
        runtime = await Runtime.open(links, *([settings.folder] if settings.owns_folder else []))
        try:
            addresses = AddressPool.open()
            host = Host(
                session=session,
                runtime=runtime,
                machine=_machine(settings.folder, session.host, has_aliases=addresses.has_aliases),
                images=settings.images,
                addresses=addresses,
                folder=settings.folder,
                temporary=TemporaryFolders(links),
                events=EventRecorder(session, "kubelet"),
                pace=settings.pace,
            )
            kubelet = Kubelet(session, host, settings)
            try:
                await kubelet.register()
                yield kubelet
            finally:
                await host.events.close()
                await kubelet.close()
                addresses.close()
        finally:
            await runtime.close()


def _machine(folder: Path, api: str, *, has_aliases: bool) -> Machine:
    """Write the programs and the hook that every container gets."""
    write_programs(folder / "bin")
    (folder / "hook").mkdir(exist_ok=True)
    shutil.copyfile(network_hook.__file__, folder / "hook" / "sitecustomize.py")
    ports = None if has_aliases else folder / "ports"
    if ports is not None:
        ports.mkdir(exist_ok=True)
    url = urlsplit(api)
    where = (url.hostname or "", str(url.port or 443))
    return Machine(folder / "bin", folder / "hook", source_folder(), folder / "names.json", ports, where)
