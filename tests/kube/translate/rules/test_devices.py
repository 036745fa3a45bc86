"""Devices by claim: jobs and serving get what is there, and who cannot have any costs nobody anything."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from edl.kube.translate.devices.book import READ_S
from edl.kube.translate.devices.selectors import is_chosen
from edl.kube.translate.rules.devices import KINDS_OF_NAMESPACE
from edl.model.plan import ScaleDecision, ScalePlan
from edl.planner.eligibility import takes
from tests.worlds.rules.device_scenes import (
    CLASS,
    claim,
    device,
    device_class,
    request,
    slice_of,
    slices,
    template,
    uses,
)
from tests.worlds.rules.scenes import (
    NO_NODE,
    Object,
    blocked,
    job,
    members,
    node,
    nodes,
    plan,
    pod,
    snapshot,
    victims,
)

OWN = f'device.attributes["{CLASS}"]'
DRA = [device_class(), template()]


def of(found: ScalePlan, name: str) -> ScaleDecision:
    return next(one for one in found.decisions if one.job.name == name)


def held(name: str, *places: str, first: int = 0) -> list[Object]:
    """A job's pods on nodes, each with a device, from that number on for each node."""
    used: dict[str, int] = {}
    claims = []
    for index, place in enumerate(places):
        number = used.setdefault(place, first)
        used[place] += 1
        claims.append(claim(f"{name}-{index}", place, f"gpu-{number}"))
    return [*members(name, *places, **uses()), *claims]


A16 = held("a", *(f"n{i % 4}" for i in range(16)))


def test_a_job_gets_as_many_trainers_as_there_are_devices() -> None:
    found = plan(nodes(4), slices(4), DRA, job("a", 2, 24, template=uses()))
    assert of(found, "a").target == 16
    assert dict(of(found, "a").nodes) == {"n0": 4, "n1": 4, "n2": 4, "n3": 4}
    assert (
        of(found, "a").message == f"16 of 24: device of class {CLASS} is full on all 4 nodes that accept its trainers"
    )


def test_devices_are_shared_fairly_and_cpu_goes_to_those_without() -> None:
    jobs = (job("a", 2, 24, template=uses()), job("b", 4, 24, template=uses()), job("plain", 1, 60))
    found = plan(nodes(4), slices(4), DRA, *jobs, A16)
    targets = {name: of(found, name).target for name in ("a", "b", "plain")}
    assert targets["a"] + targets["b"] == 16
    assert targets["b"] >= 7
    assert targets["plain"] == 15, "31 cores but for the masters"
    assert len(victims(found)) == 16 - targets["a"]


def test_serving_takes_devices_from_trainers() -> None:
    web = [pod(f"web-{i}", cpu="100m", **uses()) for i in range(4)]
    found = plan(nodes(4), slices(4), DRA, job("a", 2, 16, template=uses()), A16, web)
    assert (found.serving.placed, found.serving.short) == (4, 0)
    assert len(victims(found)) == 4


def test_serving_that_kube_scheduler_cannot_help_takes_devices_from_trainers_too() -> None:
    """kube-scheduler preempts for no claim, and says that preemption is not helpful."""
    web = pod("web-0", cpu="100m", **uses())
    says = "0/4 nodes are available: 4 cannot allocate all claims. still not schedulable, preemption: 0/4 nodes are"
    says += " available: 4 Preemption is not helpful for scheduling."
    web["status"]["conditions"] = [{**NO_NODE, "message": says}]
    found = plan(nodes(4), slices(4), DRA, job("a", 2, 16, template=uses()), A16, web)
    assert (found.serving.placed, len(victims(found))) == (1, 1)


@pytest.mark.parametrize(
    ("owner", "user", "count"),
    [
        ("", "", 2),
        ("uid-there", "", 2),
        ("", "uid-there", 2),
        ("uid-new", "", 3),
        ("", "gone", 3),
        ("uid-ended", "", 3),
    ],
    ids=["nobody's", "a pod's", "used by a pod", "of a pod on its way", "of a pod that is gone", "of one that ended"],
)
def test_which_claims_have_devices_that_others_cannot_have(owner: str, user: str, count: int) -> None:
    there, new, ended = pod("there", "n0", cpu="1"), pod("new", cpu="1"), pod("ended", "n0", cpu="1")
    ended["status"] = {"phase": "Succeeded"}
    taken = claim("c", "n0", "gpu-0", owner=owner, user=user)
    found = plan(nodes(1), slices(1, 3), DRA, taken, there, new, ended, job("a", 1, 9, template=uses()))
    assert of(found, "a").target == count


