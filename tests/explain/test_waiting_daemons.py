"""Pods of DaemonSets that find no capacity on their node are named, with what they lack."""

from __future__ import annotations

from edl.explain.blocked_serving import waiting_lines
from tests.worlds.rules.scenes import Object, job, members, nodes, plan, pod, snapshot, victims


def agent(number: int, cpu: str = "2", port: int = 0, *, has_node: bool = False) -> Object:
    """A pod of a DaemonSet, for node n0, n1..."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [f"n{number}"]}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    found = pod(f"agent-{number}", f"n{number}" if has_node else "", cpu=cpu, affinity=affinity)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "uid-agent", "controller": True}
    found["metadata"]["ownerReferences"] = [owner]
    if port:
        found["spec"]["containers"][0]["ports"] = [{"hostPort": port, "containerPort": port}]
    return found


def lines(*scene: Object | list[Object]) -> list[str]:
    return list(waiting_lines(snapshot(*scene)))


def line(number: int, lacks: str) -> str:
    return (
        f"pod default/agent-{number} of a DaemonSet waits for node n{number}, which lacks {lacks}: edl ends no"
        " trainer for it, and keeps free for it what others leave; end pods there, or give it a higher priority"
    )


def test_a_node_full_of_others_is_named() -> None:
    assert lines(nodes(2), pod("db-0", "n0", cpu="8"), agent(0), agent(1)) == [line(0, "2 cores")]


def test_a_node_full_of_trainers_is_named_and_none_ends() -> None:
    scene = (nodes(1), job("t"), members("t", *["n0"] * 7), agent(0))
    assert victims(plan(*scene)) == []
    assert lines(*scene) == [line(0, "2 cores")]


def test_a_node_that_is_too_small_and_a_port_in_use_are_named() -> None:
    web = pod("web-0", "n1", cpu="1")
    web["spec"]["containers"][0]["ports"] = [{"hostPort": 80, "containerPort": 80}]
    found = lines(nodes(2), web, agent(0, "9"), agent(1, port=80))
    assert found[0] == line(0, "9 cores")
    assert "node n1, which lacks" in found[1]


def test_no_line_is_for_pods_that_fit_and_few_are_for_many() -> None:
    assert lines(nodes(2), agent(0), agent(1, has_node=True)) == []
    full = [pod(f"db-{number}", f"n{number}", cpu="8") for number in range(5)]
    *_, last = found = lines(nodes(5), full, [agent(number) for number in range(5)])
    assert (len(found), last) == (4, "and 2 more pods of DaemonSets on whose nodes capacity is missing")
