"""The controllers of a sandbox together."""

from __future__ import annotations

import asyncio

from edl.kube.client.session import ApiSession
from edl.sandbox.controllers.cluster import EndpointsController, NodeController
from edl.sandbox.controllers.devices import DeviceClaimController
from edl.sandbox.controllers.garbage import GarbageCollector
from edl.sandbox.controllers.jobs import JobController
from edl.sandbox.controllers.loop import COLLECTIONS, Informers
from edl.sandbox.controllers.replicas import ReplicaController
from edl.sandbox.controllers.volumes import VolumeController
from edl.sandbox.kubelet.node import LEASE_S

STORAGE_CLASS = "folder"
STORAGE_CLASS_MANIFEST = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": STORAGE_CLASS,
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "paddlepaddle.org/folder",
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "Immediate",
}


async def run_controllers(session: ApiSession, *, node_grace_s: float = LEASE_S) -> None:
    """Run all controllers forever.

    Args:
        session: an API server that has every kind of COLLECTIONS.
        node_grace_s: how long a node whose Lease is not renewed stays ready.
    """
    informers = Informers(session, list(COLLECTIONS))
    controllers = (
        GarbageCollector(session, informers),
        ReplicaController(session, informers),
        JobController(session, informers),
        EndpointsController(session, informers),
        NodeController(session, informers, node_grace_s),
        VolumeController(session, informers, STORAGE_CLASS),
        DeviceClaimController(session, informers),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(informers.run())
        for controller in controllers:
            group.create_task(controller.run())
