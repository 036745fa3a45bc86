"""A node of a sandbox whose trainers are killed as soon as they run: found, avoided, reported, and tried again."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from edl.sandbox.kubelet.images import default_images
from edl.sandbox.kubelet.kubelet import Kubelet
from edl.sandbox.kubelet.node import NodeShape
from edl.sandbox.stack import StackSettings, started
from tests.e2e.control_plane.kube import Kube
from tests.sandbox.broken_node import FLAGS, JOBS, WAIT_S, avoid, innocents, shared_node, sleeper, trainers
from tests.sandbox.pods import FOREVER, make_pod

TRAINERS = 12


async def kill_all(kube: Kube, kubelet: Kubelet, node: str) -> None:
    """Kill each trainer that runs on the node, for ever."""
    while True:
        for pod in await asyncio.to_thread(trainers, kube, node):
            found = kubelet.container("default", pod["metadata"]["name"], "trainer")
            if found is not None and found.process is not None:
                await kubelet.host.runtime.signal(found.process, signal.SIGKILL)
        await asyncio.sleep(0.2)


async def test_a_node_that_kills_trainers_is_avoided_until_a_trainer_does_well_there(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    settings = StackSettings(4, NodeShape(), 0, tmp_path / "work", default_images(), path, FLAGS)
    async with started(settings) as stack:
        with Kube(path) as kube, Kube(path) as other:
            for name in JOBS:
                await asyncio.to_thread(kube.create, sleeper(name, FOREVER))
            await asyncio.to_thread(kube.wait_until, lambda: shared_node(kube, TRAINERS), WAIT_S, "they share a node")
            node = await asyncio.to_thread(shared_node, kube, TRAINERS)
            web = make_pod("web", FOREVER, spec={"nodeSelector": {"kubernetes.io/hostname": node}})
            before = await asyncio.to_thread(innocents, kube, node)
            killing = asyncio.create_task(kill_all(other, stack.kubelet, node))
            await asyncio.to_thread(avoid, kube, node, before, lambda: kube.create(web))
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
            await asyncio.to_thread(
                kube.wait_until, lambda: len(trainers(kube, node)) > 1, WAIT_S, "the node is used again"
            )
        assert not stack.parts.done()
