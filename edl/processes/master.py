"""`edl master`: builds a master from its flags, and runs it until a signal arrives or the disk fails."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from pathlib import Path

from edl import __version__
from edl.clock import Clock, SystemClock
from edl.errors import ConfigError, EdlError
from edl.ledger.dispatch import LedgerSettings
from edl.ledger.events import DatasetSet
from edl.master.bodies import DatasetBody
from edl.master.datasets import Catalog, dataset_event
from edl.master.http_api import MAX_CONNECTIONS, MasterApi, Tokens
from edl.master.journal import FileLedgerStore
from edl.master.master import Master, Recovered, recover
from edl.master.metrics import MasterMetrics
from edl.observability.logs import log_event
from edl.observability.status_server import split_address
from edl.processes.open_files import raise_file_limit
from edl.settings.master import MasterSettings

_log = logging.getLogger("edl.master.master")


async def serve_master(settings: MasterSettings) -> int:
    """Run a master.

    Returns:
        The exit code: 0 after SIGINT or SIGTERM, 1 if the journal can no longer be written.

    Raises:
        ConfigError: a flag cannot be used.
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
    clock, catalog = SystemClock(), Catalog(settings.journal)
    store, recovered = await _open_ledger(settings, catalog, clock)
    raise_file_limit(MAX_CONNECTIONS + 1000)
    master = Master(recovered, store, clock)
    api = MasterApi(master, tokens, MasterMetrics(), catalog)
    try:
        if body is not None:
            await master.set_dataset(await _described(body, recovered.ledger.state.dataset, catalog))
        address = await api.start(host, port, tls)
        log_event(_log, logging.INFO, "master started", version=__version__, listen=":".join(map(str, address)))
        return await _until_signal(master)
    finally:
        await master.drain()
        await api.stop()
        await store.close()


async def _open_ledger(settings: MasterSettings, catalog: Catalog, clock: Clock) -> tuple[FileLedgerStore, Recovered]:
    """Rebuild the ledger from the journal, find its data set again, and start the journal."""
    store = FileLedgerStore(settings.journal)
    try:
        recovered = recover(
            store,
            LedgerSettings(ttl_s=settings.lease_ttl_s),
            clock.monotonic_s(),
            expected=settings.expect_progress,
            restarts_epoch=settings.on_ledger_lost == "RestartEpoch",
        )
        state = recovered.ledger.state
        if state.dataset is not None and state.is_open:
            await asyncio.to_thread(catalog.reopen, state.dataset)
        store.start()
    except EdlError:
        await store.close()
        raise
    return store, recovered


async def _described(body: DatasetBody, known: DatasetSet | None, catalog: Catalog) -> DatasetSet:
    """The data set of `--dataset`; its records are counted only if the journal does not know it yet."""
    if known is None:
        return await catalog.describe(body)
    return dataset_event(body, known.version, known.total, known.block)


async def _until_signal(master: Master) -> int:
    """Run the master until a signal arrives, or until it fails; returns the exit code."""
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
        log_event(_log, logging.ERROR, "master failed", err=str(failed))
        return 1
    if failed is not None:
        raise failed
    log_event(_log, logging.INFO, "stopped", code=0)
    return 0


def read_token(path: Path, flag: str) -> bytes:
    """The token in a file, without the end of the line.

    Args:
        path: the file.
        flag: the flag that names it, for the message.

    Raises:
        ConfigError: the file cannot be read, or is empty.
    """
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"{flag} {path}: cannot be read: {error.strerror}; give a readable file") from error
    if not token:
        raise ConfigError(f"{flag} {path}: the file is empty; write the job's token into it")
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
