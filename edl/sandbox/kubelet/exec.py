"""Runs a command in a container over a WebSocket: sends its output, and how it ended.

The first byte of a message names its channel: 1 for output, 3 for the end. A command has no input and no terminal,
and what it prints as an error comes with its output, because both go to one file.

Source: k8s.io/apimachinery pkg/util/remotecommand (the channels) and pkg/util/exec (the status).
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from edl.errors import EdlError
from edl.sandbox.kubelet.container import Container
from edl.sandbox.kubelet.runtime import Process, StartError

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_OUTPUT, _END = b"\x01", b"\x03"
_POLL_S = 0.05
_CHUNK = 1 << 15


async def run_command(socket: web.WebSocketResponse, container: Container, command: list[str], output: Path) -> None:
    """Run a command to its end, or until the client leaves.

    Args:
        socket: open.
        container: it runs beside this one's process.
        command: program and arguments.
        output: a file for what it prints.
    """
    try:
        process = await container.start_command(command, output)
    except (EdlError, StartError) as error:
        await socket.send_bytes(_END + _status(message=str(error)))
        await socket.close()
        return
    closing = asyncio.create_task(_until_closed(socket))
    try:
        await _send_output(socket, process, output, closing)
        if not closing.done():
            await socket.send_bytes(_END + _status(process.ended.result().code))
            await socket.close()
    except ConnectionError:
        return
    finally:
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        if not process.ended.done():
            await container.end_command(process)


async def _send_output(
    socket: web.WebSocketResponse, process: Process, output: Path, closing: asyncio.Task[None]
) -> None:
    """Send what the command prints until it has ended and everything is sent, or until the client leaves."""
    either: set[asyncio.Future[Any]] = {process.ended, closing}
    with output.open("rb") as file:
        while not closing.done():
            is_over = process.ended.done()
            if data := file.read(_CHUNK):
                await socket.send_bytes(_OUTPUT + data)
            elif is_over:
                return
            else:
                await asyncio.wait(either, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)


async def _until_closed(socket: web.WebSocketResponse) -> None:
    async for _ in socket:
        continue


def _status(code: int = 0, message: str = "") -> bytes:
    """How the command ended, as a metav1.Status."""
    status: dict[str, Any] = {"metadata": {}, "status": "Success"}
    if message:
        status = {"metadata": {}, "status": "Failure", "reason": "InternalError", "message": message, "code": 500}
    elif code:
        causes = [{"reason": "ExitCode", "message": str(code)}]
        status |= {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
        status["message"] = f"command terminated with non-zero exit code: exit status {code}"
    return json.dumps(status).encode()
