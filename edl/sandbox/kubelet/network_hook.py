"""Gives a Python program in a container of the process kubelet the names and the addresses of a pod.

The kubelet copies this file as `sitecustomize.py` into a folder on PYTHONPATH, so Python runs it before the program.
Standard library only, and it needs nothing of edl. Without it each program would listen on every address of the
machine, where only one can have a port, and names of Services would be asked of the machine's name server.

- a server that binds every address (0.0.0.0) binds the address of its pod;
- the names of Services and of the pods behind them are looked up in a file that the kubelet keeps up to date;
- the host name is that of the pod;
- on a system whose only loopback address is 127.0.0.1, a folder maps each ADDRESS:PORT of a pod to a free port.
"""

from __future__ import annotations

import errno
import importlib.machinery
import importlib.util
import json
import os
import random
import socket
import sys
from collections.abc import Callable
from typing import Any

ADDRESS = "EDL_SANDBOX_ADDRESS"
HOST_NAME = "EDL_SANDBOX_HOSTNAME"
NAMESPACE = "EDL_SANDBOX_NAMESPACE"
NAMES_FILE = "EDL_SANDBOX_NAMES"
PORTS_FOLDER = "EDL_SANDBOX_PORTS"

_CLUSTER = ["svc", "cluster", "local"]
_WILDCARDS = {"", "0.0.0.0"}  # noqa: S104 - this is what is replaced
_LOOPBACK = "127.0.0.1"


class Names:
    """The names of Services, from the file of the kubelet: NAMESPACE/SERVICE -> hosts, addresses and ports.

    Args:
        path: the path of the file.
        namespace: the namespace of this pod.
    """

    def __init__(self, path: str, namespace: str) -> None:
        self._path, self._namespace = path, namespace
        self._read: tuple[int, dict[str, Any]] = (0, {})

    def find(self, name: str) -> tuple[list[str], dict[str, int]] | None:
        """The addresses of a name, and the ports that its Service changes; None if it is no name of the cluster.

        An empty list means a name of the cluster that nobody has.
        """
        labels = name.rstrip(".").lower().split(".")
        is_explicit = False
        for ending in (_CLUSTER, _CLUSTER[:1]):
            if len(labels) > len(ending) and labels[-len(ending) :] == ending:
                labels, is_explicit = labels[: -len(ending)], True
                break
        services = self._services()
        for host, service, namespace in self._readings(labels):
            entry = services.get(f"{namespace}/{service}")
            if entry is not None:
                return entry["hosts"].get(host, []) if host else entry["addresses"], entry.get("ports", {})
        return ([], {}) if is_explicit else None

    def _readings(self, labels: list[str]) -> list[tuple[str, str, str]]:
        """The ways to read a name: (host, Service, namespace)."""
        match labels:
            case [service]:
                return [("", service, self._namespace)]
            case [first, second]:
                return [("", first, second), (first, second, self._namespace)]
            case [host, service, namespace]:
                return [(host, service, namespace)]
        return []

    def _services(self) -> dict[str, Any]:
        try:
            changed = os.stat(self._path).st_mtime_ns  # noqa: PTH116 - pathlib is slow to import
            if changed != self._read[0]:
                with open(self._path, encoding="utf-8") as file:  # noqa: PTH123
                    self._read = (changed, json.load(file))
        except (OSError, ValueError):
            return self._read[1]
        return self._read[1]


