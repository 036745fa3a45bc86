"""Resolves names to addresses, many at the same time, with the resolver of the machine."""

from __future__ import annotations

import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edl.errors import TemporaryError

RESOLV_CONF = Path("/etc/resolv.conf")
_MAX_THREADS = 16
_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def services_domain(namespace: str, resolv_conf: Path = RESOLV_CONF) -> str:
    """The domain of a namespace's Services, such as `default.svc.cluster.local.`, from this pod's search list.

    A name with this ending has a final dot, so the resolver does not try other domains. A name with few dots and
    without a final dot is also looked up outside of the cluster. In a cluster without internet that lookup fails, and
    a missing pod looks like a broken name server.

    Args:
        namespace: the namespace of the Services; if empty, the namespace of this pod.
        resolv_conf: the file resolv.conf(5), as the kubelet writes it.

    Returns:
        The domain; empty if the search list has no domain of Services, as in a pod with the name servers of its node.
    """
    try:
        lines = [line.split() for line in resolv_conf.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return ""
    domains = next((fields[1:] for fields in reversed(lines) if fields[:1] == ["search"]), [])
    for domain in domains:
        own, _, cluster = domain.rstrip(".").partition(".svc.")
        if own and "." not in own and cluster:
            return f"{namespace or own}.svc.{cluster}."
    return ""


def addresses_of(names: list[str]) -> list[tuple[str, ...]]:
    """The addresses of each name; an empty tuple for a name that does not exist.

    Raises:
        TemporaryError: the name server does not answer.
    """
    with ThreadPoolExecutor(min(_MAX_THREADS, len(names)), initializer=_block_signals) as pool:
        return list(pool.map(_addresses, names))


def _block_signals() -> None:
    """Block all signals in this thread, so that the main thread gets them.

    A thread may still exist for a moment after it was joined. If the entrypoint ends in that moment, its SIGCHLD
    would go to the thread that does not block it, and would be lost.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _addresses(name: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in _NO_SUCH_NAME:
            return ()
        raise TemporaryError(f"{name}: the name server does not answer: {error}") from error
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
