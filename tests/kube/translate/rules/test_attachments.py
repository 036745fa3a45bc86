"""Where volumes can be attached: where their driver runs, if it must, and on one node only, if that is their mode.

kube-scheduler keeps a pod from a node without the driver only if the CSIDriver says so, and never from a node other
than that of its volume (kubernetes 103305): there the pod waits for the volume for ever.
"""

from __future__ import annotations

import random

import pytest

from edl.kube.translate.rules import one_node
from tests.worlds.raw_objects import batch_job
from tests.worlds.rules.scenes import Object, blocked, job, members, node, nodes, plan, pod, snapshot, victims
from tests.worlds.rules.volume_scenes import USES, claim, storage_class

DRIVER = "ebs.csi.aws.com"
BOUND: Object = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "pv"},
    "spec": {"csi": {"driver": DRIVER, "volumeHandle": "v"}},
}
OWN: Object = {
    "accessModes": ["ReadWriteOnce"],
    "storageClassName": "ssd",
    "resources": {"requests": {"storage": "1Gi"}},
}
SCRATCH = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": OWN}}}]
CLAIMS: dict[str, tuple[list[Object], list[Object]]] = {
    "of a volume": ([BOUND, claim(volumeName="pv")], USES),
    "of a volume to come": ([claim(storageClassName="ssd")], USES),
    "of the pod itself": ([], SCRATCH),
}
"""Objects, and the volumes of a pod that uses them."""


def must_run(*, must: bool = True) -> Object:
    spec = {"preventPodSchedulingIfMissing": must}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": spec}


def runs_on(*names: str) -> list[Object]:
    """The CSINodes of two nodes, of which some have the driver; the other ones have another driver."""
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode"}
    return [
        {
            **kind,
            "metadata": {"name": name},
            "spec": {"drivers": [{"name": DRIVER if name in names else "x", "nodeID": name}]},
        }
        for name in ("n0", "n1")
    ]


@pytest.mark.parametrize("how", CLAIMS)
def test_trainers_end_for_a_serving_pod_only_where_the_driver_of_its_volume_runs(how: str) -> None:
    objects, volumes = CLAIMS[how]
    waits = pod("web-0", volumes=volumes)
    scene = (nodes(2), storage_class(), objects, waits, job("t"), members("t", *["n0"] * 7, *["n1"] * 8))
    found = plan(*scene, must_run(), runs_on("n1"))
    assert found.serving.placed == 1
    assert {int(name.rpartition("-")[2]) >= 7 for name in victims(found)} == {True}
    assert victims(plan(*scene, must_run(), runs_on())) == []
    said = blocked(snapshot(*scene, must_run(), runs_on()))
    assert said["web-0"] == f"CSI driver {DRIVER} must run on the node; no node is left"
    assert plan(*scene, must_run(must=False), runs_on()).serving.placed == 1
    assert plan(*scene, must_run()).serving.placed == 1, "files without CSINodes say nothing about drivers"


@pytest.mark.parametrize("how", CLAIMS)
def test_trainers_begin_where_it_runs_and_stay_where_it_is_gone(how: str) -> None:
    objects, volumes = CLAIMS[how]
    scene = (nodes(2), storage_class(), objects, must_run(), job("t", 2, 40, {"volumes": volumes}))
    (decision,) = plan(*scene, runs_on("n1")).decisions
    assert dict(decision.nodes) == {"n1": 8}
    (decision,) = plan(*scene, runs_on("n1"), members("t", "n0", "n0", volumes=volumes)).decisions
    assert (decision.target, decision.victims, dict(decision.nodes)) == (10, (), {"n1": 8})


def test_a_pod_without_such_a_volume_goes_anywhere() -> None:
    found = plan(nodes(2), storage_class(), must_run(), runs_on(), job("t", 2, 40), pod("web-0"))
    assert found.serving.placed == 1
    assert [decision.target for decision in found.decisions] == [11]


def volume(*modes: str) -> list[Object]:
    """A volume with its claim."""
    spec = {**BOUND["spec"], "accessModes": list(modes)}
    return [{**BOUND, "spec": spec}, claim(volumeName="pv", accessModes=list(modes))]


def attached(*, required: bool) -> Object:
    return {**must_run(must=False), "spec": {"attachRequired": required}}


