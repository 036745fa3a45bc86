"""What keeps serving pods pending that would wait without any job, too."""

from __future__ import annotations

from dataclasses import replace

from edl.explain.blocked_serving import oversized_lines
from edl.model.cluster import ClusterSnapshot
from edl.model.pods import Pod
from edl.model.resources import Placement, Resources
from tests.worlds.builders import make_job, make_node, make_nodes, make_serving, make_shape, make_snapshot

PORT = Resources.of({"hostport/TCP/80": 1})


def with_port(pod: Pod) -> Pod:
    return replace(pod, shape=replace(pod.shape, request=pod.shape.request + PORT))


def snapshot(*pods: Pod, nodes: int = 2, cpu: float = 8) -> ClusterSnapshot:
    training = make_job("a", trainers=6, min_trainers=1, max_trainers=20, on=("n000",))
    return make_snapshot(make_nodes(nodes, cpu=cpu), (training,), pods=pods)


def test_a_pod_that_is_larger_than_each_node_is_named_with_what_the_nodes_lack() -> None:
    assert list(oversized_lines(snapshot(make_serving("huge", cpu=64)))) == [
        "serving pod serving/huge would wait without any job, too: all 2 nodes that accept it lack 64 cores"
    ]


def test_a_pod_is_compared_with_the_one_node_that_accepts_it() -> None:
    gpu = make_node("gpu", cpu=4, labels={"pool": "gpu"})
    picky = replace(make_serving("picky"), shape=make_shape(6, 64, Placement(node_selector=(("pool", "gpu"),))))
    world = make_snapshot((*make_nodes(2), gpu), pods=(picky,))
    assert list(oversized_lines(world)) == [
        "serving pod serving/picky would wait without any job, too: the one node that accepts it lacks 6 cores and"
        " 64 GiB of memory"
    ]
    nowhere = replace(picky, shape=make_shape(1, 1, Placement(node_selector=(("pool", "none"),))))
    assert list(oversized_lines(make_snapshot((gpu,), pods=(nowhere,)))) == [
        "serving pod serving/picky would wait without any job, too: no node accepts it (of 1 node: 1 excluded by its"
        " node selector or affinity)"
    ]


def test_host_ports_of_other_serving_pods_are_named_and_equal_pods_counted() -> None:
    runs = [with_port(make_serving(f"old-{i}", cpu=1, node=f"n00{i}")) for i in range(2)]
    waits = [with_port(make_serving(f"web-{i}", cpu=1)) for i in range(3)]
    assert list(oversized_lines(snapshot(*runs, *waits))) == [
        "serving pod serving/web-0 and 2 pods like it would wait without any job, too: all 2 nodes that accept it"
        " lack host port TCP/80"
    ]
    big = with_port(make_serving("big", cpu=8))
    assert list(oversized_lines(snapshot(runs[0], make_serving("full", cpu=4, node="n001"), big))) == [
        "serving pod serving/big would wait without any job, too: of the 2 nodes that accept it, 2 lack 8 cores and"
        " 1 lacks host port TCP/80"
    ]


def test_of_like_pods_those_that_do_not_fit_are_counted() -> None:
    both = [make_serving(f"big-{i}", cpu=5) for i in range(2)]
    assert list(oversized_lines(snapshot(*both, nodes=1))) == [
        "1 of the 2 serving pods like serving/big-0 would wait without any job, too: the nodes that accept them have"
        " capacity for 1 (cpu)"
    ]
    assert list(oversized_lines(snapshot(*both))) == []


def test_host_ports_that_the_same_pods_request_are_named_by_one_of_them() -> None:
    both = Resources.of({"hostport/TCP/80": 1, "hostport/TCP/443": 1})
    waits = [make_serving(f"web-{i}", cpu=1) for i in range(3)]
    waits = [replace(pod, shape=replace(pod.shape, request=pod.shape.request + both)) for pod in waits]
    assert list(oversized_lines(snapshot(*waits))) == [
        "1 of the 3 serving pods like serving/web-0 would wait without any job, too: the nodes that accept them have"
        " capacity for 2 (host port TCP/443)"
    ]


def test_nor_do_pods_that_fit_beside_their_like_alone() -> None:
    other = make_serving("other", cpu=6)
    both = [make_serving(f"big-{i}", cpu=5) for i in range(2)]
    lines = list(oversized_lines(snapshot(*both, other)))
    assert len(lines) == 1
    assert lines[0].endswith("wait without any job, too: the serving pods that wait do not all fit on the nodes")


def test_nothing_is_said_of_pods_that_wait_for_trainers_or_that_a_rule_keeps() -> None:
    fits = make_serving("web", cpu=8)
    assert list(oversized_lines(snapshot(fits))) == []
    assert list(oversized_lines(snapshot())) == []
    assert list(oversized_lines(snapshot(replace(make_serving("huge", cpu=64), blocked="a rule")))) == []


def test_three_shapes_are_named_and_the_others_counted() -> None:
    pods = [make_serving(f"huge-{i}", cpu=64 + i) for i in range(5)]
    lines = list(oversized_lines(snapshot(*pods)))
    assert (len(lines), lines[3]) == (4, "and serving pods of 2 more shapes would wait without any job")
