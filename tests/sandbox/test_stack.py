"""A sandbox in the process of the test, on a machine that pretends to have 127.0.0.1 alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
import yaml

from edl.errors import ConfigError
from edl.sandbox.kubelet.addresses import AddressPool
from edl.sandbox.kubelet.images import default_images
from edl.sandbox.kubelet.node import NodeShape
from edl.sandbox.stack import StackSettings, free_port, started, status_address
from tests.e2e.control_plane.kube import Kube
from tests.sandbox.pods import PodBehaviour

ROOT = Path(__file__).parents[2]
RECORDS = 20_000


def train(kube: Kube) -> None:
    """Train a real job, and wait until the controller has heard its end from its master."""
    job = yaml.safe_load((ROOT / "example" / "fit_flights" / "job.yaml").read_text())
    job["spec"]["dataset"]["source"] = f"index:{RECORDS}"
    job["spec"]["trainer"]["max-instance"] = 2
    kube.create(job)

    def is_accounted() -> bool:
        status = kube.get("trainingjobs", "fit-flights").get("status", {})
        return bool(status.get("phase") == "Succeeded" and status.get("dataset", {}).get("total") == RECORDS)

    kube.wait_until(is_accounted, 240, "the job has ended, and its data is accounted for")


async def test_with_one_loopback_address_pods_the_controller_and_probes_find_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AddressPool, "open", classmethod(lambda cls: cls(77, None)))
    folder, path = tmp_path / "work", tmp_path / "kubeconfig"
    async with started(StackSettings(2, NodeShape(), 0, folder, default_images(), path)) as stack:
        with Kube(path) as kube:
            await asyncio.to_thread(PodBehaviour().test_pods_find_each_other_by_the_name_of_their_service, kube)
            await asyncio.to_thread(train, kube)
        assert any((folder / "ports").iterdir())
        assert not stack.parts.done()
    assert not folder.exists()


async def test_the_sandbox_follows_the_address_that_its_controller_is_given(tmp_path: Path) -> None:
    folder, path, address = tmp_path / "work", tmp_path / "kubeconfig", f"127.0.0.1:{free_port()}"
    settings = StackSettings(1, NodeShape(), 0, folder, default_images(), path, ("--listen", address))
    async with started(settings) as stack, aiohttp.ClientSession() as http:
        assert stack.status_address == address
        assert stack.controller_log.is_file()
        async with http.get(f"http://{address}/metrics") as answer:
            assert "edl_" in await answer.text()


@pytest.mark.parametrize(
    ("flags", "address"),
    [
        (("--listen", "127.0.0.1:18080"), "127.0.0.1:18080"),
        (("--listen=127.0.0.1:1", "--policy", "utility", "--listen=127.0.0.1:2"), "127.0.0.1:2"),
        (("--listen", ":18080"), "0.0.0.0:18080"),
        (("--listen", "[::1]:18080"), "[::1]:18080"),
    ],
)
def test_the_address_of_the_controller_is_the_last_that_its_flags_give(flags: tuple[str, ...], address: str) -> None:
    assert status_address(flags) == address


def test_without_a_flag_the_controller_gets_a_free_port() -> None:
    host, _, port = status_address(("--policy", "utility")).rpartition(":")
    assert (host, int(port) > 0) == ("127.0.0.1", True)


@pytest.mark.parametrize(
    ("given", "why"), [("127.0.0.1:0", "give one above 0"), ("18080", "is not HOST:PORT; give one")]
)
def test_an_address_that_the_sandbox_cannot_follow_is_refused(given: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"--controller-flags: --listen {given}: .*{why}"):
        status_address(("--listen", given))