@pytest.mark.parametrize("objects", [volume("ReadWriteOnce"), [*volume("ReadWriteOnce"), attached(required=True)]])
@pytest.mark.parametrize(("holder", "first", "last"), [("n0", 0, 6), ("n1", 7, 14)])
def test_trainers_end_on_the_node_that_has_the_volume(
    objects: list[Object], holder: str, first: int, last: int
) -> None:
    uses = [pod("db-0", holder, cpu="10m", volumes=USES), pod("db-1", volumes=USES)]
    found = plan(nodes(2), objects, uses, job("t"), members("t", *["n0"] * 7, *["n1"] * 8))
    assert found.serving.placed == 1
    assert all(first <= int(name.rpartition("-")[2]) <= last for name in victims(found))


@pytest.mark.parametrize(
    ("objects", "more"),
    [
        (volume("ReadWriteMany"), {}),
        (volume("ReadWriteOnce", "ReadOnlyMany"), {}),
        (volume(), {}),
        ([*volume("ReadWriteOnce"), attached(required=False)], {}),
        (volume("ReadWriteOnce"), {"metadata": {"deletionTimestamp": "2026-01-05T10:00:00Z"}}),
    ],
)
def test_a_volume_of_several_nodes_or_that_becomes_free_keeps_no_pod_to_a_node(
    objects: list[Object], more: Object
) -> None:
    full = pod("web-0", "n0", cpu="7")
    uses = [pod("db-0", "n0", cpu="10m", volumes=USES, **more), pod("db-1", volumes=USES)]
    assert plan(nodes(2), objects, full, uses).serving.placed == 1


def test_nobody_ends_for_a_pod_that_the_node_of_its_volume_cannot_take() -> None:
    full = pod("web-0", "n0", cpu="7")
    uses = [pod("db-0", "n0", cpu="10m", volumes=USES), pod("db-1", volumes=USES)]
    scene = (nodes(2), volume("ReadWriteOnce"), full, uses, job("t"), members("t", *["n1"] * 7))
    assert victims(plan(*scene)) == []
    assert blocked(snapshot(*scene))["db-1"].startswith(
        "volume pv is in use on node n0, and its access mode allows no other one; "
    )


def test_trainers_that_share_such_a_volume_begin_on_one_node() -> None:
    places = [node("n0", cpu="4"), node("n1"), node("n2", cpu="6")]
    found = plan(places, volume("ReadWriteOnce"), job("t", 2, 40, {"volumes": USES}))
    assert [dict(decision.nodes) for decision in found.decisions] == [{"n1": 8}]
    assert "most pods that share it fit n1" in found.decisions[0].details
    busy = pod("web-0", "n1", cpu="7")
    found = plan(places, volume("ReadWriteOnce"), job("t", 2, 40, {"volumes": USES}), busy)
    assert [dict(decision.nodes) for decision in found.decisions] == [{"n2": 6}]
    found = plan(places, volume("ReadWriteMany"), job("t", 2, 40, {"volumes": USES}))
    assert [decision.target for decision in found.decisions] == [17]


def test_trainers_grow_where_their_volume_is() -> None:
    scene = (nodes(2), volume("ReadWriteOnce"), job("t", 1, 40, {"volumes": USES}))
    (decision,) = plan(*scene, members("t", "n0", "n0", volumes=USES)).decisions
    assert (decision.target, dict(decision.nodes)) == (7, {"n0": 5})


def own_volume(name: str, namespace: str = "default") -> tuple[list[Object], list[Object]]:
    """A volume of one node with its claim, and the volumes of a pod that uses it."""
    held = claim(name, volumeName=f"pv-{name}")
    held["metadata"]["namespace"] = namespace
    spec = {**BOUND["spec"], "accessModes": ["ReadWriteOnce"]}
    objects = [{**BOUND, "metadata": {"name": f"pv-{name}"}, "spec": spec}, held]
    return objects, [{"name": name, "persistentVolumeClaim": {"claimName": name}}]


def jobs_with_volumes(count: int, low: int, high: int, *, volumes: int = 1) -> list[Object]:
    """Jobs t0, t1... that begin, each with volumes of its own."""
    found = []
    for number in range(count):
        each = [own_volume(f"c{number}-{which}") for which in range(volumes)]
        found += [one for objects, _ in each for one in objects]
        found.append(job(f"t{number}", low, high, {"volumes": [one for _, uses in each for one in uses]}))
    return found


