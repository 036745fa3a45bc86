"""Runs one pod from its binding to its end: volumes, init containers, containers, status, termination."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from edl.errors import EdlError
from edl.sandbox.events import NORMAL, WARNING
from edl.sandbox.kubelet.container import Container
from edl.sandbox.kubelet.host import LOOPBACK, Host
from edl.sandbox.kubelet.launch import ContainerPlace
from edl.sandbox.kubelet.pod_status import INITIALIZING, ContainerRecord, PodFacts, final_phase, pod_status
from edl.sandbox.kubelet.resizing import grant, granted
from edl.sandbox.kubelet.volumes import VolumeSources, prepare_volumes, until_ready
from edl.sandbox.objects import Amounts, is_deleted, is_finished, is_true, now_text, uid_of
from edl.waiting import wait_for_first

Object = dict[str, Any]
_GRACE_S = 30.0
_FORCED_GRACE_S = 1.0


class PodWorker:
    """Runs one pod.

    Args:
        host: the kubelet.
        pod: bound to a node of it.
        node: returns that Node object.
        others: returns what the other pods of that node were granted.
    """

    def __init__(
        self,
        host: Host,
        pod: Object,
        node: Callable[[], Object],
        others: Callable[[], Iterable[Amounts]] = lambda: (),
    ) -> None:
        self._host, self._node, self._others = host, node, others
        self.pod = pod
        self.folder: Path = host.folder / "pods" / uid_of(pod)
        self.init: list[Container] = []
        self.main: list[Container] = []
        self._address = ""
        self._start_time = (pod.get("status") or {}).get("startTime") or now_text()
        self._phase, self._is_initialized, self._refusal = "", False, ""
        self._deleted, self._dirty, self._vanished = asyncio.Event(), asyncio.Event(), False
        self._written: Object = {}
        self._links: list[Path] = []

    def update(self, pod: Object) -> None:
        """Take a newer version of the pod."""
        self.pod = pod
        if is_true(self._written_pod(), "Ready") and not is_true(pod, "Ready"):
            self._written = {}  # another one wrote, such as the node controller after missed heartbeats
            self._dirty.set()
        if is_deleted(pod):
            self._deleted.set()
        elif self.main and not self._phase:
            self._resize()

    @property
    def granted(self) -> Amounts:
        """The resources granted to the containers of the pod; empty once they have ended."""
        return {} if self._phase else granted(self._records(self.main))

    def _resize(self) -> None:
        """Grant the resources that the pod requests now, if there is capacity for them."""
        records = self._records(self.main)
        before = (self._refusal, [one.resources for one in records])
        self._refusal = grant(self.pod, records, self._node(), self._others())
        if before != (self._refusal, [one.resources for one in records]):
            self._dirty.set()

    def _written_pod(self) -> Object:
        return {"status": self._written}

    def vanish(self) -> None:
        """End the containers at once, because the pod was deleted by force."""
        self._vanished = True
        self._deleted.set()

    def container(self, name: str) -> Container | None:
        """Find a container of the pod by its name."""
        return next((one for one in (*self.main, *self.init) if one.record.name == name), None)

    async def run(self) -> None:
        """Run the pod until it is deleted and nothing of it is left."""
        self.update(self.pod)
        if not is_finished(self.pod):
            publishing = asyncio.create_task(self._publish())
            try:
                await self._live_until_deleted()
            finally:
                publishing.cancel()
                await asyncio.gather(publishing, return_exceptions=True)
        await self._deleted.wait()
        if not self._vanished:
            await self._write()
            await self._host.delete(self.pod)
        await asyncio.to_thread(self._remove_files)
        if self._address not in {"", LOOPBACK}:
            self._host.addresses.release(self._address)

    def _remove_files(self) -> None:
        for link in self._links:
            with suppress(OSError):
                link.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _live_until_deleted(self) -> None:
        living = asyncio.create_task(self._live())
        try:
            await wait_for_first(asyncio.shield(living), self._deleted.wait())
            if living.done():
                living.result()
                self._changed()
                await self._deleted.wait()
            elif any(one.process for one in (*self.init, *self.main)):
                await self._terminate(living)
        finally:
            living.cancel()
            await asyncio.gather(living, return_exceptions=True)
        if not self._phase and all(one.exit_code is not None for one in self._records(self.main)) and self.main:
            self._phase = final_phase(self._records(self.main))

    async def _terminate(self, living: asyncio.Task[None]) -> None:
        grace_s = self.pod["metadata"].get("deletionGracePeriodSeconds")
        grace_s = _FORCED_GRACE_S if self._vanished else float(_GRACE_S if grace_s is None else grace_s)
        for one in self.main:
            if one.process:
                self._emit(NORMAL, "Killing", f"Stopping container {one.record.name}")
        await asyncio.gather(*(one.stop(grace_s) for one in (*self.init, *self.main)))
        with suppress(TimeoutError):
            async with asyncio.timeout(_FORCED_GRACE_S):  # the containers note how they ended
                await asyncio.shield(living)

    async def _live(self) -> None:
        """Start the containers, and return once none of them will run again."""
        spec = self.pod["spec"]
        self._address = LOOPBACK if spec.get("hostNetwork") else self._host.addresses.take()
        volumes: dict[str, Path] = {}
        self._make_containers(volumes)
        self._changed()
        volumes.update(await self._make_volumes())
        for one in self.init:
            await one.run()
            if one.record.exit_code != 0:
                self._phase = "Failed"
                self._changed()
                return
        self._is_initialized = True
        self._changed()
        await asyncio.gather(*(one.run() for one in self.main))
        self._phase = final_phase(self._records(self.main))

    def _make_containers(self, volumes: dict[str, Path]) -> None:
        node, find = self._node(), self._host.finder(self.pod)
        spec, status = self.pod["spec"], self.pod.get("status") or {}
        known = {
            one["name"]: one
            for field in ("containerStatuses", "initContainerStatuses")
            for one in status.get(field) or ()
        }

        def make(one: Object, *, is_init: bool) -> Container:
            root, temporary = self.folder / "containers" / one["name"], self._host.temporary.name()
            self._links.append(temporary)
            own = ContainerPlace(root, temporary, volumes, self._address, node, find)
            made = Container(self._host, self._with_address, one, own, self._changed, is_init=is_init)
            if one["name"] in known:
                made.restore(known[one["name"]])
            return made

        self.init = [make(one, is_init=True) for one in spec.get("initContainers") or ()]
        self.main = [make(one, is_init=False) for one in spec["containers"]]
        if self.init:
            for container in self.main:
                container.record.state = {"waiting": {"reason": INITIALIZING}}

    async def _make_volumes(self) -> dict[str, Path]:
        sources = VolumeSources(
            self._host.finder(self.pod), self._host.token, self._node(), self._host.folder / "claims"
        )

        async def attempt() -> dict[str, Path]:
            try:
                await self._host.fetch_data(self.pod)
                return await prepare_volumes(self._with_address(), self.folder / "volumes", sources)
            except EdlError as error:
                raise OSError(str(error)) from error

        async def report(problem: str) -> None:
            self._emit(WARNING, "FailedMount", f"MountVolume.SetUp failed: {problem}")

        return await until_ready(attempt, report, self._host.pace.volumes_s)

    def _with_address(self) -> Object:
        """Return the pod with its address, even before the API server has it."""
        host = self._host_address()
        address = {"podIP": self._address, "podIPs": [{"ip": self._address}], "hostIP": host}
        return {**self.pod, "status": {**(self.pod.get("status") or {}), **address}}

    def _host_address(self) -> str:
        addresses = self._node()["status"].get("addresses") or [{"address": LOOPBACK}]
        return str(addresses[0]["address"])

    def _changed(self) -> None:
        self._dirty.set()

    async def _publish(self) -> None:
        """Write the status after each change."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if not await self._write():
                self._dirty.set()
                await asyncio.sleep(self._host.pace.api_s)

    async def _write(self) -> bool:
        """Write the status if it has changed; False if that failed."""
        if not self.main:
            return True
        facts = PodFacts(
            self._address,
            self._host_address(),
            self._start_time,
            self._records(self.init),
            self._records(self.main),
            self._is_initialized,
            self._phase,
            refusal=self._refusal,
        )
        status = pod_status(self.pod, facts)
        if status == self._written:
            return True
        if not await self._host.write_status(self.pod, status):
            return False
        self._written = status
        return True

    @staticmethod
    def _records(containers: list[Container]) -> list[ContainerRecord]:
        return [one.record for one in containers]

    def _emit(self, kind: str, reason: str, message: str) -> None:
        self._host.events.emit(self.pod, kind, reason, message, host=self.pod["spec"].get("nodeName", ""))
