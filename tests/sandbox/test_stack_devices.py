"""A sandbox with simulated devices: real training claims them, and a serving pod gets one of a trainer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from edl.sandbox.kubelet.images import default_images
from edl.sandbox.kubelet.node import NodeShape
from edl.sandbox.stack import StackSettings, started
from tests.e2e.control_plane.kube import Kube
from tests.e2e.worlds.jobs import serving
from tests.worlds.rules.device_scenes import device, device_class, slice_of, template, uses

Object = dict[str, Any]
ROOT = Path(__file__).parents[2]
WITHIN_S = 180.0
DEVICES = 2
"""On each of two nodes."""


def endless_job() -> Object:
    """A job of one to six trainers, each with a device."""
    job: Object = yaml.safe_load((ROOT / "example" / "fit_flights" / "job.yaml").read_text())
    job["spec"] |= {"passes": 10_000}
    job["spec"]["trainer"]["template"] = {"spec": uses()}
    job["spec"]["trainer"]["resources"]["claims"] = [{"name": "gpu"}]
    return job


def running(kube: Kube, selector: str) -> list[Object]:
    return [one for one in kube.list("pods", "default", labels=selector) if one["status"].get("phase") == "Running"]


def play(kube: Kube) -> None:
    """Train with all devices, then serve with one."""

    def until(holds: Callable[[], bool], what: str) -> None:
        kube.wait_until(holds, WITHIN_S, what)

    nodes = [node["metadata"]["name"] for node in kube.list("nodes")]
    for body in (
        device_class(),
        template(),
        *(slice_of(node, *(device(f"gpu-{place}") for place in range(DEVICES))) for node in nodes),
        endless_job(),
    ):
        kube.create(body)
    trainers = "paddlepaddle.org/job=fit-flights,paddlepaddle.org/role=trainer"
    until(lambda: len(running(kube, trainers)) == DEVICES * len(nodes), "a trainer for each device")
    assert len(kube.list("pods", "default", labels=trainers)) == DEVICES * len(nodes)
    web = serving(replicas=1, cpu="100m", memory="64Mi", **uses())
    web["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx"
    kube.create(web)
    until(lambda: len(running(kube, "app=web")) == 1, "the serving pod has a device")
    until(
        lambda: len(kube.list("pods", "default", labels=trainers)) == DEVICES * len(nodes) - 1,
        "one trainer has ended",
    )
    claims = [one for one in kube.list("resourceclaims", "default") if one["status"].get("allocation")]
    taken = {tuple(one["status"]["allocation"]["devices"]["results"][0].items()) for one in claims}
    assert len(taken) == len(claims) == DEVICES * len(nodes)


async def test_trainers_take_the_devices_and_give_one_to_serving(tmp_path: Path) -> None:
    settings = StackSettings(2, NodeShape(), 0, tmp_path / "work", default_images(), tmp_path / "kubeconfig")
    async with started(settings):
        with Kube(tmp_path / "kubeconfig") as kube:
            await asyncio.to_thread(play, kube)
