"""Which devices a pod gets by claim, and the words of kube-scheduler for a pod that gets none."""

from __future__ import annotations

from typing import Any

import pytest

from edl.sandbox.scheduler.devices import ELSEWHERE, TOO_FEW, Asked, ClaimProblemError, Devices
from edl.sandbox.scheduler.preemption import NO_VICTIMS, NOT_HELPFUL, find_preemption, refusal_note
from edl.sandbox.scheduler.scheduler import refusals
from edl.sandbox.scheduler.view import NodeView, PodView, pod_view
from tests.sandbox.scheduler.builders import make_node, make_pod, views
from tests.worlds.rules.device_scenes import DRIVER, claim, device, device_class, request, slice_of

Object = dict[str, Any]
BIG = f'device.attributes["{DRIVER}"].big'


def big(node: str, *sizes: bool) -> Object:
    return slice_of(node, *(device(f"gpu-{place}", big=size) for place, size in enumerate(sizes)))


def stored(bodies: list[Object]) -> list[Object]:
    """The objects as an API server has them."""
    for place, body in enumerate(bodies):
        body["metadata"] |= {"uid": f"uid-{body['metadata']['name']}", "resourceVersion": str(place + 1)}
    return bodies


class Scene:
    """Nodes with devices, and a pod that claims some.

    Args:
        slices: the devices of the nodes n0, n1...
        claims: the first one is the pod's.
        classes: the classes.
        limits: extended resources that the pod requests.
    """

    def __init__(
        self,
        slices: list[Object],
        claims: list[Object],
        classes: tuple[Object, ...] = (device_class(),),
        limits: Object | None = None,
    ) -> None:
        names = [one["metadata"]["name"] for one in claims[:1]]
        body = make_pod("p")
        body["spec"]["resourceClaims"] = [{"name": name, "resourceClaimName": name} for name in names]
        body["spec"]["containers"][0]["resources"]["requests"] |= limits or {}
        self.pod: PodView = pod_view(body)
        self.nodes: list[NodeView] = views([make_node(one["metadata"]["name"][:2]) for one in slices])
        self.devices = Devices()
        by_name = {("default", one["metadata"]["name"]): one for one in stored(claims)}
        self.devices.look(self.nodes, stored(slices), stored(list(classes)), by_name)

    @property
    def asked(self) -> Asked:
        return self.devices.asked_by(self.pod)

    def refused(self) -> dict[str, str]:
        found = {node.name: self.devices.refusal(self.pod, self.asked, node) for node in self.nodes}
        return {name: why for name, why in found.items() if why}

    def given(self, node: int = 0) -> set[tuple[str, str]] | None:
        found = self.devices.allocation(self.pod, self.asked, self.nodes[node])
        return None if found is None else {(name, device[2]) for claim in found for name, device in claim}

    def problem(self) -> str:
        with pytest.raises(ClaimProblemError) as raised:
            self.refused()
        return str(raised.value)


def test_a_node_without_a_free_device_is_refused_and_nobody_ends_for_it() -> None:
    scene = Scene([big("n0", True), slice_of("n1")], [claim("mine"), claim("other", "n0", "gpu-0")])
    without = scene.refused()
    assert without == {"n0": TOO_FEW, "n1": TOO_FEW}
    assert refusals(scene.pod, scene.nodes, {}, without) == {"n0": [TOO_FEW], "n1": [TOO_FEW]}
    low = views([make_node("n0")], make_pod("low", "4", node="n0", priority=-1))
    assert find_preemption(scene.pod, low, without) is None
    assert NOT_HELPFUL in refusal_note(scene.pod, low, without)
    assert NO_VICTIMS not in refusal_note(scene.pod, low, without)


def test_the_one_that_may_have_any_device_leaves_the_chosen_one_to_the_other() -> None:
    requests = request(1) | {"name": "any"}, request(1, selectors=[{"cel": {"expression": BIG}}])
    scene = Scene([big("n0", True, False)], [claim("mine", requests=requests)])
    assert scene.given() == {("any", "gpu-1"), ("gpu", "gpu-0")}
    assert Scene([big("n0", False, False)], [claim("mine", requests=requests)]).given() is None


def test_a_request_for_two_gets_two_of_one_node() -> None:
    scene = Scene([big("n0", True), big("n1", True, True)], [claim("mine", requests=(request(2),))])
    assert scene.refused() == {"n0": TOO_FEW}
    assert scene.given(1) == {("gpu", "gpu-0"), ("gpu", "gpu-1")}


def test_a_claim_that_has_devices_keeps_its_pods_to_their_node() -> None:
    scene = Scene([big("n0", True), big("n1", True)], [claim("mine", "n1", "gpu-0", user="someone")])
    assert scene.refused() == {"n0": ELSEWHERE}
    assert scene.asked.unused_elsewhere(scene.pod, scene.nodes) is None
    scene = Scene([big("n0", True), big("n1", True)], [claim("mine", "n1", "gpu-0", user="uid-p")])
    unused = scene.asked.unused_elsewhere(scene.pod, scene.nodes)
    assert unused is not None
    assert unused["metadata"]["name"] == "mine"


def test_what_was_written_just_now_is_taken() -> None:
    scene = Scene([big("n0", True)], [claim("mine")])
    assert scene.refused() == {}
    scene.devices.note(claim("other", "n0", "gpu-0"))
    assert scene.refused() == {"n0": TOO_FEW}


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (request(name="none"), "request gpu: device class none does not exist"),
        (request(selectors=[{"cel": {"expression": "device.none"}}]), "no such key: none"),
        (request(allocationMode="All"), "the sandbox gives out whole devices: request gpu asks for all devices"),
        ({"name": "gpu", "firstAvailable": [{"name": "a"}]}, "names several kinds of devices (firstAvailable)"),
    ],
)
def test_what_is_not_given_out_is_said(asked: Object, problem: str) -> None:
    assert problem in Scene([big("n0", True)], [claim("mine", requests=(asked,))]).problem()


def test_a_claim_that_is_not_made_yet_is_waited_for_in_silence() -> None:
    scene = Scene([big("n0", True)], [claim("mine")])
    scene.devices.look(scene.nodes, [], [], {})
    assert scene.problem() == ""


def test_a_class_stands_for_an_extended_resource_unless_a_plugin_offers_it() -> None:
    classes = (device_class(extendedResourceName="nvidia.com/gpu"),)
    scene = Scene([big("n0", True), big("n1", True)], [], classes, {"nvidia.com/gpu": "1"})
    plugin = make_node("n1")
    plugin["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    nodes = views([make_node("n0"), plugin])
    assert scene.given() == {("container-0-request-1", "gpu-0")}
    seen = [scene.devices.without_extended(scene.asked, node) for node in nodes]
    assert refusals(scene.pod, seen, {}, {}) == {}
    given = [scene.devices.allocation(scene.pod, scene.asked, node) for node in seen]
    assert given == [[[("container-0-request-1", (DRIVER, "n0", "gpu-0"))]], [[]]]
    other = Scene([big("n0", True)], [], (), {"nvidia.com/gpu": "1"})
    assert not other.asked
    assert refusals(other.pod, other.nodes, {}, {}) == {"n0": ["Insufficient nvidia.com/gpu"]}
