"""`edl master`: builds a master from what the command line gave, and runs it until a signal or a failing disk."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import ssl
from pathlib import Path

from edl import __version__
from edl.clock import SystemClock
from edl.errors import ConfigError, EdlError
from edl.ledger.dispatch import LedgerSettings
from edl.master.datasets import Catalog, asked
from edl.master.http_api import MOST_CONNECTIONS, MasterApi, Tokens
from edl.master.journal import FileLedgerStore
from edl.master.master import Master, recover
from edl.master.metrics import MasterMetrics
from edl.observability.logs import say
from edl.observability.status_server import split_address
from edl.settings.master import MasterSettings

_log = logging.getLogger("edl.master.master")


async def serve_master(settings: MasterSettings) -> int:
    """Run a master.

    Returns:
        The exit code: 0 after SIGINT or SIGTERM, 1 when the journal cannot be written any more.

    Raises:
        ConfigError: something that was given cannot be used.
        EdlError: the journal is damaged or lost.
    """
    host, port = split_address(settings.listen)
    tokens = Tokens(
        read_token(settings.token_file, "--token-file"),
        read_token(settings.controller_token_file, "--controller-token-file")
        if settings.controller_token_file
        else None,
    )
    tls, body = _tls(settings.tls_cert, settings.tls_key), settings.dataset
    clock, store, catalog = SystemClock(), FileLedgerStore(settings.journal), Catalog(settings.journal)
    try:
        found = recover(
            store,
            LedgerSettings(ttl_s=settings.lease_ttl_s),
            clock.monotonic_s(),
            expected=settings.expect_progress,
            restarts_epoch=settings.on_ledger_lost == "RestartEpoch",
        )
        known = found.ledger.state.dataset
        if known is not None and found.ledger.state.is_open:
            await asyncio.to_thread(catalog.reopen, known)
        store.start()
    except EdlError:
        await store.close()
        raise
    _allow_connections()
    master = Master(found, store, clock)
    api = MasterApi(master, tokens, MasterMetrics(), catalog)
    try:
        if body is not None:
            await master.set_dataset(
                asked(body, known.version, known.total, known.block) if known else await catalog.describe(body)
            )
        address = await api.start(host, port, tls)
        say(_log, logging.INFO, "edl master", version=__version__, listen=":".join(map(str, address)))
        return await _until_signal(master)
    finally:
        await master.drain()
        await api.stop()
        await store.close()


async def _until_signal(master: Master) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    running, stopping = asyncio.create_task(master.run()), asyncio.create_task(stop.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    failed = running.exception() if running.done() else None
    for task in (running, stopping):
        task.cancel()
    await asyncio.gather(running, stopping, return_exceptions=True)
    if isinstance(failed, EdlError):
        say(_log, logging.ERROR, "stopping", err=str(failed))
        return 1
    if failed is not None:
        raise failed
    say(_log, logging.INFO, "stopped", code=0)
    return 0


def _allow_connections() -> None:
    """One file per trainer: as many as we may have, where the shell gave fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft < hard:
        most = MOST_CONNECTIONS + 1000
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (max(soft, most if hard == resource.RLIM_INFINITY else min(most, hard)), hard)
        )


def read_token(path: Path, flag: str) -> bytes:
    """The token in a file, without the line's end.

    Raises:
        ConfigError: it cannot be read, or is empty.
    """
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"{flag} {path}: cannot be read: {error.strerror}; give a readable file") from error
    if not token:
        raise ConfigError(f"{flag} {path}: it is empty; write the job's token into it")
    return token


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None or key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--tls-cert {certificate}, --tls-key {key}: {error}; give PEM files") from error
    return context
