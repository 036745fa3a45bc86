"""`edl shadow` as a process: the controller's cache, observer and planner beside a cluster, and no writer.

The session refuses every request that is not a GET, before it is sent. There is no lease and no status page.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edl import __version__
from edl.clock import AdjustedClock, Clock, SystemClock
from edl.controller.loop import Controller, Partners
from edl.controller.pace import Pace
from edl.controller.policy_planner import planner_of
from edl.errors import EdlError
from edl.headroom.advisor import Advisor
from edl.kube.client.session import ApiSession
from edl.kube.cluster import WatchedCluster
from edl.kube.leader_election import AlwaysHeld
from edl.kube.mirror.cache import ClusterCache
from edl.kube.mirror.mirrored import Mirrored
from edl.kube.mirror.read_once import first_snapshot
from edl.kube.translate.makers import MakerReader
from edl.kube.workloads.adapter import MirroredKind
from edl.kube.workloads.as_if_elastic import AsIfBounds, AsIfElastic
from edl.kube.workloads.pytorch_jobs import PyTorchJobs
from edl.kube.workloads.registry import ADAPTERS
from edl.model.names import CONTROLLER_NAMESPACE, WorkloadKind
from edl.model.times import text_of
from edl.observability.logs import log_event
from edl.planner.policies.registry import policy_named
from edl.processes.controller import DEFAULT_MASTER_IMAGE, SWITCH_S
from edl.processes.garbage import rare_searches
from edl.settings.shadow import ShadowSettings
from edl.shadow import unknowns
from edl.shadow.document import Report, Settings
from edl.shadow.page import page_of
from edl.shadow.state import JSON_FILE, PAGE_FILE, STATE_FILE, open_state, write_files
from edl.shadow.summary import summary_of
from edl.shadow.watcher import Watcher

LOOK_S = 1.0
PATIENCE_S = 15.0
"""How long an error of the API server may last before the command gives up at its start."""
LAST_LOOK_S = 10.0
"""How long the last report may search for objects that edl does not understand."""
_REMEDY = (
    "check the API server and the right to watch nodes, pods, daemonsets and priorityclasses in all namespaces,"
    " as deploy/shadow gives it"
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts that run side by side."""

    settings: ShadowSettings
    session: ApiSession
    clock: Clock
    cache: ClusterCache
    controller: Controller
    watcher: Watcher
    say: Callable[[str], None]


async def serve(settings: ShadowSettings, say: Callable[[str], None]) -> int:
    """Watch a cluster until the time is over or a signal comes.

    Args:
        settings: the flags.
        say: prints a line for each report.

    Returns:
        The exit code.

    Raises:
        ConfigError: a flag, a file, the kubeconfig or the folder cannot be used.
        EdlError: the cluster cannot be read.
    """
    async with await ApiSession.open(settings.kubeconfig) as session:
        session.only_read()
        parts = _build(settings, session, say)
        sys.setswitchinterval(SWITCH_S)
        with rare_searches():
            return await _run(parts)


def readers_of(settings: ShadowSettings) -> Mapping[WorkloadKind, MirroredKind]:
    """The readers of other workloads: as the controller reads them, or as if all had asked to be resized."""
    if not settings.as_if_elastic:
        return ADAPTERS
    bounds = AsIfBounds(halves=settings.as_if_min == "half", doubles=settings.as_if_max == "twice")
    kinds: Mapping[WorkloadKind, MirroredKind] = {**ADAPTERS, WorkloadKind.PYTORCH_JOB: PyTorchJobs(as_if=True)}
    return {kind: reader if _asks(reader) else AsIfElastic(reader, bounds) for kind, reader in kinds.items()}


def _asks(reader: MirroredKind) -> bool:
    """True for a kind whose objects count only if they ask for it; most LeaderWorkerSets serve requests."""
    return isinstance(reader, MakerReader) or reader.kind is WorkloadKind.LEADER_WORKER_SET


