"""Rules, volumes and devices that keep pods waiting are named, with a remedy that can help."""

from __future__ import annotations

import pytest

from edl.explain.blocked_serving import blocked_lines, oversized_lines
from edl.explain.decision import explained_study
from edl.explain.job_report import JobReport, report_on_job
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.planner.policies.registry import policy_named
from tests.worlds.rules.device_scenes import device, device_class, request, slice_of, template, uses
from tests.worlds.rules.scenes import (
    HOSTNAME,
    ZONE,
    Object,
    bound,
    job,
    members,
    node,
    nodes,
    plan,
    pod,
    snapshot,
    spread,
    storage,
)
from tests.worlds.rules.volume_scenes import USES, claim, storage_class

DRIVER = "ebs.csi.aws.com"
ATTACHES = f"rule: volumes of driver {DRIVER} that a node attaches"
MADE = {"accessModes": ["ReadWriteOnce"], "storageClassName": "ssd", "resources": {"requests": {"storage": "1Gi"}}}
SCRATCH = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": MADE}}}]}
RULE = "change the rule or the volume that the line names, or add a node that it allows"
CREATE = "create or change what the line names: a claim, its class or its template, or the devices that it asks for"


def limited(most: int) -> list[Object]:
    """Two nodes that attach so many volumes each, and five volumes with their claims."""
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode"}
    found = []
    for name in ("n0", "n1"):
        drivers = [{"name": DRIVER, "nodeID": name, "allocatable": {"count": most}}]
        found.append({**kind, "metadata": {"name": name}, "spec": {"drivers": drivers}})
    for number in range(5):
        spec = {"csi": {"driver": DRIVER, "volumeHandle": f"v{number}"}}
        named = {"name": f"pv{number}"}
        found.append({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": named, "spec": spec})
        found.append(claim(f"data-{number}", volumeName=f"pv{number}"))
    return [*nodes(2), storage_class(), *found]


def database(number: int, on: str = "") -> Object:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": f"data-{number}"}}]
    return pod(f"db-{number}", on, cpu="1", volumes=volumes)


def report(*scene: Object | list[Object]) -> JobReport:
    study = explained_study(snapshot(*scene), policy_named("maxmin"), Limits())
    return report_on_job(study, JobKey("default", "t"), 10.0)


def lines(*scene: Object | list[Object]) -> list[str]:
    found = snapshot(*scene)
    return [*blocked_lines(found), *oversized_lines(found)]


def test_attach_limits_are_what_keeps_serving_pods_waiting() -> None:
    both = [database(1), database(2)]
    assert plan(limited(1), database(0, "n0"), both).serving.placed == 1
    assert lines(limited(1), database(0, "n0"), both) == [
        "1 of the 2 serving pods like default/db-1 would wait without any job, too: the nodes that accept them have"
        f" capacity for 1 ({ATTACHES})"
    ]
    assert lines(limited(1), database(0, "n0"), database(1, "n1"), database(2)) == [
        f"serving pod default/db-2 would wait without any job, too: {ATTACHES}: no more on the 2 nodes that accept it"
    ]


def test_a_pod_that_uses_a_volume_which_is_attached_needs_no_more() -> None:
    """kube-scheduler counts a volume of a node once."""
    again = database(0) | {"metadata": {**database(0)["metadata"], "name": "db-9", "uid": "uid-db-9"}}
    assert plan(limited(1), database(0, "n0"), database(1, "n1"), again).serving.placed == 1


def test_attach_limits_are_what_keeps_trainers_waiting() -> None:
    grows = report(limited(3), job("t", 2, 40, SCRATCH))
    assert grows.decision.target == 6
    assert grows.decision.message == f"6 of 40: {ATTACHES}: no more on all 2 nodes that accept its trainers"
    assert grows.remedies == (RULE,)
    large = report(limited(3), job("t", 8, 40, SCRATCH))
    assert large.decision.message == f"the nodes can hold at most 6 trainers, and its minimum is 8 ({ATTACHES})"
    assert large.remedies == (RULE, "lower spec.trainer.min-instance of this job")
    none = report(limited(1), database(0, "n0"), database(1, "n1"), job("t", 2, 40, SCRATCH))
    assert none.decision.message == f"{ATTACHES}: no more on any node that accepts its trainers"
    assert none.remedies == (RULE,)


def test_what_is_missing_is_named_and_no_larger_node_is_asked_for() -> None:
    waits = report(nodes(2), job("t", 2, 40, {"volumes": USES}))
    assert waits.decision.message == "no node accepts its trainers: PersistentVolumeClaim data does not exist"
    assert waits.remedies == (CREATE,)
    going = claim(metadata={"deletionTimestamp": "2026-01-05T10:00:00Z"}, storageClassName="ssd")
    running = members("t", "n0", "n0", volumes=USES)
    runs = report(nodes(2), going, storage_class(), job("t", 1, 40, {"volumes": USES}), running)
    assert (runs.decision.target, runs.remedies) == (2, (CREATE,))
    assert "PersistentVolumeClaim data is being deleted" in runs.decision.message


def test_a_rule_that_lets_a_job_grow_by_steps_asks_to_wait() -> None:
    own: Object = {"paddlepaddle.org/job": "t", "paddlepaddle.org/role": "trainer"}
    ruled = job("t", 1, 40, template={"topologySpreadConstraints": spread(ZONE, **own)})
    wait, add = report(nodes(6, "abc"), ruled).remedies
    assert wait == "wait: once its new trainers run, the rule may allow more"
    assert add == "add a node on which the rule allows a trainer, or change the rule"


def test_a_rule_that_a_full_domain_holds_asks_for_what_helps() -> None:
    """Neither to wait nor a node more would: the emptiest domain stays where it is."""
    own: Object = {"paddlepaddle.org/job": "t", "paddlepaddle.org/role": "trainer"}
    for key, where in ((HOSTNAME, "on node n2"), (ZONE, "in zone c")):
        ruled = job("t", 1, 40, template={"topologySpreadConstraints": spread(key, **own)})
        for cpu, running in (("8", []), ("7", members("t", "n0", "n1", "n2"))):
            found = report(nodes(3, "abc"), pod("db-0", "n2", cpu=cpu), ruled, running)
            assert found.remedies == (
                f"free capacity {where}, keep its trainers from there by a node affinity, or raise maxSkew or set"
                " whenUnsatisfiable to ScheduleAnyway in the rule",
            )
            assert f", and {where[3:]} takes no more than {8 - int(cpu)}: no more on" in found.decision.message


def on_n1() -> list[Object]:
    """A claim that is bound to a volume of node n1."""
    found = bound(storage("a"), "pv-a0")
    here = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["n1"]}]}]
    found[1]["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": here}}
    return found


