"""Rules between pods and of volumes: nobody ends for a pod that they keep away, and jobs get what they allow.

The judge is kube-scheduler, so these run on the real control plane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import WaitTimeoutError
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import World
from tests.e2e.worlds.jobs import serving, training_job
from tests.e2e.worlds.pod_log import PodLog
from tests.worlds.rules.device_scenes import device_class, slices, template
from tests.worlds.rules.scenes import HOSTNAME, ZONE, apart, near, spread, storage
from tests.worlds.rules.volume_scenes import USES, claim, storage_class
from tests.worlds.waiting import PATIENCE

Object = dict[str, Any]
pytestmark = pytest.mark.cluster("kube-scheduler judges the rules between pods")
WITHIN_S, LONG_ENOUGH_S = 30.0, 10.0
"""Evictions that do not help a pod would come a second after it, and again after pauses of half a minute."""
MASTER: Object = {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}


def plane_nodes(count: int, zones: str = "") -> tuple[NodeSpec, ...]:
    amounts = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    zone = [{ZONE: zones[i % len(zones)]} if zones else {} for i in range(count)]
    return tuple(NodeSpec(f"n{i}", amounts, labels=zone[i]) for i in range(count))


@pytest.fixture
def start(control_plane: Callable[..., ControlPlane]) -> Iterator[Callable[..., World]]:
    """Starts a world of some nodes, with the controller."""
    started: list[World] = []

    def begin(count: int, zones: str = "") -> World:
        world = World(control_plane(nodes=plane_nodes(count, zones)))
        world.controller.__enter__()
        started.append(world)
        return world

    yield begin
    for world in started:
        world.controller.__exit__(None, None, None)


def tiny(name: str, low: int, high: int, **more: Any) -> Object:
    """A job of trainers of one core."""
    return training_job(name, min_trainers=low, max_trainers=high, master=MASTER, **more)


def at_rest(here: World, job: str, count: int) -> None:
    here.kube.wait_until(lambda: here.running(job) == count, WITHIN_S, f"{job} has {count} trainers")


def pending(here: World) -> list[Object]:
    """The pods that kube-scheduler found no node for; one that was just created is none."""
    return [pod for pod in here.pods() if not pod["spec"].get("nodeName") and _is_refused(pod)]


def _is_refused(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)


def watch(here: World, seconds: float, holds: Callable[[], bool], what: str) -> None:
    """See that something holds for a while; a look that fails ends it at once."""
    with pytest.raises(WaitTimeoutError):
        here.kube.wait_until(lambda: not holds(), seconds / PATIENCE, what)


def explanation(here: World, job: str) -> str:
    status = here.kube.get("trainingjobs", job).get("status", {})
    messages = [one.get("message", "") for one in status.get("conditions") or ()]
    return " | ".join([status.get("explanation") or "", *messages])


def test_nobody_ends_for_serving_whose_rule_leaves_no_node(start: Callable[..., World]) -> None:
    here = start(4)
    here.kube.create(serving(replicas=4, cpu="4", memory="1Gi", affinity=apart(app="web")))
    here.kube.wait_until(lambda: here.ready_serving() == 4, WITHIN_S, "one a node")
    here.submit(tiny("train", 2, 40))
    at_rest(here, "train", 15)
    with PodLog(here.kube) as log:
        here.kube.scale("deployments", "web", 6)
        here.kube.wait_until(lambda: len(pending(here)) == 2, WITHIN_S, "two wait")
        for _ in range(2):  # a rollout makes new pods of the same owner again and again
            first = here.kube.list("pods", "default", labels="app=web")[0]["metadata"]["name"]
            here.kube.delete("pods", first)
            watch(here, LONG_ENOUGH_S / 2, lambda: here.running("train") == 15, "a trainer ends")
        assert not log.causes()


def test_trainers_apart_get_one_a_node_and_cost_others_no_more(start: Callable[..., World]) -> None:
    here = start(4)
    here.submit(tiny("plain", 1, 40))
    at_rest(here, "plain", 31)
    labels: Object = {"paddlepaddle.org/job": "spread", "paddlepaddle.org/role": "trainer"}
    own = {"template": {"spec": {"affinity": apart(**labels)}}}
    here.submit(tiny("spread", 2, 12, trainer=own))
    at_rest(here, "spread", 4)
    watch(here, 10, lambda: here.running("spread") == 4 and not pending(here), "more are planned")
    assert here.running("plain") >= 27
    assert "one trainer of job spread a node" in explanation(here, "spread")


def test_trainers_near_a_pod_get_its_node(start: Callable[..., World]) -> None:
    here = start(4)
    here.kube.create(serving("cache", replicas=1, cpu="2", memory="1Gi"))
    here.kube.wait_until(lambda: here.ready_serving("cache") == 1, WITHIN_S, "the cache runs")
    here.submit(tiny("plain", 1, 40))
    here.wait_full(WITHIN_S)
    before = here.running("plain")
    here.submit(tiny("near", 2, 20, trainer={"template": {"spec": {"affinity": near(app="cache")}}}))
    here.kube.wait_until(lambda: here.running("near") >= 4 and not pending(here), WITHIN_S, "they share its node")
    node = here.kube.list("pods", "default", labels="app=cache")[0]["spec"]["nodeName"]
    assert {pod["spec"]["nodeName"] for pod in facts.trainers(here.pods(), "near")} == {node}
    assert here.running("plain") >= before - 6
    assert "it must share a node with a pod of app=cache" in explanation(here, "near")


def test_trainers_spread_over_zones_are_never_refused(start: Callable[..., World]) -> None:
    here = start(4, "ab")
    labels: Object = {"paddlepaddle.org/job": "even", "paddlepaddle.org/role": "trainer"}
    own = {"template": {"spec": {"topologySpreadConstraints": spread(ZONE, **labels)}}}
    here.kube.create(serving("db", replicas=1, cpu="7", memory="1Gi", nodeSelector={HOSTNAME: "n0"}))
    here.submit(tiny("even", 5, 30, trainer=own))
    here.kube.wait_until(lambda: here.running("even") >= 10, WITHIN_S, "it grows")
    watch(here, 15, lambda: not pending(here), "a trainer waits")


def test_nobody_ends_for_serving_whose_volume_is_in_a_full_zone(start: Callable[..., World]) -> None:
    here = start(2, "ab")
    for body in storage("a"):
        here.kube.create(body)
    here.kube.create(serving("db", replicas=1, cpu="7500m", memory="1Gi", nodeSelector={ZONE: "a"}))
    here.kube.wait_until(lambda: here.ready_serving("db") == 1, WITHIN_S, "the zone is full")
    here.submit(tiny("train", 1, 40))
    at_rest(here, "train", 8)
    uses = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    here.kube.create(serving("stateful", replicas=1, cpu="4", memory="1Gi", volumes=uses))
    watch(here, LONG_ENOUGH_S, lambda: here.running("train") == 8, "a trainer ends")
    assert len(pending(here)) == 1


def test_trainers_with_a_volume_are_planned_in_its_zone(start: Callable[..., World]) -> None:
    here = start(4, "ab")
    for body in storage("a"):
        here.kube.create(body)
    here.submit(tiny("plain", 1, 40))
    at_rest(here, "plain", 31)
    uses: Object = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
    here.submit(tiny("bound", 4, 24, volumeMounts=[{"name": "d", "mountPath": "/d"}], **uses))
    here.kube.wait_until(lambda: here.running("bound") >= 10 and not pending(here), WITHIN_S, "it shares zone a")
    watch(here, 10, lambda: not pending(here), "a trainer waits")
    assert {pod["spec"]["nodeName"] for pod in facts.trainers(here.pods(), "bound")} == {"n0", "n2"}
    assert here.running("plain") + here.running("bound") == 31
    assert "of claim data is in zone a" in explanation(here, "bound")


def node_of_master(here: World) -> str:
    """The node of the master of `job`, once it has one."""

    def place() -> str:
        return str(here.kube.get("pods", "job-master-0")["spec"].get("nodeName") or "")

    here.kube.wait_until(lambda: bool(place()), WITHIN_S, "the master has a node")
    return place()


def test_nobody_ends_for_a_master_whose_volume_is_on_a_closed_node(start: Callable[..., World]) -> None:
    here = start(2, "ab")
    for body in storage("ab", waits=True):
        here.kube.create(body)
    here.submit(tiny("job", 2, 20))
    here.kube.wait_until(lambda: here.running("job") >= 14, WITHIN_S, "the job fills both nodes")

    node = node_of_master(here)
    here.kube.patch("nodes", node, {"spec": {"unschedulable": True}})
    before = here.running("job")
    here.kube.delete("pods", "job-master-0")
    zone = "a" if node == "n0" else "b"
    here.kube.wait_until(lambda: f"is in zone {zone}" in explanation(here, "job"), WITHIN_S, "the job says why")
    watch(here, 20, lambda: here.running("job") == before, "a trainer ends")


def test_own_trainers_make_way_for_a_master_whose_volume_is_in_their_zone(start: Callable[..., World]) -> None:
    here = start(2, "ab")
    for body in storage("ab", waits=True):
        here.kube.create(body)
    here.submit(tiny("job", 2, 20))
    at_rest(here, "job", 15)
    node = node_of_master(here)
    here.controller.kill()
    here.kube.delete("pods", "job-master-0")
    selector = {ZONE: "a" if node == "n0" else "b"}
    here.kube.create(serving("rest", replicas=1, cpu="980m", memory="1Gi", nodeSelector=selector))
    here.kube.wait_until(lambda: here.ready_serving("rest") == 1, WITHIN_S, "the zone is full of trainers")
    here.controller.start()

    def masters() -> list[str]:
        found = here.kube.list("pods", "default", labels="paddlepaddle.org/role=master")
        return [pod["spec"].get("nodeName") for pod in found if facts.is_running(pod)]

    here.kube.wait_until(lambda: masters() == [node], WITHIN_S, "the master is back in its zone")
    at_rest(here, "job", 14)


def test_trainers_end_where_the_volume_that_a_serving_pod_chooses_by_labels_is(start: Callable[..., World]) -> None:
    here = start(2, "ab")
    by_hand, *volumes = storage("ab", waits=True)
    here.kube.create({**by_hand, "metadata": {"name": "by-hand"}})
    here.submit(tiny("train", 1, 40))
    at_rest(here, "train", 15)
    for volume in volumes[:3:2]:
        labels = {"disk": volume["metadata"]["name"]}
        here.kube.create({**volume, "metadata": {**volume["metadata"], "labels": labels}})
    spec = claim(storageClassName="by-hand", selector={"matchLabels": {"disk": "pv-b0"}})
    here.kube.create(spec)
    here.kube.create(serving("stateful", replicas=1, cpu="4", memory="1Gi", volumes=USES))
    here.kube.wait_until(lambda: here.ready_serving("stateful") == 1, WITHIN_S, "it runs beside its volume")
    assert here.running("train") == 11


def test_trainers_end_where_a_driver_has_storage_left(start: Callable[..., World]) -> None:
    here = start(2, "ab")
    lvm = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "lvm.example.com"}}
    here.kube.create({**lvm, "spec": {"storageCapacity": True, "attachRequired": False}})
    here.kube.create(storage_class(provisioner="lvm.example.com"))
    here.submit(tiny("train", 1, 40))
    at_rest(here, "train", 15)
    here.kube.create(claim(storageClassName="ssd", resources={"requests": {"storage": "5Gi"}}))
    left = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity", "storageClassName": "ssd"}
    for zone, capacity in (("a", "9Gi"), ("b", "1Gi")):
        place = {"metadata": {"name": f"ssd-{zone}"}, "nodeTopology": {"matchLabels": {ZONE: zone}}}
        here.kube.create({**left, **place, "capacity": capacity})
    patient = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "patient"}}
    here.kube.create({**patient, "value": 1, "preemptionPolicy": "Never"})
    with PodLog(here.kube) as log:
        never: Object = {"priorityClassName": "patient", "volumes": USES}
        here.kube.create(serving("stateful", replicas=1, cpu="4", memory="1Gi", **never))

        def chosen() -> str:
            annotations = here.kube.get("persistentvolumeclaims", "data")["metadata"].get("annotations") or {}
            return str(annotations.get("volume.kubernetes.io/selected-node") or "")

        here.kube.wait_until(lambda: chosen() == "n0", WITHIN_S, "kube-scheduler has chosen the node with storage")
        assert here.running("train") == 11
        assert log.causes().total() == 4


def with_devices(here: World, nodes: int, each: int) -> Object:
    """Devices on every node; what a pod says to have one of them."""
    for body in (device_class(), template(), *slices(nodes, each)):
        here.kube.create(body)
    return {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}


@pytest.mark.timeout(600)
def test_devices_by_claim_are_shared_and_cpu_goes_to_those_without(start: Callable[..., World]) -> None:
    here = start(2)
    claims = {"template": {"spec": with_devices(here, 2, 3)}}
    here.submit(tiny("a", 2, 24, trainer=claims))
    at_rest(here, "a", 6)
    assert "device of class gpu.example.com is full on all 2 nodes" in explanation(here, "a")
    here.submit(tiny("b", 2, 24, trainer=claims))
    at_rest(here, "b", 3)
    at_rest(here, "a", 3)
    here.submit(tiny("plain", 1, 40))
    at_rest(here, "plain", 9)
    watch(here, 10, lambda: not pending(here), "a trainer waits")
    assert (here.running("a"), here.running("b")) == (3, 3)


@pytest.mark.timeout(600)
def test_serving_gets_devices_by_claim_from_trainers(start: Callable[..., World]) -> None:
    """kube-scheduler preempts for no claim, so nobody else makes room."""
    here = start(2)
    claims = with_devices(here, 2, 3)
    here.submit(tiny("a", 2, 6, trainer={"template": {"spec": claims}}))
    at_rest(here, "a", 6)
    here.kube.create(serving(replicas=2, cpu="100m", memory="64Mi", **claims))
    here.kube.wait_until(lambda: here.ready_serving() == 2, 3 * WITHIN_S, "they have devices")
    at_rest(here, "a", 4)
