"""The HTTPS server of the kubelet: serves logs, runs commands in containers, and rejects everything else.

It listens on loopback only, and serves nobody whom `Callers` does not let pass: a command runs with the rights of the
person who started the kubelet. Commands come over a WebSocket, as the embedded API server passes them on; a real API
server speaks SPDY to its kubelets, for which there is no maintained Python library.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from edl.dashboard.access import DeniedError
from edl.errors import EdlError
from edl.sandbox.certificate import write_certificate
from edl.sandbox.kubelet.callers import Callers
from edl.sandbox.kubelet.container import Container
from edl.sandbox.kubelet.exec import PROTOCOLS, run_command
from edl.sandbox.kubelet.host import LOOPBACK

FindContainer = Callable[[str, str, str], Container | None]
"""(namespace, pod, container) -> the container; None if this kubelet does not run it."""

_POLL_S = 0.2
_CHUNK = 1 << 16
_NO_TIMES = ("timestamps", "sinceTime", "sinceSeconds")


class LogServer:
    """Serves the logs of one kubelet.

    Args:
        find: finds a container.
        folder: for the certificate.
        callers: says who may call.
    """

    def __init__(self, find: FindContainer, folder: Path, callers: Callers) -> None:
        self._find, self._folder, self._callers = find, folder, callers
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Start the server on a free port; returns the port.

        Raises:
            TemporaryError: the API server does not say whose certificates count.
        """
        application = web.Application(middlewares=[self._guard])
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        application.router.add_get("/healthz", self._health)
        application.router.add_get("/exec/{namespace}/{pod}/{container}", self._exec)
        for verb in ("exec", "attach", "portForward", "run"):
            application.router.add_route("*", f"/{verb}/{{rest:.*}}", self._refuse)
        context = await self._callers.tls(write_certificate(self._folder / "kubelet.pem"))
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, 0, ssl_context=context).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close every connection of the server."""
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            await self._callers.check(request)
        except DeniedError as error:
            return web.Response(status=error.status, text=f"{error}\n")
        except EdlError as error:
            return web.Response(status=503, text=f"the API server does not say who calls: {error}\n")
        return await handler(request)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _refuse(self, request: web.Request) -> web.Response:
        verb = request.path.split("/")[1]
        if verb == "exec":
            why = "exec of the process kubelet needs a WebSocket, and has no terminal and no input; leave out -i, -t"
        else:
            why = (
                f"{verb} is not possible in a container of the process kubelet: it is a plain process of this"
                " machine; use kubectl logs, or run the command on this machine"
            )
        return web.Response(status=501, text=f"{why}\n")

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        where, query = request.match_info, request.query
        container = self._find(where["namespace"], where["pod"], where["container"])
        if container is None:
            return _missing(where["pod"], where["container"])
        socket = web.WebSocketResponse(protocols=PROTOCOLS)
        if not socket.can_prepare(request) or any(query.get(name) == "true" for name in ("stdin", "tty")):
            return await self._refuse(request)
        await socket.prepare(request)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            await run_command(socket, container, query.getall("command", []), Path(folder) / "output")
        return socket

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        where, query = request.match_info, request.query
        container = self._find(where["namespace"], where["pod"], where["container"])
        if container is None:
            return _missing(where["pod"], where["container"])
        if any(query.get(name) not in {None, "", "false"} for name in _NO_TIMES):
            return web.Response(
                status=400,
                text="the process kubelet keeps no times of log lines; leave out --timestamps and --since\n",
            )
        is_previous = query.get("previous") == "true"
        path = container.previous_log if is_previous else container.log
        if not path.exists():
            kind = "previous terminated container" if is_previous else "container"
            return web.Response(status=400, text=f'{kind} "{where["container"]}" has no log yet\n')
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        follows = query.get("follow") == "true" and not is_previous
        with contextlib.suppress(ConnectionResetError):  # the reader has gone
            await _send(response, path, container, query.get("tailLines"), query.get("limitBytes"), follows=follows)
        return response


def _missing(pod: str, container: str) -> web.Response:
    return web.Response(status=404, text=f"container {container} of pod {pod} is not here\n")


async def _send(
    response: web.StreamResponse,
    path: Path,
    container: Container,
    tail: str | None,
    limit: str | None,
    *,
    follows: bool,
) -> None:
    """Send a log file, and what is appended to it until the container has ended."""
    left = int(limit) if limit else None
    with path.open("rb") as file:
        if tail is not None and tail.isdecimal():
            file.seek(_start_of_last(path, int(tail)))
        while left is None or left > 0:
            is_running = container.process is not None
            data = file.read(_CHUNK if left is None else min(_CHUNK, left))
            if data:
                left = None if left is None else left - len(data)
                await response.write(data)
            elif follows and is_running:
                await asyncio.sleep(_POLL_S)
            else:
                return


def _start_of_last(path: Path, lines: int) -> int:
    """Find the position in a file at which its last lines begin."""
    if lines == 0:
        return path.stat().st_size
    starts: deque[int] = deque(maxlen=lines)
    position = 0
    with path.open("rb") as file:
        for line in file:
            starts.append(position)
            position += len(line)
    return starts[0] if starts else 0