@pytest.mark.parametrize(
    ("scene", "planned", "what"),
    [
        ([nodes(2)], 8, "free capacity on"),
        ([nodes(2), pod("db-0", "n1", cpu="8")], 0, "free capacity on"),
        ([nodes(1)], 0, "bring back"),
    ],
    ids=["full of its trainers", "full of serving", "gone"],
)
def test_a_volume_of_one_node_asks_for_no_other_node(scene: list[list[Object]], planned: int, what: str) -> None:
    found = report(*scene, on_n1(), job("t", 1, 40, {"volumes": USES}))
    help_ = f"{what} node n1, or give its pods a volume that other nodes reach: a node more does not help"
    assert (found.decision.target, found.remedies) == (planned, (help_,))


def test_a_claim_for_one_pod_asks_for_another_claim() -> None:
    alone = bound(storage("a", mode="ReadWriteOncePod"), "pv-a0")
    help_ = (
        "end the other pod that uses the claim, or give its pods a claim that several may use, or an ephemeral volume"
        " each: a node more does not help"
    )
    lower = "lower spec.trainer.min-instance of this job"
    ruled = {"volumes": USES}
    assert report(nodes(2, "aa"), alone, job("t", 1, 40, ruled)).remedies == (help_,)
    assert report(nodes(2, "aa"), alone, job("t", 2, 40, ruled)).remedies == (help_, lower)
    used = pod("db-0", "n0", cpu="1", volumes=USES)
    assert report(nodes(2, "aa"), alone, used, job("t", 1, 40, ruled)).remedies == (help_,)


def test_volumes_made_by_hand_are_asked_for() -> None:
    made = {**MADE, "storageClassName": "by-hand"}
    scratch = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": made}}}]}
    found = report(nodes(2, "ab"), storage("a", waits=True), job("t", 1, 40, scratch))
    assert found.remedies == ("make more such volumes, or name a StorageClass that makes them",)


def test_pods_that_share_a_volume_to_come_are_told_where_it_is_planned() -> None:
    scene = (nodes(4, "ab"), storage("ab", waits=True), claim(storageClassName="by-hand"))
    why = "the volume of claim data, which several pods share, will be in one place; most of them fit in zone a"
    found = report(*scene, job("t", 2, 40, {"volumes": USES}))
    assert f"no other node takes its trainers: {why}; more trainers" in found.decision.details
    webs = [pod(f"web-{number}", cpu="5", volumes=USES) for number in range(3)]
    assert lines(*scene, webs) == [
        "1 of the 3 serving pods like default/web-0 would wait without any job, too: the nodes that accept them have"
        f" capacity for 2 (cpu); {why}"
    ]