class Ports:
    """The ports of pods on a system that has only 127.0.0.1: one small file for each ADDRESS:PORT.

    Args:
        folder: the folder of the files.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find(self, address: str, port: int) -> int | None:
        """The port of 127.0.0.1 at which a port of a pod can be reached; None if nothing listens there."""
        try:
            with open(self._file(address, port), encoding="ascii") as file:  # noqa: PTH123
                return int(file.read())
        except (OSError, ValueError):
            return None

    def store(self, address: str, port: int, real: int) -> None:
        """Store the port of 127.0.0.1 at which a port of a pod can be reached."""
        new = f"{self._file(address, port)}.{os.getpid()}"
        with open(new, "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(str(real))
        os.replace(new, self._file(address, port))  # noqa: PTH105

    def _file(self, address: str, port: int) -> str:
        return os.path.join(self._folder, f"{address}:{port}")  # noqa: PTH118


def is_of_a_pod(address: object) -> bool:
    """True for an address that a kubelet gives to pods."""
    return isinstance(address, str) and address.startswith("127.") and address != _LOOPBACK


def install(environment: dict[str, str]) -> None:
    """Replace the functions of `socket` that resolve names, bind or connect."""
    names = environment.get(NAMES_FILE)
    if names:
        _resolve_names(Names(names, environment.get(NAMESPACE, "default")), environment)
    address, folder = environment.get(ADDRESS, ""), environment.get(PORTS_FOLDER, "")
    if folder:
        _map_ports(address, Ports(folder))
    elif address:
        _bind_address(address)


def _replace(name: str, method: Callable[..., Any]) -> None:
    """Replace a method of every socket, so that programs need not know of this hook."""
    setattr(socket.socket, name, method)


def _bind_address(own: str) -> None:
    bind = socket.socket.bind

    def bind_own(self: socket.socket, address: Any, /) -> None:  # noqa: ANN401 - as in `socket`
        if self.family == socket.AF_INET and address[0] in _WILDCARDS:
            address = (own, *address[1:])
        bind(self, address)

    _replace("bind", bind_own)


def _map_ports(own: str, ports: Ports) -> None:
    bind, connect, connect_ex = socket.socket.bind, socket.socket.connect, socket.socket.connect_ex

    def bind_mapped(self: socket.socket, address: Any, /) -> None:  # noqa: ANN401 - as in `socket`
        if own and self.family == socket.AF_INET and (address[0] in _WILDCARDS or address[0] == own) and address[1]:
            bind(self, (_LOOPBACK, 0))
            ports.store(own, address[1], self.getsockname()[1])
        else:
            bind(self, address)

    def mapped(self: socket.socket, address: Any) -> Any:  # noqa: ANN401
        if self.family != socket.AF_INET or not isinstance(address, tuple) or not is_of_a_pod(address[0]):
            return address
        port = ports.find(address[0], address[1])
        if port is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return (_LOOPBACK, port)

    def connect_mapped(self: socket.socket, address: Any, /) -> None:  # noqa: ANN401
        connect(self, mapped(self, address))

    def connect_ex_mapped(self: socket.socket, address: Any, /) -> int:  # noqa: ANN401
        try:
            return connect_ex(self, mapped(self, address))
        except ConnectionRefusedError:
            return errno.ECONNREFUSED

    _replace("bind", bind_mapped)
    _replace("connect", connect_mapped)
    _replace("connect_ex", connect_ex_mapped)


def _resolve_names(names: Names, environment: dict[str, str]) -> None:
    getaddrinfo, gethostbyname, gethostbyaddr = socket.getaddrinfo, socket.gethostbyname, socket.gethostbyaddr
    own_name, own_address = environment.get(HOST_NAME, ""), environment.get(ADDRESS, "") or _LOOPBACK

    def find(name: Any) -> tuple[list[str], dict[str, int]] | None:  # noqa: ANN401
        text = name.decode() if isinstance(name, bytes) else name
        if not isinstance(text, str) or not text or text.replace(".", "").isdigit():
            return None
        if text == own_name:
            return [own_address], {}
        found = names.find(text)
        if found is not None and not found[0]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found

    def look_up(host: Any, port: Any, *how: Any, **named: Any) -> Any:  # noqa: ANN401 - as in `socket`
        found = find(host)
        if found is None:
            return getaddrinfo(host, port, *how, **named)
        addresses, ports = found
        target = ports.get(str(port), port)
        shuffled = random.sample(addresses, len(addresses))
        return [answer for one in shuffled for answer in getaddrinfo(one, target, *how, **named)]

    def address_of(name: str) -> str:
        found = find(name)
        return gethostbyname(name) if found is None else found[0][0]

    def host_of(name: str) -> tuple[str, list[str], list[str]]:
        if is_of_a_pod(name) or name in {own_name, own_address}:
            return (own_name or name, [], [own_address])
        return gethostbyaddr(name)

    socket.getaddrinfo, socket.gethostbyname, socket.gethostbyaddr = look_up, address_of, host_of
    if own_name:
        socket.gethostname = lambda: own_name


def _run_the_next() -> None:
    """Run the other `sitecustomize` module that this one hides."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    search = [path for path in sys.path if path and os.path.abspath(path) != here]  # noqa: PTH100
    found = importlib.machinery.PathFinder.find_spec("sitecustomize", search)
    if found is not None and found.loader is not None:
        found.loader.exec_module(importlib.util.module_from_spec(found))


if __name__ == "sitecustomize":
    install(dict(os.environ))
    _run_the_next()