@pytest.mark.parametrize("low", [1, 4, 7])
def test_jobs_with_a_volume_each_begin_on_a_node_each(low: int) -> None:
    found = plan(nodes(4), jobs_with_volumes(4, low, 7)).decisions
    assert [dict(decision.nodes) for decision in found] == [{f"n{number}": 7} for number in range(4)]
    assert [decision.message for decision in found] == ["7 of 7: at its maximum"] * 4


def test_batch_jobs_with_a_volume_each_begin_on_a_node_each() -> None:
    objects = []
    for number in range(4):
        held, uses = own_volume(f"c{number}")
        one = batch_job(f"b{number}")
        one["metadata"]["namespace"] = "default"
        one["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4"}}
        one["spec"]["template"]["spec"]["volumes"] = uses
        objects += [*held, one]
    found = plan(nodes(4), objects).decisions
    assert [dict(decision.nodes) for decision in found] == [{f"n{number}": 2} for number in range(4)]


def test_jobs_whose_maximums_exceed_the_nodes_are_two_a_node() -> None:
    found = plan(nodes(4), jobs_with_volumes(8, 1, 40)).decisions
    assert [list(dict(decision.nodes)) for decision in found] == [[f"n{number % 4}"] for number in range(8)]


def test_the_pods_of_a_job_with_two_volumes_count_once() -> None:
    found = plan(node("n0", cpu="16"), node("n1"), jobs_with_volumes(2, 5, 5, volumes=2)).decisions
    assert [dict(decision.nodes) for decision in found] == [{"n0": 5}, {"n0": 5}]


def test_a_job_begins_where_the_minimums_before_it_leave_capacity_now_though_training_uses_more_elsewhere() -> None:
    trains = [job("other"), *members("other", *["n0"] * 8)[1:]]
    found = snapshot(node("n0", cpu="16"), node("n1"), trains, jobs_with_volumes(2, 7, 7))
    rules = {one.key.name: one.trainer.placement.rules for one in found.jobs if one.key.name != "other"}
    places = {name: rule.terms[0].fields[0].values for name, (rule,) in rules.items()}
    assert places == {"t0": ("n0",), "t1": ("n1",)}


def test_a_job_that_no_node_can_take_takes_nothing_from_the_next_one() -> None:
    found = plan(node("n0", cpu="16"), node("n1"), jobs_with_volumes(1, 30, 30), jobs_with_volumes(2, 7, 12)[3:])
    assert [dict(decision.nodes) for decision in found.decisions] == [{}, {"n0": 12}]


@pytest.mark.parametrize("seed", range(12))
def test_one_job_begins_where_most_of_it_fits_now_then_without_training_then_where_most_is_left(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311
    sizes = {f"n{number}": draw.randint(2, 9) for number in range(5)}
    serve = {name: draw.randint(0, 2) for name in sizes}
    train = {name: draw.randint(0, size - serve[name]) for name, size in sizes.items()}
    low = draw.randint(1, 6)

    def fit(name: str) -> tuple[int, int, int]:
        without = sizes[name] - serve[name]
        return min(low, without - train[name]), min(low, without), without

    found = snapshot(
        [node(name, cpu=str(size)) for name, size in sizes.items()],
        [pod(f"web-{name}", name, cpu=str(cores)) for name, cores in serve.items() if cores],
        job("other"),
        members("other", *(name for name, pods in train.items() for _ in range(pods)))[1:],
        jobs_with_volumes(1, low, 40),
    )
    (begins,) = [one for one in found.jobs if one.key.name == "t0"]
    (rule,) = begins.trainer.placement.rules
    assert rule.terms[0].fields[0].values == (max(sorted(sizes), key=fit),)


def test_nodes_are_chosen_for_so_many_volumes_for_namespaces_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_node, "VOLUMES_AT_ONCE", 4)
    objects = []
    for namespace, count in (("a", 5), ("b", 1), ("c", 2)):
        for number in range(count):
            held, uses = own_volume(f"{namespace}{number}", namespace)
            one = job(f"t{number}", 1, 40, {"volumes": uses})
            one["metadata"]["namespace"] = namespace
            one["metadata"]["uid"] = f"uid-{namespace}-{number}"
            objects += [*held, one]
    found = snapshot(nodes(2), objects).jobs
    assert [str(one.key) for one in found if one.trainer.placement.rules] == ["a/t0", "a/t1", "b/t0", "c/t0"]
