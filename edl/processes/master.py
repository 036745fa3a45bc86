"""`edl master`: builds a master from what the command line gave, and runs it until a signal or a failing disk."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import ssl
from dataclasses import dataclass
from pathlib import Path

from edl import __version__
from edl.clock import SystemClock
from edl.errors import ConfigError, EdlError
from edl.ledger.dispatch import LedgerSettings
from edl.master.bodies import DatasetBody, MalformedError, read_body
from edl.master.datasets import Catalog, asked
from edl.master.http_api import MOST_CONNECTIONS, MasterApi, Tokens
from edl.master.journal import FileLedgerStore
from edl.master.master import ExpectedProgress, Master, recover
from edl.master.metrics import MasterMetrics
from edl.observability.logs import log_event
from edl.observability.status_server import split_address

_log = logging.getLogger("edl.master.master")


@dataclass(frozen=True, slots=True)
class MasterFlags:
    """What `edl master` was given; the names are those of the flags."""

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
        The exit code: 0 after SIGINT or SIGTERM, 1 when the journal cannot be written any more.

    Raises:
        ConfigError: something that was given cannot be used.
        EdlError: the journal is damaged or lost.
    """
    host, port = _address(flags.listen)
    if not 0.1 <= flags.lease_ttl_s <= 3600:
        raise ConfigError(f"--lease-ttl-s {flags.lease_ttl_s}: give seconds between 0.1 and 3600, such as 30")
    tokens = Tokens(
        read_token(flags.token_file, "--token-file"),
        read_token(flags.controller_token_file, "--controller-token-file") if flags.controller_token_file else None,
    )
    tls, body, expected = _tls(flags), _dataset(flags.dataset), _expected(flags.expect_progress)
    clock, store, catalog = SystemClock(), FileLedgerStore(flags.journal), Catalog(flags.journal)
    try:
        settings = LedgerSettings(ttl_s=flags.lease_ttl_s)
        again = flags.on_ledger_lost == "RestartEpoch"
        found = recover(store, settings, clock.monotonic_s(), expected=expected, restarts_epoch=again)
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
        log_event(_log, logging.INFO, "edl master", version=__version__, listen=":".join(map(str, address)))
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
        log_event(_log, logging.ERROR, "stopping", err=str(failed))
        return 1
    if failed is not None:
        raise failed
    log_event(_log, logging.INFO, "stopped", code=0)
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


def _address(listen: str) -> tuple[str, int]:
    try:
        return split_address(listen)
    except ValueError as error:
        raise ConfigError(f"--listen {error}; give HOST:PORT, such as 0.0.0.0:8080") from error


_A_DATASET = '{"source": "index:100000", "shardSize": 1000}'


def _dataset(text: str | None) -> DatasetBody | None:
    if not text:
        return None
    try:
        return read_body(text.encode(), DatasetBody)
    except MalformedError as error:
        raise ConfigError(f"--dataset {text[:200]}: {error}; give an object such as {_A_DATASET}") from error


def _expected(text: str | None) -> ExpectedProgress | None:
    if not text:
        return None
    epoch, colon, done = text.partition(":")
    if not colon or not epoch.isdecimal() or not done.isdecimal():
        raise ConfigError(f"--expect-progress {text!r}: give EPOCH:DONE, such as 3:1200")
    return ExpectedProgress(int(epoch), int(done))


def _tls(flags: MasterFlags) -> ssl.SSLContext | None:
    if flags.tls_cert is None and flags.tls_key is None:
        return None
    if flags.tls_cert is None or flags.tls_key is None:
        raise ConfigError("--tls-cert and --tls-key go together; give both or none")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(flags.tls_cert, flags.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"--tls-cert {flags.tls_cert}, --tls-key {flags.tls_key}: {error}; give PEM files"
        ) from error
    return context
