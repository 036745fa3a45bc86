"""Compares the embedded API server with a real one: `python -m benchmarks.sandbox_server [embedded|real]...`.

Four figures, from clients in another process than the server: starting it, pods written per second by eight clients,
listing 5,000 pods, and changes fanned out to 50 watches. The real one is etcd, kube-apiserver and their controllers,
as the end-to-end tests run it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.e2e.control_plane.cluster import ControlPlane

PODS = 5000
WRITERS = 8
WATCHES = 50
CHANGES = 100
SERVE = """
import asyncio, sys
from pathlib import Path
from edl.sandbox.apiserver.server import ApiServer
async def main():
    async with ApiServer() as server:
        server.write_kubeconfig(Path(sys.argv[1]))
        print("ready", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


def pod(number: int) -> dict[str, Any]:
    """A pod that nobody schedules."""
    amounts = {"requests": {"cpu": "1", "memory": "1Gi"}}
    containers = [
        {"name": "main", "image": "example/web", "resources": amounts, "env": [{"name": "A", "value": "b"}]}
    ]
    spec = {"schedulerName": "none", "containers": containers}
    metadata = {"name": f"pod-{number}", "labels": {"app": f"app-{number % 10}"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Client:
    """Requests to one server."""

    def __init__(self, kubeconfig: Path) -> None:
        held = yaml.safe_load(kubeconfig.read_text())
        self._url = str(held["clusters"][0]["cluster"]["server"])
        token = held["users"][0]["user"].get("token", "")
        connector = aiohttp.TCPConnector(limit=0, ssl=False)
        self._http = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"}, connector=connector, read_bufsize=1 << 22
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def send(self, method: str, path: str, body: object = None, kind: str = "application/json") -> bytes:
        """Send a request that must succeed."""
        data = None if body is None else json.dumps(body)
        async with self._http.request(method, self._url + path, data=data, headers={"Content-Type": kind}) as answer:
            raw = await answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {raw[:200]!r}")
            return raw

    async def watch(self, path: str, wanted: int) -> None:
        """Read a watch until it has shown so many changes."""
        seen = 0
        limits = aiohttp.ClientTimeout(total=120)
        async with self._http.get(self._url + path, timeout=limits) as answer:
            async for chunk in answer.content.iter_any():
                seen += chunk.count(b'"type":"MODIFIED"')
                if seen >= wanted:
                    return


async def measure(kubeconfig: Path) -> dict[str, float]:
    """All figures of a server that runs."""
    client = Client(kubeconfig)
    path = "/api/v1/namespaces/default/pods"
    try:
        await client.send("GET", path)
        figures = {"writes_per_s": await _writes(client, path)}
        begun = time.perf_counter()
        raw = await client.send("GET", path)
        figures["list_ms"] = (time.perf_counter() - begun) * 1000
        figures["list_mb"] = len(raw) / 1e6
        figures["fan_out_events_per_s"] = await _fan_out(client, path, json.loads(raw)["metadata"]["resourceVersion"])
        return figures
    finally:
        await client.close()


async def _writes(client: Client, path: str) -> float:
    numbers = iter(range(PODS))

    async def write() -> None:
        for number in numbers:
            await client.send("POST", path, pod(number))

    begun = time.perf_counter()
    await asyncio.gather(*(write() for _ in range(WRITERS)))
    return PODS / (time.perf_counter() - begun)


async def _fan_out(client: Client, path: str, version: str) -> float:
    query = f"{path}?watch=1&resourceVersion={version}&timeoutSeconds=120"
    readers = [asyncio.create_task(client.watch(query, CHANGES)) for _ in range(WATCHES)]
    await asyncio.sleep(1)
    begun = time.perf_counter()
    for number in range(CHANGES):
        patch = {"metadata": {"annotations": {"n": str(number)}}}
        await client.send("PATCH", f"{path}/pod-0", patch, "application/merge-patch+json")
    await asyncio.gather(*readers)
    return WATCHES * CHANGES / (time.perf_counter() - begun)


def measure_embedded(folder: Path) -> dict[str, float]:
    """The figures of the embedded server in a process of its own."""
    kubeconfig = folder / "kubeconfig"
    begun = time.perf_counter()
    command = [sys.executable, "-c", SERVE, str(kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                raise RuntimeError("the embedded server did not start")
            return {"start_s": time.perf_counter() - begun, **asyncio.run(measure(kubeconfig))}
        finally:
            process.terminate()


def measure_real(folder: Path) -> dict[str, float]:
    """The figures of a real control plane."""
    begun = time.perf_counter()
    with ControlPlane.start(folder, nodes=()) as plane:
        return {"start_s": time.perf_counter() - begun, **asyncio.run(measure(plane.kubeconfig))}


def main() -> int:
    """Print a line for each server."""
    which = sys.argv[1:] or ["embedded", "real"]
    print(f"{'server':<10}{'start s':>9}{'writes/s':>10}{'list ms':>9}{'MB':>6}{'fan-out events/s':>18}")
    for name in which:
        with tempfile.TemporaryDirectory(prefix="edl-benchmark-") as folder:
            found = (measure_embedded if name == "embedded" else measure_real)(Path(folder))
        print(
            f"{name:<10}{found['start_s']:>9.2f}{found['writes_per_s']:>10.0f}{found['list_ms']:>9.0f}"
            f"{found['list_mb']:>6.1f}{found['fan_out_events_per_s']:>18.0f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
