"""Gives a test one server or both: `server` runs it once on each, `servers` compares the two in one test.

The real server takes part with `pytest --on cluster` only; tests that compare the two are marked `cluster` here.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edl.install.manifests import controller_manifests
from tests.contract.embedded_server import EmbeddedServer
from tests.contract.servers import EMBEDDED, REAL, Server, embedded, real
from tests.e2e.conftest import pytest_collection_finish, shared_control_plane
from tests.e2e.control_plane.build import ensure_binaries
from tests.worlds.hostile.manifests import make_manifest

__all__ = ["pytest_collection_finish", "shared_control_plane"]

_INSTALLED = {
    "CustomResourceDefinition",
    "Namespace",
    "PriorityClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that compare both servers."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "servers" in names and "server" not in names:
            item.add_marker(pytest.mark.cluster("compares the embedded server with the real one"))


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """The embedded server and, with `--on cluster`, a real one, with what edl installs."""
    with EmbeddedServer(tmp_path_factory.mktemp("embedded") / "kubeconfig") as running:
        if request.config.getoption("--on") == "cluster":
            shared = request.getfixturevalue("shared_control_plane")
            found = {EMBEDDED: embedded(running, ensure_binaries().kubectl), REAL: real(shared("small"))}
        else:
            found = {EMBEDDED: embedded(running)}
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


@pytest.fixture(params=[EMBEDDED, pytest.param(REAL, marks=pytest.mark.cluster("the real server"))])
def server(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Server:
    """One server; the test runs on each."""
    return servers[request.param]


@pytest.fixture
def space(server: Server) -> str:
    """A namespace of this test."""
    return server.namespace()
