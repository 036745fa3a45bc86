"""Names -> addresses, many at a time, as the machine resolves them."""

from __future__ import annotations

import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edl.errors import TemporaryError

RESOLV_CONF = Path("/etc/resolv.conf")
_AT_ONCE = 16
_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def services_domain(namespace: str, resolv_conf: Path = RESOLV_CONF) -> str:
    """The domain of a namespace's Services, such as `default.svc.cluster.local.`, by the search list of this pod.

    A name that ends with it, and so with a dot, is asked for as it is. Of any other name without many dots the last
    thing asked is the name itself, which is none of the cluster's: where the cluster's name server has nobody to ask
    (no internet), it fails, and a pod that is just not there looks like a name server that does not answer.

    Args:
        namespace: whose; the pod's own where it is empty.
        resolv_conf: resolv.conf(5), as the kubelet writes it.

    Returns:
        The domain; empty where the search list has no Services, as in a pod with the host's name servers.
    """
    try:
        lines = [line.split() for line in resolv_conf.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return ""
    searched = next((words[1:] for words in reversed(lines) if words[:1] == ["search"]), [])
    for domain in searched:
        own, _, cluster = domain.rstrip(".").partition(".svc.")
        if own and "." not in own and cluster:
            return f"{namespace or own}.svc.{cluster}."
    return ""


def addresses_of(names: list[str]) -> list[tuple[str, ...]]:
    """The addresses of each name; none where there is no such name.

    Raises:
        TemporaryError: the name server does not answer.
    """
    with ThreadPoolExecutor(min(_AT_ONCE, len(names)), initializer=_hear_no_signals) as pool:
        return list(pool.map(_addresses, names))


def _hear_no_signals() -> None:
    """Leave signals to the main thread.

    A joined thread may live for a moment, and the entrypoint may have ended by then: its SIGCHLD would go to the
    thread that does not block it, and be lost.
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