def test_serving_without_any_device_costs_nobody_anything() -> None:
    web = pod("web-0", cpu="100m", **uses())
    scene = (nodes(4), slices(4), DRA, job("plain"), members("plain", *["n0"] * 7, *["n1"] * 8), web)
    taken = [claim(f"others-{n}-{k}", f"n{n}", f"gpu-{k}") for n in range(4) for k in range(4)]
    found = plan(*scene, taken)
    assert (found.serving.placed, found.serving.short) == (0, 1)
    assert not victims(found)


def test_a_narrow_kind_uses_the_wide_one_too() -> None:
    """Two of four devices are large: two trainers of `large`, and two more of `any`, but never three large ones."""
    devices = [device(f"gpu-{k}", memory="80Gi" if k < 2 else "40Gi") for k in range(4)]
    large = template(
        request(
            selectors=[{"cel": {"expression": f'device.capacity["{CLASS}"].memory.isGreaterThan(quantity("40Gi"))'}}]
        ),
        name="large",
    )
    jobs = (job("large", 1, 8, template=uses("large")), job("any", 1, 8, template=uses()))
    found = plan(nodes(1), slice_of("n0", *devices), DRA, large, *jobs)
    assert of(found, "large").target + of(found, "any").target == 4
    assert of(found, "large").target in {1, 2}
    assert of(plan(nodes(1), slice_of("n0", *devices), DRA, large, jobs[0]), "large").target == 2


DISAGREES = slice_of("n0", device("gpu-1"), generation=2, slices=2, name="other")


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ([slice_of("n0", device("gpu-0"), generation=2)], 1),
        ([slice_of("n0", device("gpu-0"), generation=2, slices=2)], 0),
        ([slice_of("n0", device("gpu-0", taint="broken"), device("gpu-1"), generation=2)], 1),
        ([slice_of("n0", device("gpu-0"), generation=2), DISAGREES], 0),
        ([DISAGREES, slice_of("n0", device("gpu-0"), generation=2)], 0),
        ([slice_of("n9", device("gpu-0"))], 4),
    ],
    ids=[
        "a newer generation",
        "an incomplete pool",
        "a taint",
        "slices that disagree",
        "in the other order",
        "a node that does not exist",
    ],
)
def test_which_devices_count(more: list[Object], count: int) -> None:
    found = plan(nodes(1), slices(1), more, DRA, job("a", 1, 24, template=uses()))
    assert of(found, "a").target == count


def test_several_devices_a_pod() -> None:
    two = template(request(2), name="two")
    found = plan(nodes(4), slices(4, 3), device_class(), two, job("a", 1, 24, template=uses("two")))
    assert of(found, "a").target == 4, "one device of each node is left"


FIRST = {"name": "gpu", "firstAvailable": [{"name": "x", "deviceClassName": CLASS}]}


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (template(FIRST), "request gpu names several kinds of devices (firstAvailable)"),
        (template(request(allocationMode="All")), "request gpu asks for all devices of a node (allocationMode)"),
        (template(request(adminAccess=True)), "request gpu shares devices of others (adminAccess)"),
        (template(request(capacity={"requests": {"memory": "1Gi"}})), "asks for a part of a device (capacity)"),
        (template(request(name="none")), "DeviceClass none does not exist"),
        (
            template(request(2), constraints=[{"matchAttribute": "x/y"}]),
            "must have something in common (constraints)",
        ),
        (template(request(selectors=[{"cel": {"expression": "1 +"}}])), "selector 1 +"),
        (template(request(33)), "asks for 33 devices, and a claim gets at most 32"),
        (template(request(20), {**request(20), "name": "more"}), "asks for 40 devices, and a claim gets at most 32"),
        (template(request(10**12)), "asks for 1000000000000 devices, and a claim gets at most 32"),
        (template(request(2**63 - 1)), "and a claim gets at most 32"),
        (template(name="other"), "the ResourceClaimTemplate does not exist"),
    ],
)
def test_what_is_not_counted_is_named_and_costs_nobody_anything(made: Object, says: str) -> None:
    web = pod("web-0", cpu="6", **uses())
    scene = (nodes(1), slices(1), device_class(), made, job("plain"), members("plain", *["n0"] * 7))
    assert says in blocked(snapshot(*scene, web))["web-0"]
    assert not victims(plan(*scene, web))
    trainers = plan(*scene, job("a", 1, 4, template=uses()))
    assert of(trainers, "a").target == 0
    assert not victims(trainers)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"consumesCounters": [{"counterSet": "a", "counters": {}}]}, "the device is a part of another one"),
        ({"allowMultipleAllocations": True}, "several claims share the device"),
    ],
)
def test_devices_that_are_no_whole_ones_are_named(spec: Object, says: str) -> None:
    web = pod("web-0", cpu="1", **uses())
    part = slice_of("n0", {**device("gpu-0"), **spec})
    assert says in blocked(snapshot(nodes(1), part, DRA, web))["web-0"]


