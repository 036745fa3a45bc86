"""Processes for many runs that all end when the parent is interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


def run_in_processes(count: int, call: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> Generator[T]:
    """Call a function in so many processes; results come as they are there.

    If the caller stops, on SIGINT or SIGTERM or because of an error, all processes end at once.
    """
    others = set(active_children())
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
    try:
        with _terminates():
            for future in as_completed(_submit(pool, call, arguments)):
                yield future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(active_children()) - others:
            child.kill()
        raise
    pool.shutdown()


def _submit(
    pool: ProcessPoolExecutor, call: Callable[..., T], arguments: Sequence[tuple[Any, ...]]
) -> list[Future[T]]:
    """Submit every call; each process that starts for them has SIGINT blocked from its first moment.

    A terminal sends SIGINT to all processes, and a Python process that still loads modules answers with a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return [pool.submit(call, *each) for each in arguments]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _terminates() -> Iterator[None]:
    """SIGTERM ends this process in order: as an exception, which ends the others."""
    is_free = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if is_free:
        signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        if is_free:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(*_: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)
