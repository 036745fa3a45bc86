"""`edl dashboard` as a process: it says where the page is, serves it, and ends with 0 on a signal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.browser.page_cluster import fill
from tests.cli.conftest import Run
from tests.worlds.fake_api import FakeApi

KUBECONFIG = """apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "%s"}}]
users: [{name: u, user: {}}]
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_prints_the_address_serves_the_page_and_ends_with_0(tmp_path: Path, number: signal.Signals) -> None:
    api, kubeconfig = FakeApi(), tmp_path / "config"
    fill(api)
    async with api.serve():
        kubeconfig.write_text(KUBECONFIG % api.url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from edl.cli.main import main; main()"),
            *("dashboard", "--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1:0"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        async with asyncio.timeout(60):
            word, url = (await process.stdout.readline()).decode().split()
            assert word == "open"
            address, _, token = url.partition("#token=")
            sent = {"Authorization": f"Bearer {token}"}
            async with aiohttp.ClientSession(headers=sent) as http, http.get(f"{address}events") as response:
                assert await response.content.readline() == b"event: state\n"
                process.send_signal(number)
                out, err = await process.communicate()
        assert (process.returncode, out.decode()) == (0, f"token {token}\n")
        assert err == b"Ctrl-C stops the page; it only reads the cluster\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kubeconfig", "/nowhere/config"], "kubeconfig /nowhere/config does not exist; give the path"),
        (
            ["--listen", "8400"],
            "--listen '8400': it has no port from 0 to 65535; give HOST:PORT, such as 127.0.0.1:8400",
        ),
        (["--policy", "edl-2017"], "only edl plan takes it"),
    ],
)
def test_what_cannot_be_used_exits_with_2_and_a_message(run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run("dashboard", *arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
