"""The probes of a container: exec, httpGet and tcpSocket; startup, readiness and liveness.

Source: https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/
"""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

Object = dict[str, Any]
Target = Callable[[int], tuple[str, int]]
"""A port of the pod -> the address and the port to call."""
RunCommand = Callable[[list[str], float], Awaitable[tuple[int, str]]]
"""(argv, timeout) -> exit code and output; raises TimeoutError."""

_MAX_QUOTED = 200


async def check(probe: Object, container: Object, target: Target, run: RunCommand) -> str:
    """Run a probe once; returns why it failed, or an empty text."""
    timeout_s = float(probe.get("timeoutSeconds") or 1)
    if "exec" in probe:
        return await _exec(probe["exec"].get("command") or [], timeout_s, run)
    try:
        if "httpGet" in probe:
            return await asyncio.to_thread(_http_get, probe["httpGet"], container, target, timeout_s)
        if "tcpSocket" in probe:
            where = target(port_of(probe["tcpSocket"]["port"], container))
            return await asyncio.to_thread(_connect, where, timeout_s)
    except (LookupError, ValueError) as error:
        return str(error)
    return f"the process kubelet knows no {', '.join(probe)} probes; use exec, httpGet or tcpSocket"


async def _exec(command: list[str], timeout_s: float, run: RunCommand) -> str:
    try:
        code, output = await run(command, timeout_s)
    except TimeoutError:
        return f"command timed out: {' '.join(command)} after {timeout_s:g}s"
    return "" if code == 0 else output.strip()[-_MAX_QUOTED:] or f"command exited with code {code}"


def _http_get(action: Object, container: Object, target: Target, timeout_s: float) -> str:
    host, port = target(port_of(action["port"], container))
    headers = {one["name"]: one["value"] for one in action.get("httpHeaders") or ()}
    headers.setdefault("User-Agent", "kube-probe/edl")
    connection: http.client.HTTPConnection
    if action.get("scheme") == "HTTPS":
        context = ssl._create_unverified_context()  # noqa: S323, SLF001 - kubelets verify no certificate of a pod
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", action.get("path") or "/", headers=headers)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f'Get "http://{host}:{port}{action.get("path") or "/"}": {str(error) or type(error).__name__}'
    finally:
        with suppress(OSError):
            connection.close()
    return "" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"


def _connect(where: tuple[str, int], timeout_s: float) -> str:
    try:
        socket.create_connection(where, timeout_s).close()
    except OSError as error:
        return f"dial tcp {where[0]}:{where[1]}: {error}"
    return ""


def port_of(port: int | str, container: Object) -> int:
    """A port of a probe: a number, or the name of one of the container's ports.

    Raises:
        LookupError: the container has no port of that name.
    """
    if isinstance(port, int) or port.isdecimal():
        return int(port)
    for one in container.get("ports") or ():
        if one.get("name") == port:
            return int(one["containerPort"])
    raise LookupError(f"the container has no port {port!r}")


async def watch_probe(probe: Object, once: Callable[[], Awaitable[str]], report: Callable[[bool, str], None]) -> None:
    """Run a probe forever, and report when its result changes.

    Args:
        probe: with its period and its thresholds.
        once: runs it once; returns why it failed, or an empty text.
        report: is given whether it succeeds, and the last failure: after `successThreshold` successes in a row, and
            after each failure from the `failureThreshold`th in a row on.
    """
    await asyncio.sleep(float(probe.get("initialDelaySeconds") or 0))
    period_s = float(probe.get("periodSeconds") or 10)
    needed, allowed = int(probe.get("successThreshold") or 1), int(probe.get("failureThreshold") or 3)
    successes = failures = 0
    while True:
        problem = await once()
        successes, failures = (0, failures + 1) if problem else (successes + 1, 0)
        if successes == needed:
            report(True, "")
        elif failures >= allowed:
            report(False, problem)
        await asyncio.sleep(period_s)
