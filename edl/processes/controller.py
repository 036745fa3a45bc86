"""The controller as a process: builds its parts, starts them in order and stops them in order.

A signal, a lost lease or the end of `--once` stops the process. The lease is always released after the last write.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from edl import __version__
from edl.clock import AdjustedClock, Clock, SystemClock
from edl.controller.loop import Controller, Partners
from edl.controller.master_monitor.monitor import MasterMonitor
from edl.controller.master_monitor.pace import CallPace
from edl.controller.pace import Pace
from edl.controller.policy_planner import planner_of
from edl.controller.ports import RoundResult
from edl.dashboard.serve import PageParts, PageSettings, page_of_controller
from edl.dashboard.web import PREFIX
from edl.errors import EdlError
from edl.explain.plan_table import plan_json, print_plan
from edl.headroom.advisor import Advisor
from edl.kube.client.session import ApiSession
from edl.kube.cluster import KubernetesCluster
from edl.kube.discovery import KueueVersion, PodResizing
from edl.kube.leader_election import LEASES_API, AlwaysHeld, ApiLeaseStore, Elector
from edl.kube.master_client import HttpMasterClient
from edl.kube.master_key import MasterKey, default_key_file
from edl.kube.mirror.cache import ClusterCache
from edl.kube.mirror.mirrored import Mirrored
from edl.kube.mirror.read_once import first_snapshot
from edl.kube.node_reporter import ApiNodeReporter
from edl.kube.queue_reporter import ApiQueueReporter
from edl.kube.writer import Writer
from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan
from edl.observability.decision_records import RecordFolder
from edl.observability.left_out import LeftOutLog
from edl.observability.logs import log_event
from edl.observability.metrics import Metrics
from edl.observability.recorder import ControllerRecorder
from edl.observability.status_server import StatusServer
from edl.planner.policies.registry import policy_named
from edl.processes.garbage import rare_searches
from edl.processes.limit_files import LimitFiles
from edl.processes.open_files import raise_file_limit
from edl.settings.controller import ControllerSettings

LEASE_NAME = "edl-controller"
DEFAULT_MASTER_IMAGE = f"edl/edl-controller:{__version__}"
ONCE_TIMEOUT_S = 60.0
ONCE_PATIENCE_S = 15.0
"""How long an error of the API server may last before `--once` gives up."""
STOP_TIMEOUT_S = 10.0
SWITCH_S = 0.001
"""How long the event loop waits for the interpreter while a plan is computed; Python's default is 5 ms."""
_LONGEST_TURN_S = 60.0
_LONGEST_SILENCE_S = 180.0
"""A replica that hears nothing from the API server for this time is not ready; watches are silent for 70 s."""
_log = logging.getLogger(__name__)


OPEN_FILES = 4096
"""Capacity for the connections of strangers, of which there are 256 at most, and for those of edl itself."""


