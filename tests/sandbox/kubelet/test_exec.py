"""Commands in containers, with the official client and its WebSockets, as kubectl has them too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream

from tests.e2e.control_plane.kube import Kube
from tests.sandbox.pods import FOREVER, WAIT_S, make_pod
from tests.sandbox.sandboxes import sandbox


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """A client of a sandbox with a pod that runs."""
    with sandbox(tmp_path_factory.mktemp("sandbox"), "--nodes", "1") as made:
        made.create(make_pod("shell", FOREVER, env=[{"name": "WHO", "value": "me"}]))
        made.wait_until(lambda: made.get("pods", "shell")["status"]["phase"] == "Running", WAIT_S, "it runs")
        yield made


@pytest.fixture
def core(kube: Kube) -> Iterator[client.CoreV1Api]:
    with config.new_client_from_config(str(kube.kubeconfig)) as connection:
        yield client.CoreV1Api(connection)


def run(core: client.CoreV1Api, *command: str, **options: bool) -> tuple[str, int]:
    """What a command prints, and its exit code."""
    given = {"stdin": False, "tty": False, "stdout": True, "stderr": True, **options}
    call = core.connect_get_namespaced_pod_exec
    opened = stream(call, "shell", "default", command=list(command), _preload_content=False, **given)
    try:
        opened.run_forever(timeout=WAIT_S)
        code = opened.returncode  # first, because reading the output drops the other channels
        return opened.read_all(), code
    finally:
        opened.sock.shutdown()  # the client leaves its socket open once the server has closed the stream


def test_a_command_prints_and_ends_with_its_code(core: client.CoreV1Api) -> None:
    assert run(core, "sh", "-c", "echo hello $WHO; echo bad >&2") == ("hello me\nbad\n", 0)
    assert run(core, "sh", "-c", "echo no; exit 7") == ("no\n", 7)


def test_long_output_arrives_whole(core: client.CoreV1Api) -> None:
    text, code = run(core, "sh", "-c", "seq 100000")
    assert (text.split()[-1], len(text.split()), code) == ("100000", 100000, 0)


def test_a_terminal_is_refused_with_what_to_do(core: client.CoreV1Api) -> None:
    with pytest.raises(ApiException, match="leave out -i, -t"):
        run(core, "sh", tty=True, stdin=True)