def _build(settings: ShadowSettings, session: ApiSession, say: Callable[[str], None]) -> _Parts:
    clock = AdjustedClock(SystemClock(), lambda: session.server_clock.ahead_s)
    policy, limits = policy_named(settings.policy), settings.read_limits()
    how = Settings(
        policy=policy.name,
        as_if_elastic=settings.as_if_elastic,
        as_if_min=settings.as_if_min,
        as_if_max=settings.as_if_max,
    )
    watcher = Watcher(clock, open_state(settings.out, session.host, how, text_of(clock.now_s())))
    cache = ClusterCache(
        session,
        clock,
        default_master_image=DEFAULT_MASTER_IMAGE,
        controller_namespace=CONTROLLER_NAMESPACE,
        on_event=watcher.note,
        mirrored=Mirrored(namespaces=settings.watch_namespace, workloads=readers_of(settings), requires_jobs=False),
    )
    watcher.read_facts(cache.rule_facts)
    controller = Controller(
        cluster=WatchedCluster(cache, clock),
        clock=clock,
        lease=AlwaysHeld(),
        recorder=watcher,
        planner=planner_of(policy, lambda: limits.quotas),
        limits=limits,
        pace=Pace(interval_s=settings.interval_s),
        partners=Partners(show=watcher.show, advisor=Advisor(limits.serving.slo) if limits.serving.slo else None),
    )
    return _Parts(settings, session, clock, cache, controller, watcher, say)


async def _run(parts: _Parts) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    mirror = asyncio.create_task(parts.cache.run())
    tasks = [mirror]
    try:
        await first_snapshot(parts.cache, mirror, SystemClock(), patience_s=PATIENCE_S, remedy=_REMEDY)
        log_event(_log, logging.INFO, "shadow started", version=__version__, server=parts.session.host)
        deciding = asyncio.create_task(parts.controller.run(stop))
        looking = asyncio.create_task(_look(parts, stop))
        tasks += [deciding, looking]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        stop.set()
        await looking
        return 0
    finally:
        stop.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _look(parts: _Parts, stop: asyncio.Event) -> None:
    """Look once a second; write a report now and then, and the last one at the end."""
    watcher, clock, settings = parts.watcher, parts.clock, parts.settings
    reported_s = clock.monotonic_s()
    while not stop.is_set():
        watcher.look(parts.cache)
        if settings.for_s is not None and watcher.observed_s >= settings.for_s:
            break
        if clock.monotonic_s() - reported_s >= settings.report_every_s:
            await _report(parts, is_final=False)
            reported_s = clock.monotonic_s()
        await _sleep(LOOK_S, stop)
    watcher.look(parts.cache)
    await _report(parts, is_final=True)


async def _sleep(seconds: float, stop: asyncio.Event) -> None:
    """Sleep for a time, or until `stop` is set."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


async def _report(parts: _Parts, *, is_final: bool) -> None:
    """Write the three files, and say what is in them."""
    await _note_unknowns(parts)
    report = parts.watcher.report(is_final=is_final)
    texts = {
        STATE_FILE: parts.watcher.state().model_dump_json(by_alias=True) + "\n",
        JSON_FILE: json_of(report),
        PAGE_FILE: page_of(report),
    }
    await asyncio.to_thread(write_files, parts.settings.out, texts)
    parts.say(f"{summary_of(report)}; {parts.settings.out / PAGE_FILE}")


def json_of(report: Report) -> str:
    """Encode the report as JSON."""
    return report.model_dump_json(by_alias=True, indent=1) + "\n"


async def _note_unknowns(parts: _Parts) -> None:
    """Look for objects that edl does not understand; if that takes too long, keep those found last."""
    watcher, cache = parts.watcher, parts.cache
    try:
        async with asyncio.timeout(LAST_LOOK_S):
            found = await unknowns.look(parts.session, cache.unread(), cache.left_out(), watcher.jobs)
        found.rules = watcher.uncounted
    except (TimeoutError, EdlError) as error:
        log_event(_log, logging.WARNING, "unreadable objects could not be listed", err=str(error) or "too slow")
        return
    watcher.note_unknown(found)
