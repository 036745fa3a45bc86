"""`edl dashboard`."""

from __future__ import annotations

import asyncio
import signal

import typer

from edl.dashboard.serve import Address, PageSettings, serve_page
from edl.kube.client.session import ApiSession
from edl.settings.dashboard import DashboardSettings
from edl.waiting import wait_for_first


def dashboard(settings: DashboardSettings) -> None:
    """Serve the page of a cluster until SIGINT or SIGTERM.

    Raises:
        ConfigError: a flag, the kubeconfig or the address cannot be used.
        EdlError: the cluster cannot be read.
    """
    asyncio.run(_serve(settings))


async def _serve(settings: DashboardSettings) -> None:
    stop, limits = asyncio.Event(), settings.read_limits()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    page = PageSettings(settings.listen, settings.policy, lambda: limits)
    async with await ApiSession.open(settings.kubeconfig) as session:
        served, stopped = await wait_for_first(serve_page(session, page, _print_address), stop.wait())
        if stopped.cancelled():
            served.result()


def _print_address(address: Address) -> None:
    typer.echo(f"open {address.url}")
    typer.echo(f"token {address.token}")
    typer.echo("Ctrl-C stops the page; it only reads the cluster", err=True)