FIRST = {"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "gpu.example.com"}]}
PART = {"consumesCounters": [{"counterSet": "a", "counters": {}}]}
ASK = "claim one-gpu: request gpu"
UNCOUNTED: dict[str, tuple[Object, Object, str]] = {
    "firstAvailable": (FIRST, {}, f"{ASK} names several kinds of devices (firstAvailable); name one (exactly)"),
    "all": (
        request(allocationMode="All"),
        {},
        f"{ASK} asks for all devices of a node (allocationMode); ask for a count",
    ),
    "a part": (
        request(capacity={"requests": {"memory": "1Gi"}}),
        {},
        f"{ASK} asks for a part of a device (capacity); ask for whole ones",
    ),
    "partitions": (
        request(),
        PART,
        "device gpu.example.com/n0/gpu-0: the device is a part of another one; choose whole devices of a node by a"
        " selector",
    ),
    "shared devices": (
        request(),
        {"allowMultipleAllocations": True},
        "device gpu.example.com/n0/gpu-0: several claims share the device; choose whole devices of a node by a"
        " selector",
    ),
}


@pytest.mark.parametrize("case", UNCOUNTED)
def test_devices_that_edl_does_not_count_are_named_with_what_to_ask_for(case: str) -> None:
    asked, more, why = UNCOUNTED[case]
    scene = (nodes(1), slice_of("n0", device("gpu-0") | more), device_class(), template(asked))
    assert lines(*scene, pod("web-0", cpu="1", **uses())) == [
        f"serving pod default/web-0: nobody frees capacity for it: edl does not count its devices: {why}"
    ]
    waits = report(*scene, job("t", 2, 40, uses()))
    assert waits.decision.message == f"no node accepts its trainers: edl does not count its devices: {why}"
    assert waits.remedies == (CREATE,)


def test_what_keeps_a_serving_pod_from_every_node_is_named() -> None:
    cordoned = node("n2", spec={"unschedulable": True})
    wants = pod("web-0", nodeSelector={"disk": "ssd"})
    assert lines(nodes(2), cordoned, wants) == [
        "serving pod default/web-0 would wait without any job, too: no node accepts it (of 3 nodes: 2 excluded by its"
        " node selector or affinity and 1 cordoned)"
    ]
    assert lines(wants) == ["serving pod default/web-0 would wait without any job, too: the cluster has no nodes"]


def test_storage_that_no_driver_has_left_is_to_be_freed() -> None:
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "ebs.csi.aws.com"}}
    counts = {**driver, "spec": {"storageCapacity": True}}
    wants = claim(storageClassName="ssd", resources={"requests": {"storage": "5Gi"}})
    waits = report(nodes(2), counts, storage_class(), wants, job("t", 2, 40, {"volumes": USES}))
    assert "no node has 5Gi of storage left for claim data of StorageClass ssd" in waits.decision.message
    assert waits.remedies == (
        "free storage of the StorageClass that the line names, or let the claim name another class",
    )


def tainted(name: str, key: str, effect: str = "NoSchedule") -> Object:
    return node(name, spec={"taints": [{"key": key, "effect": effect}]})


FOR_A_TIME = {"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}


@pytest.mark.parametrize(
    ("closed", "template", "remedy"),
    [
        ([tainted("n0", "gpu")], {}, "let its pods tolerate taint gpu:NoSchedule, or"),
        (
            [tainted("n0", "spot", "NoExecute")],
            {"tolerations": [FOR_A_TIME]},
            "let its pods tolerate taint spot:NoExecute without tolerationSeconds, or",
        ),
        (
            [node("n0", spec={"unschedulable": True}), tainted("n1", "gpu"), tainted("n2", "gpu")],
            {},
            "let its pods tolerate taint gpu:NoSchedule, uncordon a node for its pods",
        ),
        (
            [node("n0", labels={"pool": "cpu"})],
            {"nodeSelector": {"pool": "gpu"}},
            "relax the node selector or affinity",
        ),
    ],
)
def test_what_keeps_pods_from_every_node_has_its_own_remedy(
    closed: list[Object], template: Object, remedy: str
) -> None:
    waits = report(closed, job("t", 2, 40, template))
    assert waits.remedies[0].startswith(remedy)
    assert waits.remedies[0].endswith(", or add a node that accepts them")
    running = report(closed, job("t", 1, 40, template), members("t", "n0"))
    assert running.remedies == waits.remedies
