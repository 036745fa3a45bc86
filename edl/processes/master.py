"""`edl master`: builds a master from its flags, and runs it until a signal arrives or the disk fails."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import ssl
from dataclasses import dataclass
from pathlib import Path

from edl import __version__
from edl.clock import Clock, SystemClock
from edl.errors import ConfigError, EdlError
from edl.ledger.dispatch import LedgerSettings
from edl.ledger.events import DatasetSet
from edl.master.bodies import DatasetBody, MalformedError, read_body
from edl.master.datasets import Catalog, dataset_event
from edl.master.http_api import MAX_CONNECTIONS, MasterApi, Tokens
from edl.master.journal import FileLedgerStore
from edl.master.master import ExpectedProgress, Master, Recovered, recover
from edl.master.metrics import MasterMetrics
from edl.observability.logs import say
from edl.observability.status_server import split_address

_log = logging.getLogger("edl.master.master")


@dataclass(frozen=True, slots=True)
class MasterFlags:
    """The flags of `edl master`; each attribute is named after its flag."""

    listen: str
    journal: Path
    token_file: Path
    controller_token_file: Path | None = None
    dataset: str | None = None
    lease_ttl_s: float = 30.0
    tls_cert: Path | None = None
    tls_key: Path | None = None
    expect_progress: str | None = None
    on_ledger_lost: str = "Fail"


async def serve_master(flags: MasterFlags) -> int:
    """Run a master.

    Returns:
        The exit code: 0 after SIGINT or SIGTERM, 1 if the journal can no longer be written.

    Raises:
        ConfigError: a flag cannot be used.
        EdlError: the journal is damaged or lost.
    """
    host, port = _address(flags.listen)
    if not 0.1 <= flags.lease_ttl_s <= 3600:
        raise ConfigError(
            f"--lease-ttl-s {flags.lease_ttl_s}: this is out of range; give 0.1 to 3600 seconds, such as 30"
        )
    tokens = Tokens(
        read_token(flags.token_file, "--token-file"),
        read_token(flags.controller_token_file, "--controller-token-file") if flags.controller_token_file else None,
    )
    tls, body = _tls(flags), _dataset(flags.dataset)
    clock, catalog = SystemClock(), Catalog(flags.journal)
    store, recovered = await _open_ledger(flags, catalog, clock)
    _raise_file_limit()
    master = Master(recovered, store, clock)
    api = MasterApi(master, tokens, MasterMetrics(), catalog)
    try:
        if body is not None:
            await master.set_dataset(await _described(body, recovered.ledger.state.dataset, catalog))
        address = await api.start(host, port, tls)
        say(_log, logging.INFO, "master started", version=__version__, listen=":".join(map(str, address)))
        return await _until_signal(master)
    finally:
        await master.drain()
        await api.stop()
        await store.close()


async def _open_ledger(flags: MasterFlags, catalog: Catalog, clock: Clock) -> tuple[FileLedgerStore, Recovered]:
    """Rebuild the ledger from the journal, find its data set again, and start the journal."""
    expected, settings = _expected(flags.expect_progress), LedgerSettings(ttl_s=flags.lease_ttl_s)
    restarts_epoch = flags.on_ledger_lost == "RestartEpoch"
    store = FileLedgerStore(flags.journal)
    try:
        recovered = recover(store, settings, clock.monotonic_s(), expected=expected, restarts_epoch=restarts_epoch)
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
        say(_log, logging.ERROR, "master failed", err=str(failed))
        return 1
    if failed is not None:
        raise failed
    say(_log, logging.INFO, "stopped", code=0)
    return 0


def _raise_file_limit() -> None:
    """Raise the limit of open files as far as allowed, because each trainer's connection is one open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft < hard:
        wanted = MAX_CONNECTIONS + 1000
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))


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


def _address(listen: str) -> tuple[str, int]:
    try:
        return split_address(listen)
    except ValueError as error:
        raise ConfigError(f"--listen {error}; give HOST:PORT, such as 0.0.0.0:8080") from error


_DATASET_EXAMPLE = '{"source": "index:100000", "shardSize": 1000}'


def _dataset(text: str | None) -> DatasetBody | None:
    if not text:
        return None
    try:
        return read_body(text.encode(), DatasetBody)
    except MalformedError as error:
        raise ConfigError(
            f"--dataset {text[:200]}: {error}; give a JSON object such as {_DATASET_EXAMPLE}"
        ) from error


def _expected(text: str | None) -> ExpectedProgress | None:
    if not text:
        return None
    epoch, colon, done = text.partition(":")
    if not colon or not epoch.isdecimal() or not done.isdecimal():
        raise ConfigError(
            f"--expect-progress {text!r}: this is not EPOCH:DONE; give two whole numbers, such as 3:1200"
        )
    return ExpectedProgress(int(epoch), int(done))


def _tls(flags: MasterFlags) -> ssl.SSLContext | None:
    if flags.tls_cert is None and flags.tls_key is None:
        return None
    if flags.tls_cert is None or flags.tls_key is None:
        raise ConfigError("--tls-cert and --tls-key: only one of them is set; give both, or neither")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(flags.tls_cert, flags.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"--tls-cert {flags.tls_cert}, --tls-key {flags.tls_key}: {error}; give PEM files"
        ) from error
    return context
