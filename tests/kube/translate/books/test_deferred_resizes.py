"""A serving pod whose node cannot grant what it requests now waits for that, and trainers of that node make way."""

from __future__ import annotations

from typing import Any

import pytest

from edl.explain.decision import explained_study
from edl.kube.translate.snapshot import Translator
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.model.pods import Pod
from edl.planner.policies.registry import policy_named
from tests.worlds import raw_objects as raw

MASTER = raw.node("m", status={"allocatable": {"cpu": "500m", "memory": "32Gi", "pods": "110"}})
"""For the master of the job."""
TRAINERS = {"min-instance": 1, "max-instance": 12, "entrypoint": "x", "resources": {"requests": {"cpu": "1"}}}


def pending(reason: str = "Deferred", status: str = "True") -> dict[str, Any]:
    at = "2026-01-05T10:00:00Z"
    return {"type": "PodResizePending", "status": status, "reason": reason, "lastTransitionTime": at}


def resized(name: str = "web", *, on: str = "n1", to: str = "3", has: str = "1", **more: Any) -> raw.Object:
    """A running pod of no job whose request was raised in place, and what its kubelet has granted."""
    granted = [{"name": "c", "resources": {"requests": {"cpu": has}}, "allocatedResources": {"cpu": has}}]
    status = {"phase": "Running", "conditions": [pending()], "containerStatuses": granted, **more.pop("status", {})}
    spec = {"nodeName": on, "containers": [raw.container(to)], **more.pop("spec", {})}
    return raw.pod(name, spec=spec, status=status, **more)


def full(nodes: int = 2) -> list[raw.Object]:
    """Nodes of 8 cpu, each with seven trainers of 1 cpu."""
    names = [f"n{i + 1}" for i in range(nodes)]
    trainers = [
        raw.trainer(i, spec={"nodeName": names[i % nodes], "containers": [raw.container("1")]})
        for i in range(7 * nodes)
    ]
    job = raw.job(spec={"trainer": {**TRAINERS, "max-instance": 7 * nodes}})
    return [MASTER, *map(raw.node, names), job, *trainers]


def waiting(objects: list[raw.Object]) -> list[Pod]:
    return list(raw.take(*objects).waiting_serving)


def planned(objects: list[raw.Object]) -> ScalePlan:
    return explained_study(raw.take(*objects), policy_named("maxmin"), Limits()).plan


def test_what_a_kubelet_defers_waits_on_that_node() -> None:
    snapshot = raw.take(raw.node("n1"), resized())
    (waits,) = snapshot.waiting_serving
    (runs,) = [pod for pod in snapshot.pods if pod.node]
    assert (waits.namespace, waits.name, waits.tried, waits.needs_capacity) == ("ads", "web", True, True)
    assert dict(waits.shape.request.amounts) == {"cpu": 2000}
    assert waits.shape.only_node == "n1"
    assert waits.created_s == 1767607200.0, "since the kubelet deferred it"
    assert (runs.shape.request["cpu"], runs.shape.request["pods"]) == (1000, 1)


SETTLED: dict[str, raw.Object] = {
    "granted": resized(has="3"),
    "not deferred any more": resized(status={"conditions": [pending(status="False")]}),
    "infeasible": resized(status={"conditions": [pending("Infeasible")]}),
    "lowered": resized(to="500m"),
    "of an older kubelet, which tells no resources": resized(status={"containerStatuses": [{"name": "c"}]}),
    "finished": resized(status={"phase": "Succeeded"}),
    "leaving": resized(metadata={"deletionTimestamp": "2026-01-05T10:00:00Z"}),
    "of low priority": resized(spec={"priority": -1}),
    "of a DaemonSet": resized(owner={"kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}),
}


@pytest.mark.parametrize("name", SETTLED)
def test_nothing_else_waits(name: str) -> None:
    assert waiting([raw.node("n1"), SETTLED[name]]) == []


@pytest.mark.parametrize("on", ["n1", "n2"])
def test_trainers_of_that_node_make_way(on: str) -> None:
    plan = planned([*full(), resized(on=on)])
    (decision,) = plan.decisions
    names = {f"ctr-trainer-{i}" for i in range(14) if f"n{i % 2 + 1}" == on}
    assert len(decision.victims) == 2
    assert set(decision.victims) <= names
    assert (plan.serving.waiting, plan.serving.placed, plan.serving.short) == (1, 1, 0)


def test_no_trainer_takes_what_it_waits_for() -> None:
    """Five trainers run there, so what the pod waits for is free: the kubelet will see it at its next try."""
    some = [raw.trainer(i, spec={"nodeName": "n1", "containers": [raw.container("1")]}) for i in range(5)]
    plan = planned([MASTER, raw.node("n1"), raw.job(spec={"trainer": TRAINERS}), *some, resized()])
    assert [(d.target, d.victims) for d in plan.decisions] == [(5, ())]


def test_a_cordoned_or_tainted_node_grants_resizes_as_any_other() -> None:
    node = raw.node("n1", spec={"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]})
    trainers = [raw.trainer(i, spec={"nodeName": "n1", "containers": [raw.container("1")]}) for i in range(7)]
    plan = planned([MASTER, node, raw.job(spec={"trainer": TRAINERS}), *trainers, resized()])
    assert [len(d.victims) for d in plan.decisions] == [2]


def test_the_pod_is_whole_again_once_its_kubelet_has_granted_it() -> None:
    translator, node, pod = Translator(), raw.node("n1"), resized()
    first, again = (raw.take(node, pod, translator=translator) for _ in range(2))
    assert len(first.pods) == 2
    assert again.pods == first.pods
    (whole,) = raw.take(node, resized(has="3"), translator=translator).pods
    assert whole.shape.request["cpu"] == 3000
    assert raw.take(node, translator=translator).pods == ()