def test_devices_that_several_nodes_reach_are_named() -> None:
    web = pod("web-0", cpu="1", **uses())
    far = slice_of("pool", device("gpu-0"), allNodes=True)
    assert "several nodes reach the device" in blocked(snapshot(nodes(2), far, DRA, web))["web-0"]


def test_kinds_that_overlap_in_part_are_named() -> None:
    devices = [device("a", x=True, y=False), device("b", x=True, y=True), device("c", x=False, y=True)]
    classes = [device_class(name, f"{OWN}.{name}") for name in ("x", "y")]
    made = [template(request(name=name), name=name) for name in ("x", "y")]
    web = [pod(f"{name}-0", cpu="1", **uses(name)) for name in ("x", "y")]
    found = blocked(snapshot(nodes(1), slice_of("n0", *devices), classes, made, web))
    assert list(found.values()) == [
        "edl does not count its devices: classes y and x have some devices in common, but not all"
    ] or list(found.values()) == [
        "edl does not count its devices: classes x and y have some devices in common, but not all"
    ]


def test_a_claim_with_devices_keeps_its_pods_on_their_node() -> None:
    web = pod("web-0", cpu="1", **uses("mine", shared=True))
    scene = (nodes(2), slices(2), DRA, claim("mine", "n1", "gpu-0"), web)
    (waiting,) = snapshot(*scene).waiting_serving
    assert not waiting.blocked
    assert [rule.why for rule in waiting.shape.placement.rules] == ["claim mine has its devices on other nodes"]
    assert plan(*scene).serving.placed == 1


def test_a_claim_that_one_pod_waits_with_gets_a_device_and_one_that_several_share_is_named() -> None:
    one, two = (pod(f"web-{i}", cpu="1", **uses("mine", shared=True)) for i in range(2))
    scene = (nodes(1), slices(1, 1), DRA, claim("mine"))
    assert plan(*scene, one).serving.placed == 1
    assert "several pods share this claim, and it has no device yet" in blocked(snapshot(*scene, one, two))["web-0"]


def test_the_kinds_of_one_namespace_are_bounded_and_others_go_on() -> None:
    """One tenant asks for forty kinds; the jobs of others and its own first kinds get their devices."""
    many = [
        template(request(selectors=[{"cel": {"expression": f'device.driver != "{k}"'}}]), name=f"kind-{k}")
        for k in range(40)
    ]
    for one in many:
        one["metadata"]["namespace"] = "other"
    jobs = [job(f"job-{k}", 1, 1, template=uses(f"kind-{k}")) for k in range(40)]
    for one in jobs:
        one["metadata"]["namespace"] = "other"
    found = plan(nodes(8), slices(8, 8), DRA, many, jobs, job("a", 1, 4, template=uses()))
    assert of(found, "a").target == 4
    refused = [one.account for one in found.decisions if one.job.namespace == "other" and not one.target]
    assert len(refused) == 40 - KINDS_OF_NAMESPACE
    assert all(f"its namespace asks for more than {KINDS_OF_NAMESPACE} kinds of devices" in text for text in refused)


TICK_S = 2e-5
SLOW = " && ".join(["!'a'.matches('a{1000}')"] * 40)
"""Tens of milliseconds for each device, because each pattern is compiled anew."""


def by_selector(expression: str, namespace: str = "default", number: int = 0) -> list[Object]:
    """A job and its template of one selector."""
    made = template(request(selectors=[{"cel": {"expression": expression}}]), name=f"kind-{number}")
    asks = job(f"job-{number}", 1, 1, template=uses(f"kind-{number}"))
    for one in (made, asks):
        one["metadata"]["namespace"] = namespace
    return [made, asks]


