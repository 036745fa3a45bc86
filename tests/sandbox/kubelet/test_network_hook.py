"""Names and addresses of pods in Python programs, as programs see them: most tests start one."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from edl.sandbox.kubelet import network_hook
from edl.sandbox.kubelet.addresses import AddressPool

NAMES = {
    "default/job": {"addresses": ["127.9.0.1", "127.9.0.2"], "hosts": {"job-master-0": ["127.9.0.1"]}, "ports": {}},
    "default/web": {"addresses": ["127.9.0.3"], "hosts": {}, "ports": {"80": 8080}},
    "other/db": {"addresses": ["127.9.0.4"], "hosts": {}, "ports": {}},
}
RESOLVE = "import socket, sys; print(sorted({a[4][0] for a in socket.getaddrinfo(sys.argv[1], 80)}))"


@pytest.fixture
def hook(tmp_path: Path) -> dict[str, str]:
    """The environment of a container in namespace default with the address 127.9.0.9."""
    (tmp_path / "hook").mkdir()
    shutil.copyfile(network_hook.__file__, tmp_path / "hook" / "sitecustomize.py")
    (tmp_path / "names.json").write_text(json.dumps(NAMES))
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(tmp_path / "hook"),
        network_hook.ADDRESS: "127.9.0.9",
        network_hook.HOST_NAME: "job-trainer-0",
        network_hook.NAMESPACE: "default",
        network_hook.NAMES_FILE: str(tmp_path / "names.json"),
    }


def run(code: str, environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("job-master-0.job.default.svc", ["127.9.0.1"]),
        ("job-master-0.job.default.svc.cluster.local.", ["127.9.0.1"]),
        ("job-master-0.job", ["127.9.0.1"]),
        ("job", ["127.9.0.1", "127.9.0.2"]),
        ("db.other", ["127.9.0.4"]),
        ("job-trainer-0", ["127.9.0.9"]),
        ("127.0.0.1", ["127.0.0.1"]),
    ],
)
def test_a_name_of_the_cluster_has_the_addresses_of_its_pods(
    hook: dict[str, str], name: str, addresses: list[str]
) -> None:
    assert run(RESOLVE, hook, name) == str(addresses)


def test_a_name_below_a_service_or_svc_is_never_asked_of_the_name_server(hook: dict[str, str]) -> None:
    names = network_hook.Names(hook[network_hook.NAMES_FILE], "default")
    assert names.find("job-master-1.job") == ([], {})
    assert names.find("gone.default.svc") == ([], {})
    assert names.find("gone.default.svc.cluster.local.") == ([], {})
    assert "Name or service not known" in run(RESOLVE, hook, "job-master-1.job")


def test_a_name_outside_of_the_cluster_is_left_to_the_machine(hook: dict[str, str]) -> None:
    names = network_hook.Names(hook[network_hook.NAMES_FILE], "default")
    assert [names.find(name) for name in ("db", "example.com", "a.b.c.d")] == [None] * 3


def test_names_follow_the_file(hook: dict[str, str]) -> None:
    names = network_hook.Names(hook[network_hook.NAMES_FILE], "default")
    assert names.find("new") is None
    path = Path(hook[network_hook.NAMES_FILE])
    path.with_suffix(".new").write_text(json.dumps({"default/new": {"addresses": ["127.9.0.5"], "hosts": {}}}))
    path.with_suffix(".new").replace(path)
    assert names.find("new") == (["127.9.0.5"], {})


def test_a_service_may_change_the_port(hook: dict[str, str]) -> None:
    code = "import socket; print(socket.getaddrinfo('web', 80, type=socket.SOCK_STREAM)[0][4])"
    assert run(code, hook) == "('127.9.0.3', 8080)"


def test_a_server_on_every_address_is_at_that_of_its_pod(hook: dict[str, str]) -> None:
    code = "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[0])"
    assert run(code, hook) == "127.9.0.9"
    asynchronous = (
        "import asyncio\nasync def main():\n s = await asyncio.start_server(print, '0.0.0.0', 0)\n"
        " print(s.sockets[0].getsockname()[0])\nasyncio.run(main())"
    )
    assert run(asynchronous, hook) == "127.9.0.9"


def test_a_server_on_a_chosen_address_stays_there(hook: dict[str, str]) -> None:
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[0])"
    assert run(code, hook) == "127.0.0.1"


def test_the_host_name_is_that_of_the_pod(hook: dict[str, str]) -> None:
    assert run("import socket; print(socket.gethostname(), socket.getfqdn())", hook) == "job-trainer-0 job-trainer-0"


def test_another_sitecustomize_still_runs(hook: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('ours')")
    hook["PYTHONPATH"] += f":{tmp_path / 'own'}"
    assert run("", hook) == "ours"


def test_with_one_address_only_two_pods_listen_on_the_same_port(hook: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "ports").mkdir()
    hook[network_hook.PORTS_FOLDER] = str(tmp_path / "ports")
    code = (
        "import socket, subprocess, sys\n"
        "server = socket.create_server(('', 8080))\n"
        "if len(sys.argv) == 2:\n"
        "    import os\n"
        "    env = {**os.environ, 'EDL_SANDBOX_ADDRESS': '127.9.0.8'}\n"
        "    child = subprocess.run([sys.executable, '-c', sys.argv[1], sys.argv[1], 'x'], env=env)\n"
        "else:\n"
        "    client = socket.create_connection(('127.9.0.9', 8080))\n"
        "    own = socket.create_connection(('127.9.0.8', 8080))\n"
        "    print(server.getsockname()[0], client.getpeername() != own.getpeername())\n"
    )
    assert run(code, hook, code) == "127.0.0.1 True"


def test_with_one_address_only_a_port_without_a_server_refuses(hook: dict[str, str], tmp_path: Path) -> None:
    hook[network_hook.PORTS_FOLDER] = str(tmp_path)
    code = "import socket; socket.create_connection(('127.9.0.7', 80))"
    assert "ConnectionRefusedError" in run(code, hook)


def test_addresses_are_given_once_and_again_after_their_release() -> None:
    pool = AddressPool.open()
    try:
        first, second = pool.take(), pool.take()
        assert first != second
        assert all(one.startswith("127.") for one in (first, second))
        with socket.socket() as probe:
            probe.bind((first, 0))
        pool.release(first)
        taken = {pool.take() for _ in range(3)}
        assert second not in taken
    finally:
        pool.close()


def test_two_pools_never_share_a_block() -> None:
    pools = [AddressPool.open() for _ in range(8)]
    try:
        assert len({pool.take().split(".")[1] for pool in pools}) == len(pools)
    finally:
        for pool in pools:
            pool.close()
