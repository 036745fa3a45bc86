"""The official client and edl's own work on both servers unmodified: list, watch, patch, election."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, config, watch
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

from edl.errors import ConflictError
from edl.kube.client.api_errors import AlreadyExistsError, NotFoundError
from edl.kube.client.session import ApiSession
from tests.contract.servers import Server
from tests.worlds.hostile.manifests import make_manifest


@pytest.fixture
def api(server: Server) -> Iterator[client.ApiClient]:
    """The official client."""
    with config.new_client_from_config(str(server.kubeconfig)) as found:
        yield found


def pod(name: str) -> client.V1Pod:
    containers = [client.V1Container(name="c", image="i")]
    spec = client.V1PodSpec(scheduler_name="none", containers=containers)
    return client.V1Pod(metadata=client.V1ObjectMeta(name=name, labels={"a": "b"}), spec=spec)


def test_the_official_client_creates_lists_and_patches(api: client.ApiClient, space: str) -> None:
    core: Any = client.CoreV1Api(api)
    core.create_namespaced_pod(space, pod("p"))
    listed = core.list_namespaced_pod(space, label_selector="a=b")
    assert [one.metadata.name for one in listed.items] == ["p"]
    patched = core.patch_namespaced_pod("p", space, {"metadata": {"labels": {"c": "d"}}})
    assert patched.metadata.labels == {"a": "b", "c": "d"}
    with pytest.raises(client.ApiException) as refused:
        core.create_namespaced_pod(space, pod("p"))
    assert refused.value.status == 409
    core.delete_namespaced_pod("p", space)
    with pytest.raises(client.ApiException) as missing:
        core.read_namespaced_pod("p", space)
    assert missing.value.status == 404


def test_the_official_client_watches(api: client.ApiClient, space: str) -> None:
    core: Any = client.CoreV1Api(api)
    since = core.create_namespaced_pod(space, pod("p")).metadata.resource_version
    core.create_namespaced_pod(space, pod("q"))
    core.delete_namespaced_pod("q", space)
    watcher, seen = watch.Watch(), []
    for event in watcher.stream(core.list_namespaced_pod, space, resource_version=since, timeout_seconds=20):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            watcher.stop()
    assert seen == [("ADDED", "q"), ("MODIFIED", "q"), ("DELETED", "q")]


def test_the_official_client_handles_custom_objects(api: client.ApiClient, space: str) -> None:
    custom: Any = client.CustomObjectsApi(api)
    where = ("paddlepaddle.org", "v1", space, "trainingjobs")
    custom.create_namespaced_custom_object(*where, make_manifest("job"))
    changed = custom.patch_namespaced_custom_object(*where, "job", {"spec": {"suspend": True}})
    assert changed["spec"]["suspend"] is True
    scaled = custom.patch_namespaced_custom_object_scale(*where, "job", {"spec": {"replicas": 3}})
    assert scaled["spec"]["replicas"] == 3


def test_the_official_leader_election_elects(api: client.ApiClient, server: Server, space: str) -> None:
    config.load_kube_config(str(server.kubeconfig))
    leading = threading.Event()
    settings = electionconfig.Config(
        LeaseLock("leader", space, "me"),
        lease_duration=4,
        renew_deadline=3,
        retry_period=1,
        onstarted_leading=leading.set,
        onstopped_leading=lambda: None,
    )
    election = threading.Thread(target=leaderelection.LeaderElection(settings).run, daemon=True)
    election.start()
    assert leading.wait(60)
    leases: Any = client.CoordinationV1Api(api)
    assert leases.read_namespaced_lease("leader", space).spec.holder_identity == "me"
    leases.patch_namespaced_lease("leader", space, {"spec": {"holderIdentity": "other", "leaseDurationSeconds": 600}})
    election.join(60)
    assert not election.is_alive()


async def test_edls_session_reads_and_writes(server: Server, space: str) -> None:
    path = f"/apis/paddlepaddle.org/v1/namespaces/{space}/trainingjobs"
    async with await ApiSession.open(str(server.kubeconfig)) as session:
        made = await session.post(path, make_manifest("job"))
        with pytest.raises(AlreadyExistsError):
            await session.post(path, make_manifest("job"))
        uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
        condition: dict[str, Any] = {"metadata": {"resourceVersion": version}}
        await session.patch(f"{path}/job", {**condition, "spec": {"suspend": True}})
        with pytest.raises(ConflictError):
            await session.patch(f"{path}/job", {**condition, "spec": {"suspend": False}})
        with pytest.raises(ConflictError):
            await session.delete(f"{path}/job", uid="other")
        await session.delete(f"{path}/job", uid=uid)
        with pytest.raises(NotFoundError):
            await session.get(f"{path}/job")