@dataclass(frozen=True, slots=True)
class _Connections:
    """The session with the API server, and the key for the masters' tokens."""

    session: ApiSession
    key: MasterKey
    masters: HttpMasterClient


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of the process that run side by side."""

    cache: ClusterCache
    controller: Controller
    elector: Elector | None
    server: StatusServer
    metrics: Metrics
    masters: MasterMonitor
    page: PageParts


async def serve(settings: ControllerSettings) -> int:
    """Run the controller until a signal, or for one plan.

    Returns:
        The exit code: 0 after SIGINT or SIGTERM, or if the writes of the plan succeeded; 1 if the lease was lost or
        a write of the plan failed.

    Raises:
        ConfigError: a flag, a file or an address cannot be used.
    """
    policy_named(settings.policy)
    raise_file_limit(OPEN_FILES)
    metrics = Metrics()
    files = LimitFiles(settings, metrics.rejected_files)
    folder = RecordFolder(settings.record) if settings.record else None
    async with await ApiSession.open(settings.kubeconfig) as session:
        key = MasterKey(settings.key_file or default_key_file(os.environ), session, settings.namespace)
        async with HttpMasterClient(key) as masters:
            parts = _build(settings, files, metrics, folder, _Connections(session, key, masters))
            return await _serve(settings, parts, session.host)


async def _serve(settings: ControllerSettings, parts: _Parts, server: str) -> int:
    listen = None if settings.once else ":".join(map(str, await parts.server.start()))
    log_event(_log, logging.INFO, "controller started", version=__version__, server=server, listen=listen)
    try:
        sys.setswitchinterval(SWITCH_S)
        with rare_searches():
            return await _run(settings, parts)
    finally:
        parts.page.close()
        await parts.masters.close()
        await parts.server.stop()


def _build(
    settings: ControllerSettings,
    files: LimitFiles,
    metrics: Metrics,
    folder: RecordFolder | None,
    connections: _Connections,
) -> _Parts:
    session, limits = connections.session, files.limits
    clock = AdjustedClock(SystemClock(), lambda: session.server_clock.ahead_s)
    image = settings.master_image or DEFAULT_MASTER_IMAGE
    policy = policy_named(settings.policy)
    cache = ClusterCache(
        session,
        clock,
        default_master_image=image,
        controller_namespace=settings.namespace,
        mirrored=Mirrored(namespaces=settings.watch_namespace),
    )
    key, max_grace_s = connections.key, settings.max_grace_s
    writer = Writer(session, cache, clock, key=key, default_master_image=image, max_grace_s=max_grace_s)
    elects = not (settings.no_leader_election or settings.dry_run)
    elector = _elector(settings, session, clock, metrics, cache.list_anew) if elects else None
    resizing = PodResizing(session, clock) if limits.lending.running else None
    pace = CallPace(interval_s=settings.interval_s)
    masters = MasterMonitor(connections.masters, clock, elector or AlwaysHeld(), _log_master, pace)
    if elector is not None:
        session.fence(elector.is_held, exempt=LEASES_API)
    page = page_of_controller(session, clock, PageSettings(policy=policy.name, limits=lambda: files.limits))

    controller = Controller(
        cluster=KubernetesCluster(cache, writer, clock, resizing, KueueVersion(session, clock)),
        clock=clock,
        lease=elector or AlwaysHeld(),
        recorder=ControllerRecorder(metrics, policy=policy.name, folder=folder, onlooker=page.live),
        planner=planner_of(policy, lambda: files.limits.quotas),
        limits=limits,
        pace=Pace(interval_s=settings.interval_s, writes=settings.writes_at_once),
        partners=Partners(
            show=_PlanPrinter() if settings.dry_run else None,
            masters=masters,
            queues=ApiQueueReporter(session, clock, metrics.queued),
            nodes=ApiNodeReporter(session, clock),
            advisor=Advisor(limits.serving.slo) if limits.serving.slo else None,
            changed_limits=files.changed,
        ),
    )

    def is_alive() -> bool:
        return clock.monotonic_s() - controller.last_sign_of_life_s < _LONGEST_TURN_S + 2 * settings.interval_s

    server = StatusServer(
        settings.listen,
        is_alive=is_alive,
        is_ready=lambda: cache.is_synced and cache.silence_s() < _LONGEST_SILENCE_S,
        metrics=metrics.page,
        more={PREFIX: page.application},
    )
    return _Parts(cache, controller, elector, server, metrics, masters, page)


def _log_master(job: JobKey, message: str) -> None:
    log_event(_log, logging.INFO, message, job=job)


class _PlanPrinter:
    """Prints each plan that differs from the one before: a table on a terminal, else JSON."""

    def __init__(self) -> None:
        self._shown: tuple[ScaleDecision, ...] | None = None

    def __call__(self, _: ClusterSnapshot, plan: ScalePlan) -> None:
        if plan.decisions == self._shown:
            return
        self._shown = plan.decisions
        if sys.stdout.isatty():
            print_plan(plan)
        else:
            sys.stdout.write(plan_json(plan) + "\n")
            sys.stdout.flush()


def _elector(
    settings: ControllerSettings, session: ApiSession, clock: Clock, metrics: Metrics, take_over: Callable[[], None]
) -> Elector:
    """The election of this process; `take_over` is called before the process writes anything as the leader."""
    identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:12]}"

    def report(leads: bool, holder: str) -> None:
        if leads:
            take_over()
        metrics.led(leads=leads)
        message = (
            "leading: this controller holds the Lease"
            if leads
            else "standby: another controller holds the Lease"
            if holder
            else "lease released"
        )
        log_event(_log, logging.INFO, message, holder=holder or None)

    store = ApiLeaseStore(session, settings.namespace, LEASE_NAME)
    return Elector(store, clock, identity, on_change=report)


async def _run(settings: ControllerSettings, parts: _Parts) -> int:
    """Run all parts until the first one ends; then end the writes under way, release the lease and stop the rest."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    resources = _log_resources(settings, parts.cache, parts.metrics)
    async with (
        _background(parts.cache.run()) as mirror,
        _background(resources) as inquiry,
        _background(parts.page.live.run()),
    ):
        main = asyncio.ensure_future(_once(parts, mirror) if settings.once else _loop(parts, stop))
        leading = asyncio.ensure_future(parts.elector.run()) if parts.elector else None
        stopping = asyncio.ensure_future(stop.wait())
        watched = {main, mirror, inquiry, stopping} | ({leading} if leading else set())
        done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await asyncio.wait({main}, timeout=STOP_TIMEOUT_S)
        for task in (main, leading, stopping):
            if task is not None:
                task.cancel()
        await asyncio.gather(*(t for t in (main, leading, stopping) if t is not None), return_exceptions=True)
        if parts.elector is not None:
            await parts.elector.release()
        code = _code(main, done - {main, stopping})
    log_event(_log, logging.INFO, "stopped", code=code)
    return code


def _code(main: asyncio.Task[int], broken: Collection[asyncio.Future[Any]]) -> int:
    """The exit code: 1 if a part failed, else the result of the main part."""
    for task in broken:
        error = task.exception() if not task.cancelled() else None
        if isinstance(error, EdlError):
            log_event(_log, logging.ERROR, "stopping after an error", err=str(error))
            return 1
        if error is not None:
            raise error
    return 0 if main.cancelled() else main.result()


async def _loop(parts: _Parts, stop: asyncio.Event) -> int:
    await parts.controller.run(stop)
    return 0


async def _once(parts: _Parts, mirror: asyncio.Task[None]) -> int:
    await first_snapshot(parts.cache, mirror, SystemClock(), patience_s=ONCE_PATIENCE_S)
    result = await parts.controller.once(ONCE_TIMEOUT_S)
    if result is RoundResult.ACTED:
        note = "pods that it created or deleted may need another plan"
        log_event(_log, logging.INFO, "one plan carried out", note=note)
    return 0 if result in {RoundResult.ACTED, RoundResult.SHOWN} else 1


async def _log_resources(settings: ControllerSettings, cache: ClusterCache, metrics: Metrics) -> None:
    """Log the resource line each interval, on leader and followers, and each new object that cannot be read."""
    await cache.wait_until_synced()
    left_out = LeftOutLog(_log)
    while True:
        metrics.left_out(left_out.note(cache.left_out()))
        if _log.isEnabledFor(logging.DEBUG):
            log_event(_log, logging.DEBUG, "Cluster.InquiryResource done", resource=cache.resource_log_line())
        await asyncio.sleep(settings.interval_s)


@asynccontextmanager
async def _background(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
