"""A sandbox in the process of the test, on a machine that pretends to have 127.0.0.1 alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from edl.sandbox.kubelet.addresses import AddressPool
from edl.sandbox.kubelet.images import default_images
from edl.sandbox.kubelet.node import NodeShape
from edl.sandbox.stack import StackSettings, started
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
