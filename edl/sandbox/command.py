"""`edl sandbox`: starts a sandbox, says how to use it, shows it, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

from edl.dashboard.serve import Address, PageSettings, serve_page
from edl.errors import ConfigError, EdlError
from edl.sandbox.demo import Demo, demo_jobs, summary, why_slow
from edl.sandbox.kubelet.command import make_folder, unwritable
from edl.sandbox.kubelet.images import default_images, table
from edl.sandbox.kubelet.node import NodeShape
from edl.sandbox.stack import Stack, StackSettings, check_kubeconfig, started
from edl.sandbox.view.live import View
from edl.settings.sandbox import SandboxSettings
from edl.waiting import wait_for_first

_PAGE = "127.0.0.1:0"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def serve_sandbox(settings: SandboxSettings) -> int:
    """Run a sandbox until a signal, or until the demonstration ends.

    Returns:
        The exit code: 0 after a signal or a good demonstration, 1 after a bad one.

    Raises:
        ConfigError: a flag, a port or a folder cannot be used.
        EdlError: a part does not start, or has ended.
    """
    stop = asyncio.Event()
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if settings.demo:
        demo_jobs()
    if settings.kubeconfig is not None:
        check_kubeconfig(settings.kubeconfig)
    folder = make_folder(None, "TMPDIR")
    kubeconfig = (settings.kubeconfig or folder / "kubeconfig").absolute()
    new_folders = [parent for parent in kubeconfig.parents if not parent.exists()]
    try:
        work, stopped = await wait_for_first(_run(settings, folder, kubeconfig), stop.wait())
        return 0 if not stopped.cancelled() else work.result()
    except OSError as error:
        raise unwritable(folder, error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            kubeconfig.unlink(missing_ok=True)
            for parent in new_folders:
                parent.rmdir()


async def _run(settings: SandboxSettings, folder: Path, kubeconfig: Path) -> int:
    stack_settings = StackSettings(
        settings.nodes,
        NodeShape(settings.cpu, settings.memory),
        settings.port,
        folder,
        default_images(),
        kubeconfig,
        _words(settings.controller_flags),
    )
    async with started(stack_settings) as stack:
        _introduce(kubeconfig, stack, is_demo=settings.demo)
        view = View(stack.session)
        main: Awaitable[int] = _demonstrate(stack, view) if settings.demo else _forever()
        parts = [main, stack.wait(), view.run()]
        if settings.page:
            parts.append(serve_page(stack.session, PageSettings(listen=_PAGE), _show_address))
        done = await wait_for_first(*parts)
        finished = next(one for one in done if not one.cancelled())
        result: int = finished.result()
        return result


def _words(flags: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(flags))
    except ValueError as error:
        raise ConfigError(f"--controller-flags: {flags!r} cannot be read: {error}; close each quote") from error


async def _forever() -> int:
    await asyncio.Event().wait()
    return 0


async def _demonstrate(stack: Stack, view: View) -> int:
    """Play the demonstration and print its summary."""
    demo = Demo(stack.session, stack.kubelet, view)
    problems, is_whole = demo.account.problems, False
    try:
        await demo.play()
        is_whole = True
    except EdlError as error:
        problems.append(f"{error}; {why_slow(os.getloadavg()[0], os.cpu_count() or 1)}")
    lines = summary(demo.account, view.seconds, is_whole=is_whole)
    sys.stdout.write("\n".join(["", "What happened", *(f"  {line}" for line in lines), ""]))
    for problem in problems:
        sys.stderr.write(f"edl: {problem}\n")
    sys.stdout.flush()
    return 1 if problems else 0


def _show_address(address: Address) -> None:
    sys.stdout.write(f"page: {address.url}\n")
    sys.stdout.flush()


def _introduce(kubeconfig: Path, stack: Stack, *, is_demo: bool) -> None:
    """Print how to use the sandbox; the first line can be evaluated by a shell."""
    lines = [
        f"KUBECONFIG={kubeconfig}",
        f"metrics of the controller: http://{stack.status_address}/metrics",
        f"log of the controller: {stack.controller_log}",
        "",
        "images that this machine runs (a * stands for any registry):",
        table(default_images()),
    ]
    if not is_demo:
        lines += [
            "",
            "in another terminal:",
            f"  export KUBECONFIG={kubeconfig}",
            "  kubectl create -f example/fit_flights/job.yaml",
            "  kubectl get tj -w",
            "or without kubectl:",
            "  edl submit example/fit_flights/job.yaml",
            "  edl get -w",
            "  edl explain fit-flights",
            "Ctrl-C stops the sandbox and removes everything.",
        ]
    sys.stdout.write("\n".join([*lines, "", ""]))
    sys.stdout.flush()
