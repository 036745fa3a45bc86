"""Every socket that a sandbox and `edl kubelet` listen on: strangers and web sites get no data from any of them."""

from __future__ import annotations

import http.client
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edl.dashboard.web import STATIC
from edl.master.openapi import openapi
from tests.e2e.control_plane.kube import Kube
from tests.e2e.control_plane.processes import die_with_parent
from tests.sandbox.sandboxes import sandbox

JOB: dict[str, Any] = {
    "apiVersion": "paddlepaddle.org/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "waits", "namespace": "default"},
    "spec": {
        "image": "busybox",
        "fault_tolerant": True,
        "trainer": {
            "min-instance": 1,
            "max-instance": 1,
            "entrypoint": "python -c 'import time; time.sleep(600)'",
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        },
    },
}
PROBES = {"/healthz", "/livez", "/readyz", "/version"}
PUBLIC = {"/metrics", "/v1/metrics", "/openapi.json", "/v1/openapi.json", "/v1/healthz", *PROBES}
FILES = {"/", "/page/", "/page/login", *(f"/page/static/{path.name}" for path in STATIC.iterdir())}
API = ("/api", "/apis", "/openapi/v2", "/api/v1/pods", "/api/v1/secrets", "/apis/paddlepaddle.org/v1/trainingjobs")
KUBELET = tuple(f"/{verb}/default/waits-trainer-0/trainer" for verb in ("containerLogs", "exec", "attach", "run"))
PAGE = ("/page/events", "/page/node?name=sandbox-0", "/page/explain?namespace=default&name=waits", "/page/what-if")
PATHS = (*PUBLIC, *FILES, *API, *KUBELET, *PAGE, *openapi()["paths"])
EXPECTED = {"sandbox": 3, "kubelet": 1, "controller": 1, "master": 1}
"""How many sockets each command listens on: those of the sandbox are API server, kubelet and page."""

FOREIGN = ({"Host": "evil.example"}, {"Origin": "http://evil.example"})


@dataclass(frozen=True)
class Listener:
    """A listening socket and the program that has it."""

    host: str
    port: int
    program: str

    def is_tls(self) -> bool:
        try:
            with closing(self.connection(is_tls=True)) as connection:
                connection.connect()
                return True
        except (ssl.SSLError, ConnectionError):
            return False

    def connection(self, *, is_tls: bool) -> http.client.HTTPConnection:
        if not is_tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=60)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(self.host, self.port, timeout=60, context=context)

    def status(self, method: str, path: str, headers: dict[str, str], *, is_tls: bool) -> int:
        with closing(self.connection(is_tls=is_tls)) as connection:
            connection.request(method, path, headers=headers)
            return connection.getresponse().status


def processes(folder: Path, *roots: int) -> Iterator[Path]:
    """The processes whose environment names a folder, and those with the numbers."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if int(entry.name) in roots or str(folder).encode() in (entry / "environ").read_bytes():
                    yield entry
            except OSError:
                continue


def listeners(folder: Path, *roots: int) -> list[Listener]:
    """What the processes listen on, of IPv4 and IPv6."""
    owners: dict[str, str] = {}
    for entry in processes(folder, *roots):
        program = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        for link in (entry / "fd").iterdir():
            try:
                found = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
            except OSError:
                continue
            if found:
                owners[found[1]] = program
    made = []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in owners:
                address, _, port = fields[1].partition(":")
                assert table == "tcp", f"{owners[fields[9]]} listens on every address of IPv6"
                host = ".".join(str(int(address[at : at + 2], 16)) for at in (6, 4, 2, 0))
                made.append(Listener(host, int(port, 16), owners[fields[9]]))
    return made


@contextmanager
def second_kubelet(kube: Kube) -> Iterator[int]:
    command = [str(Path(sys.executable).with_name("edl")), "kubelet", "--kubeconfig", str(kube.kubeconfig)]
    process = subprocess.Popen([*command, "--nodes", "1", "--prefix", "second"], preexec_fn=die_with_parent)
    try:
        yield process.pid
    finally:
        process.terminate()
        assert process.wait(90) == 0


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Listener]]:
    """The listeners of API server, kubelet, controller and page, of a master, and of a second kubelet."""
    folder = tmp_path_factory.mktemp("sandbox")
    with sandbox(folder, "--nodes", "1", "--page") as kube, second_kubelet(kube) as pid:
        kube.create(JOB)

        def all_of_them() -> list[Listener]:
            made = listeners(folder / "tmp", pid)
            counts = {name: sum(f" {name} " in one.program for one in made) for name in EXPECTED}
            return made if counts == EXPECTED else []

        yield kube.wait_until(all_of_them, 120, "all listen")


def test_no_listener_serves_data_to_strangers_or_to_web_sites(found: list[Listener]) -> None:
    served: list[tuple[str, str, str, dict[str, str], int]] = []
    for one in found:
        assert one.host.startswith("127."), f"{one.program} listens on {one.host}"
        is_tls = one.is_tls()
        for path in PATHS:
            for method in ("GET", "POST"):
                for headers, is_open in (({}, {*PUBLIC, *FILES}), *((them, FILES) for them in FOREIGN)):
                    status = one.status(method, path, headers, is_tls=is_tls)
                    if status < 400 and path not in is_open:
                        served.append((one.program, method, path, headers, status))
    assert served == []


def test_kubelets_show_nothing_without_a_right(found: list[Listener]) -> None:
    kubelets = [one for one in found if one.is_tls()]
    assert len(kubelets) == 2
    for one in kubelets:
        statuses = {one.status(method, path, {}, is_tls=True) for path in PATHS for method in ("GET", "PUT")}
        assert statuses == {401}