def test_a_selector_that_takes_long_for_one_device_is_named_and_not_read_for_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A clock of the test goes on by 20 ms for each device of the slow selector, by 10 microseconds for others."""
    spent_s, slow_looks = 0.0, 0

    def chosen(expression: str, device: Mapping[str, Any]) -> bool:
        nonlocal spent_s, slow_looks
        spent_s += 0.02 if expression == SLOW else TICK_S / 2
        slow_looks += expression == SLOW
        return is_chosen(expression, device)

    monkeypatch.setattr("edl.kube.translate.devices.book.clock_s", lambda: spent_s)
    monkeypatch.setattr("edl.kube.translate.devices.book.is_chosen", chosen)
    found = plan(nodes(40), slices(40, 100), DRA, by_selector(SLOW), job("a", 1, 4, template=uses()))
    assert of(found, "a").target == 4
    assert "for one device" in of(found, "job-0").account
    assert slow_looks == 2, "of four thousand devices"


def test_who_has_many_selectors_has_a_share_of_the_time_and_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look takes 20 microseconds on a clock of the test: 3,200 devices and 32 kinds are two seconds."""
    clock = itertools.count()
    monkeypatch.setattr("edl.kube.translate.devices.book.clock_s", lambda: next(clock) * TICK_S)
    many = [
        made
        for number in range(KINDS_OF_NAMESPACE)
        for made in by_selector(f'device.driver != "{number}"', "many", number)
    ]
    found = plan(nodes(32), slices(32, 100), DRA, many, job("z", 1, 4, template=uses()))
    assert of(found, "z").target == 4
    waits = [one for one in found.decisions if one.job.namespace == "many" and not one.target]
    assert waits
    assert all("edl reads other kinds of devices first" in one.account for one in waits)
    assert next(clock) * TICK_S < 2 * READ_S, "the time of one snapshot"


# Extended resources that a class stands for


def with_gpu(name: str, amount: int) -> Object:
    found = node(name)
    found["status"]["allocatable"]["nvidia.com/gpu"] = str(amount)
    return found


def asking(name: str, amount: str = "1") -> Object:
    found = pod(name, cpu="1")
    found["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": amount}
    return found


@pytest.mark.parametrize(
    ("resource", "spec"),
    [
        ("nvidia.com/gpu", {"extendedResourceName": "nvidia.com/gpu"}),
        (f"deviceclass.resource.kubernetes.io/{CLASS}", {}),
    ],
)
def test_a_class_stands_for_an_extended_resource(resource: str, spec: dict[str, Any]) -> None:
    amounts = {"cpu": "1", "memory": "1Gi", resource: "1"}
    wants = job("a", 1, 24)
    wants["spec"]["trainer"]["resources"] = {"requests": amounts, "limits": amounts}
    found = plan(nodes(2), slices(2, 3), device_class(**spec), wants)
    assert of(found, "a").target == 6


def test_nodes_with_a_plugin_and_nodes_with_claims_go_together() -> None:
    gpu = device_class(extendedResourceName="nvidia.com/gpu")
    scene = ([with_gpu("n0", 2), node("n1")], slice_of("n1", device("gpu-0")), gpu, template())
    found = plan(*scene, [asking(f"web-{i}") for i in range(4)])
    assert (found.serving.placed, found.serving.short) == (3, 1)
    found = plan(*scene, [pod(f"web-{i}", cpu="1", **uses()) for i in range(2)])
    assert (found.serving.placed, found.serving.short) == (1, 1), "claims get no device of a plugin"


def owned(pod_name: str, on: str, *devices: str) -> Object:
    """A claim that a template made for a pod."""
    return claim(f"{pod_name}-gpu-x7z2k", on, *devices, owner=f"uid-{pod_name}", user=f"uid-{pod_name}")


def test_a_pod_whose_claim_has_its_devices_goes_to_their_node() -> None:
    """kube-scheduler gave them to it, and then could not bind it."""
    web = [pod(f"web-{i}", cpu="4", **uses()) for i in range(2)]
    scene = (nodes(2), slices(2, 2), DRA, owned("web-1", "n1", "gpu-0"), web)
    read = snapshot(*scene)
    accepting = {
        one.name: [node.name for node in read.nodes if takes(node, one.shape.placement)]
        for one in read.waiting_serving
    }
    assert accepting == {"web-0": ["n0", "n1"], "web-1": ["n1"]}
    full = members("t", *["n1"] * 7)
    found = plan(*scene, job("t"), full)
    assert (found.serving.placed, found.serving.short) == (2, 0)
    assert len(victims(found)) == 4, "its node has 0.95 cores left beside 7 trainers and a master"


def test_nobody_ends_for_a_pod_whose_devices_are_on_a_node_that_cannot_take_it() -> None:
    web = pod("web-0", cpu="4", **uses())
    scene = (nodes(2), slices(2, 2), DRA, owned("web-0", "n1", "gpu-0"), web, pod("db-0", "n1", cpu="7"))
    assert victims(plan(*scene, job("t"), members("t", *["n0"] * 7))) == []
    assert "claim web-0-gpu-x7z2k has its devices on other nodes" in blocked(snapshot(*scene))["web-0"]


def test_a_template_that_is_gone_does_not_matter_to_a_pod_that_has_its_claim() -> None:
    made = owned("web-0", "")
    scene = (nodes(2), slices(2, 2), device_class(), made, pod("web-0", cpu="4", **uses()))
    assert blocked(snapshot(*scene)) == {}
    assert plan(*scene).serving.placed == 1
