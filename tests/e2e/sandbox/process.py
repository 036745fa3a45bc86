"""The process of a sandbox under test: API server, scheduler, controllers and hollow nodes.

It reads commands from its standard input, one JSON list a line (name, arguments), and answers each with one JSON
object; the first answer says that it is ready. It ends when the input ends, however its owner ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import IO
from urllib.parse import urlencode

import msgspec

from edl.api.crd import render_crd, render_queue_crd
from edl.kube.client.session import ApiSession
from edl.sandbox.apiserver.faults import Rule
from edl.sandbox.apiserver.http.request import Request, Target
from edl.sandbox.apiserver.http.response import Response
from edl.sandbox.apiserver.server import ApiServer
from edl.sandbox.controllers.manager import run_controllers
from edl.sandbox.scheduler.scheduler import Scheduler
from tests.e2e.control_plane.commands import Settings
from tests.e2e.sandbox.effects import EFFECTS
from tests.e2e.sandbox.hollow import HollowNodes, Pace

ADMIN = "admin"
"""Who acts here: tests, scheduler, controllers and nodes; edl's controller has an account of its own."""
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class _Named(msgspec.Struct):
    name: str = ""


class _Body(msgspec.Struct):
    metadata: _Named = msgspec.field(default_factory=_Named)


_NAMES = msgspec.json.Decoder(_Body)


class AuditedServer(ApiServer):
    """An API server that writes the requests that it has answered to a file, as the audit log of the real one."""

    audit: IO[str] | None = None
    audit_user = ""

    def _handled(self, request: Request, *, behind: int = 0) -> Response:
        received = datetime.now(UTC).isoformat()
        response = super()._handled(request, behind=behind)
        if self.audit is not None and self.audit_user in {"", request.user}:
            target = request.target
            event = {
                "stage": "ResponseComplete",
                "requestReceivedTimestamp": received,
                "requestURI": f"{request.path}?{urlencode(request.query)}",
                "verb": request.verb,
                "user": {"username": request.user},
                "responseStatus": {"code": response.code},
                **({"objectRef": _reference(target, request)} if target else {}),
            }
            self.audit.write(json.dumps(event) + "\n")
        return response


def _reference(target: Target, request: Request) -> dict[str, str]:
    """What a request is about; the name of a new object stands in its body."""
    name = target.name
    if request.verb == "create" and not name:
        with contextlib.suppress(msgspec.DecodeError):
            name = _NAMES.decode(request.body).metadata.name
    return {"resource": target.plural, "subresource": target.subresource, "name": name}


class Sandbox:
    """A running cluster, and the commands that it obeys."""

    def __init__(self, server: AuditedServer, nodes: HollowNodes) -> None:
        self._server, self._nodes = server, nodes

    async def obey(self, command: str, *arguments: str) -> dict[str, object]:
        """Carry out one command; returns what it found out.

        Raises:
            ValueError: there is no such command.
        """
        match command:
            case "stop-server":
                await self._server.stop()
            case "start-server":
                await self._server.start()
            case "compact":
                self._server.cluster.store.forget_changes()
                return {"version": self._server.cluster.store.version}
            case "inject":
                verb, resource, subresource, effect = arguments
                rule = Rule(verb, resource, subresource, where=lambda request: request.user != ADMIN)
                self._server.faults.clear()
                self._server.faults.happened.clear()
                self._server.faults.add(rule, EFFECTS[effect])
            case "faults-used":
                return {"count": len(self._server.faults.happened)}
            case "lose":
                await self._nodes.lose(*arguments)
            case "recover":
                self._nodes.recover(*arguments)
            case _:
                raise ValueError(f"unknown command {command!r}")
        return {}


async def serve(workdir: Path, settings: Settings) -> None:
    """Run a cluster until the standard input ends."""
    server = AuditedServer(namespaces=())
    if settings.audit_level:
        server.audit = (workdir / "logs" / "audit.log").open("w", buffering=1)
        server.audit_user = settings.audit_user
    async with server:
        server.write_kubeconfig(workdir / "kubeconfig")
        async with await ApiSession.open(str(workdir / "kubeconfig")) as session:
            for definition in (render_crd(), render_queue_crd()):
                await session.post(_DEFINITIONS, definition)
            nodes = HollowNodes(session, Pace(settings.pod_delete_s, settings.pod_ready_s, settings.node_grace_s))
            parts = (
                Scheduler(session).run(),
                run_controllers(session, node_grace_s=settings.node_grace_s),
                nodes.run(),
            )
            tasks = [asyncio.create_task(part) for part in parts]
            obeying = asyncio.create_task(_obey_all(Sandbox(server, nodes)))
            await asyncio.wait([obeying, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in (*tasks, obeying):
                task.cancel()
            ended = await asyncio.gather(*tasks, obeying, return_exceptions=True)
            errors = [one for one in ended if isinstance(one, Exception)]
            if errors:
                raise ExceptionGroup("a part of the sandbox has failed", errors)


async def _obey_all(sandbox: Sandbox) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    _answer({"ready": True})
    while line := await reader.readline():
        _answer(await sandbox.obey(*json.loads(line)))


def _answer(reply: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the sandbox of a folder with the settings that the arguments name."""
    asyncio.run(serve(Path(sys.argv[1]), Settings(**json.loads(sys.argv[2]))))
