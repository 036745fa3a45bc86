"""Gives a test one server or both: `server` runs it once on each, `servers` compares the two in one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edl.install.manifests import controller_manifests
from tests.contract.embedded_server import EmbeddedServer
from tests.contract.servers import EMBEDDED, REAL, Server, embedded, real
from tests.e2e.conftest import SharedControlPlanes, pytest_collection_finish, shared_control_plane
from tests.worlds.hostile_jobs import make_manifest

__all__ = ["pytest_collection_finish", "shared_control_plane"]

_INSTALLED = {
    "CustomResourceDefinition",
    "Namespace",
    "PriorityClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


@pytest.fixture(scope="session")
def servers(
    shared_control_plane: SharedControlPlanes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Server]]:
    """Both servers, with what edl installs: the embedded one and a real one."""
    with EmbeddedServer(tmp_path_factory.mktemp("embedded") / "kubeconfig") as running:
        found = {EMBEDDED: embedded(running), REAL: real(shared_control_plane("small"))}
        try:
            for server in found.values():
                _install(server)
            yield found
        finally:
            for server in found.values():
                server.close()


def _install(server: Server) -> None:
    for body in controller_manifests():
        if body["kind"] in _INSTALLED:
            server.kube.apply(body)

    def judged() -> bool:
        path = "/apis/paddlepaddle.org/v1/namespaces/paddlecloud/trainingjobs"
        return server.send("POST", path, make_manifest(), query={"dryRun": "All"}).code == 403

    server.kube.wait_until(judged, 60, "the definition and the admission policy of edl are in force")


@pytest.fixture(params=[EMBEDDED, REAL])
def server(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Server:
    """One server; the test runs on each."""
    return servers[request.param]


@pytest.fixture
def space(server: Server) -> str:
    """A namespace of this test."""
    return server.namespace()
