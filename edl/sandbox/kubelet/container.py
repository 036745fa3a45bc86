"""Runs one container of a pod and restarts it: image, start, probes, end, pause, and again."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edl.errors import ConfigError, EdlError, TemporaryError
from edl.sandbox.events import NORMAL, WARNING
from edl.sandbox.kubelet.backoff import CrashBackoff
from edl.sandbox.kubelet.host import Host
from edl.sandbox.kubelet.images import find_image, unknown_image
from edl.sandbox.kubelet.launch import ContainerPlace, command_spec, path_map, process_spec
from edl.sandbox.kubelet.paths import PathMap
from edl.sandbox.kubelet.pod_status import ContainerRecord
from edl.sandbox.kubelet.probes import check, watch_probe
from edl.sandbox.kubelet.runtime import Exit, Process, ProcessSpec, StartError
from edl.sandbox.objects import name_of, namespace_of, now_text, uid_of

Object = dict[str, Any]
_CANNOT_RUN = 128
_LEAST_GRACE_S = 2.0  # what is left for SIGTERM after a preStop hook, as in the kubelet
_HOOK_S = 120.0
_MESSAGE_BYTES, _LOG_BYTES, _LOG_LINES = 4096, 2048, 80


class Container:
    """Keeps one container running as its restart policy says.

    Args:
        host: the kubelet.
        pod: returns the pod as last seen.
        spec: the spec of the container.
        place: where it runs.
        is_init: it must succeed once.
        changed: called after each change of `record`.

    Attributes:
        record: what is known of it.
    """

    def __init__(
        self,
        host: Host,
        pod: Callable[[], Object],
        spec: Object,
        place: ContainerPlace,
        changed: Callable[[], None],
        *,
        is_init: bool = False,
    ) -> None:
        self.record = ContainerRecord(spec["name"], spec["image"], resources=spec.get("resources") or {})
        self._host, self._pod, self._spec, self._place = host, pod, spec, place
        self._changed, self._is_init = changed, is_init
        self._process: Process | None = None
        self._running: ProcessSpec | None = None
        self._paths = PathMap({})
        self._backoff = CrashBackoff(host.pace.crash_s)
        self._is_stopping = False
        self._count = 0

    def restore(self, status: Object) -> None:
        """Take over the state that an earlier kubelet has stored; a container that ran then has ended with it."""
        record = self.record
        record.restarts, record.last_state = int(status.get("restartCount") or 0), status.get("lastState") or {}
        record.resources = status.get("resources") or record.resources
        record.container_id, record.state = status.get("containerID") or "", status.get("state") or record.state
        if "running" in record.state:
            record.state = {
                "terminated": {
                    "exitCode": 137,
                    "reason": "ContainerStatusUnknown",
                    "message": "the kubelet that ran this container has ended, and its processes with it",
                    "startedAt": record.state["running"].get("startedAt"),
                    "finishedAt": now_text(),
                }
            }

    @property
    def log(self) -> Path:
        """The log file of the present run, or of the last one."""
        return self._place.root / "log"

    @property
    def previous_log(self) -> Path:
        """The log file of the run before that of `log`."""
        return self._place.root / "previous-log"

    @property
    def process(self) -> Process | None:
        """The process of the container; None if it does not run."""
        return self._process

    async def run(self) -> None:
        """Run until the container has ended for good."""
        pause_s = 0.0
        if "terminated" in self.record.state:
            if not self._runs_again():
                return
            self._restarted()
        while True:
            began_s = time.monotonic()
            if await self._run_once():
                if not self._runs_again():
                    return
                pause_s = self._backoff.after_run(time.monotonic() - began_s)
                await self._pause(pause_s)
                self._restarted()

    async def stop(self, grace_s: float) -> None:
        """End the container: SIGTERM, then SIGKILL after the grace period.

        Returns once none of its processes is left.
        """
        self._is_stopping = True
        await self._end(grace_s)

    async def kill(self) -> None:
        """Kill every process of the container, as the kernel would; its restart policy still applies."""
        if self._process is not None:
            await self._host.runtime.kill(self._process)

    async def _end(self, grace_s: float) -> None:
        process = self._process
        if process is None or process.ended.done():
            return
        if spent_s := await self._before_stop(grace_s):
            grace_s = max(_LEAST_GRACE_S, grace_s - spent_s)
        await self._host.runtime.signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                await asyncio.shield(process.ended)
        except TimeoutError:
            await self._host.runtime.kill(process)
            await asyncio.shield(process.ended)

    async def _before_stop(self, grace_s: float) -> float:
        """Run the preStop hook; returns the seconds of the grace that it took."""
        if "preStop" not in (self._spec.get("lifecycle") or {}) or grace_s <= 0:
            return 0.0
        began_s = time.monotonic()
        if await self._hook("preStop", grace_s):
            self._emit(WARNING, "FailedPreStopHook", "PreStopHook failed")
        return time.monotonic() - began_s

    async def _hook(self, name: str, timeout_s: float) -> str:
        """Run a hook of the container; returns why it failed, or an empty text."""
        action = (self._spec.get("lifecycle") or {}).get(name) or {}
        if "sleep" in action:
            await asyncio.sleep(min(timeout_s, float(action["sleep"].get("seconds") or 0)))
            return ""
        return await self._check({**action, "timeoutSeconds": timeout_s}) if action else ""

    def _runs_again(self) -> bool:
        if self._is_stopping:
            return False
        policy, code = self._pod()["spec"].get("restartPolicy") or "Always", self.record.exit_code
        if self._is_init:
            return code != 0 and policy != "Never"
        return policy == "Always" or (policy == "OnFailure" and code != 0)

    def _restarted(self) -> None:
        self.record.last_state, self.record.restarts = self._last_end(), self.record.restarts + 1

    def _last_end(self) -> Object:
        return self.record.state if "terminated" in self.record.state else self.record.last_state

    async def _pause(self, pause_s: float) -> None:
        if pause_s <= 0:
            return
        pod = self._pod()
        message = (
            f"back-off {pause_s:g}s restarting failed container={self.record.name}"
            f" pod={name_of(pod)}_{namespace_of(pod)}({uid_of(pod)})"
        )
        ended = self.record.state
        self.record.last_state = ended
        self._set({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
        self._emit(WARNING, "BackOff", f"Back-off restarting failed container {self.record.name}")
        await asyncio.sleep(pause_s)
        self.record.state = ended

    async def _run_once(self) -> bool:
        """Start the container and wait for its end; False if it did not start yet, and must be tried again."""
        try:
            spec = await self._prepare()
        except (ConfigError, EdlError, OSError) as error:
            self._wait("CreateContainerConfigError", str(error))
            await asyncio.sleep(self._host.pace.volumes_s)
            return False
        if spec is None:
            return False
        started = now_text()
        try:
            self._process = await self._host.runtime.start(spec)
        except TemporaryError:  # the supervisor has ended, and the kubelet ends with it
            await asyncio.sleep(self._host.pace.volumes_s)
            return False
        except StartError as error:
            self._emit(WARNING, "Failed", f"Error: {error}")
            self._set(_terminated(Exit(_CANNOT_RUN), started, "StartError", str(error)))
            self.record.container_id = f"process://{spec.name}"
            return True
        self._running = spec
        self.record.container_id = f"process://{spec.name}"
        self.record.state = {"running": {"startedAt": started}}
        self._emit(NORMAL, "Started", f"Container started: {self.record.name}")
        ended = await self._probed(self._process)
        self._process = None
        self.record.is_ready = self.record.is_started = False
        reason = "OOMKilled" if ended.is_oom else "Completed" if ended.code == 0 else "Error"
        self._set(_terminated(ended, started, reason, self._message(ended)))
        return True

    async def _prepare(self) -> ProcessSpec | None:
        """Return the process to start; None, after a pause, if the image is unknown."""
        image = find_image(self._host.images, self.record.image)
        if image is None:
            await self._refuse_image()
            return None
        await self._host.fetch_data(self._pod())
        self._count += 1
        if self.log.exists():
            shutil.copyfile(self.log, self.previous_log)
            self.log.write_bytes(b"")
        self._paths = path_map(self._spec, image, self._place)
        name = f"{uid_of(self._pod())}/{self.record.name}/{self.record.restarts}.{self._count}"
        return process_spec(name, self._pod(), self._spec, image=image, place=self._place, machine=self._host.machine)

    async def _refuse_image(self) -> None:
        message = unknown_image(self._host.images, self.record.image)
        self._emit(WARNING, "Failed", f'Failed to pull image "{self.record.image}": {message}')
        self._emit(WARNING, "Failed", "Error: ErrImagePull")
        self._wait("ErrImagePull", message)
        await asyncio.sleep(self._host.pace.api_s)
        self._emit(NORMAL, "BackOff", f'Back-off pulling image "{self.record.image}"')
        self._wait("ImagePullBackOff", f'Back-off pulling image "{self.record.image}": {message}')
        await asyncio.sleep(self._backoff.after_run(0) or self._host.pace.crash_s)

    async def _probed(self, process: Process) -> Exit:
        """Wait for the end of the process while its probes run."""
        probes = asyncio.create_task(self._probe_all())
        try:
            return await asyncio.shield(process.ended)
        finally:
            probes.cancel()
            await asyncio.gather(probes, return_exceptions=True)

    async def _probe_all(self) -> None:
        """Run the postStart hook, then the startup probe until it succeeds, then the other probes."""
        if await self._hook("postStart", _HOOK_S):
            self._emit(WARNING, "FailedPostStartHook", "PostStartHook failed")
            self._ending = asyncio.create_task(self._end(self._grace_s()))
            return
        startup = self._spec.get("startupProbe")
        if startup:
            self._changed()
            succeeded = asyncio.Event()

            def started(ok: bool, problem: str) -> None:
                succeeded.set() if ok else self._unhealthy("Startup", problem)

            task = asyncio.create_task(watch_probe(startup, lambda: self._check(startup), started))
            try:
                await succeeded.wait()
            finally:
                task.cancel()
        self.record.is_started = True
        readiness, liveness = self._spec.get("readinessProbe"), self._spec.get("livenessProbe")
        self.record.is_ready = not readiness
        self._changed()
        async with asyncio.TaskGroup() as group:
            if readiness:
                group.create_task(watch_probe(readiness, lambda: self._check(readiness), self._report_readiness))
            if liveness:
                group.create_task(watch_probe(liveness, lambda: self._check(liveness), self._report_liveness))

    def _report_readiness(self, ok: bool, problem: str) -> None:
        if not ok:
            self._emit(WARNING, "Unhealthy", f"Readiness probe failed: {problem}")
        if self.record.is_ready != ok:
            self.record.is_ready = ok
            self._changed()

    def _report_liveness(self, ok: bool, problem: str) -> None:
        if not ok:
            self._unhealthy("Liveness", problem)

    def _unhealthy(self, which: str, problem: str) -> None:
        """Report a failed probe, and end the container; its restart policy decides what follows."""
        self._emit(WARNING, "Unhealthy", f"{which} probe failed: {problem}")
        message = f"Container {self.record.name} failed {which.lower()} probe, will be restarted"
        self._emit(NORMAL, "Killing", message)
        self._ending = asyncio.create_task(self._end(self._grace_s()))

    def _grace_s(self) -> float:
        return float(self._pod()["spec"].get("terminationGracePeriodSeconds") or 30)

    async def _check(self, probe: Object) -> str:
        return await check(probe, self._spec, lambda port: self._host.target(self._place.address, port), self._exec)

    async def start_command(self, command: list[str], output: Path) -> Process:
        """Start a further command with the environment and folders of the container's own process.

        Args:
            command: program and arguments.
            output: a file for what it prints, errors included.

        Raises:
            StartError: there is no such program.
            ConfigError: the container does not run.
        """
        running = self._running
        if running is None or self._process is None:
            raise ConfigError(f"container {self.record.name} does not run; wait until it does")
        self._count += 1
        await asyncio.to_thread(output.write_bytes, b"")
        return await self._host.runtime.start(
            command_spec(running, f"{running.name}/exec.{self._count}", command, output, self._paths)
        )

    async def end_command(self, process: Process) -> None:
        """End a command for which no client waits any more."""
        await self._host.runtime.kill(process)

    async def _exec(self, command: list[str], timeout_s: float) -> tuple[int, str]:
        running = self._running
        if running is None:
            return 1, "the container does not run"
        self._count += 1
        output = self._place.root / "probe-log"
        output.write_bytes(b"")
        spec = command_spec(running, f"{running.name}/probe.{self._count}", command, output, self._paths)
        try:
            ended = await self._host.runtime.run(spec, timeout_s)
        except StartError as error:
            return 126, str(error)
        return ended.code, output.read_text(errors="replace")

    def _message(self, ended: Exit) -> str:
        """The termination message: its file, or the end of the log of a failed container that asks for it."""
        try:
            text = self._place.termination_log.read_bytes()[:_MESSAGE_BYTES].decode(errors="replace")
        except OSError:
            text = ""
        if not text and ended.code and self._spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            lines = self.log.read_bytes()[-_LOG_BYTES:].decode(errors="replace").splitlines(keepends=True)
            text = "".join(lines[-_LOG_LINES:])
        return text

    def _wait(self, reason: str, message: str) -> None:
        self._set({"waiting": {"reason": reason, "message": message}})

    def _set(self, state: Object) -> None:
        self.record.state = state
        self._changed()

    def _emit(self, kind: str, reason: str, message: str) -> None:
        pod = self._pod()
        self._host.events.emit(pod, kind, reason, message, host=pod["spec"].get("nodeName", ""))


def _terminated(ended: Exit, started: str, reason: str, message: str) -> Object:
    state: Object = {"exitCode": ended.code, "reason": reason, "startedAt": started, "finishedAt": now_text()}
    return {"terminated": {**state, **({"message": message} if message else {})}}
