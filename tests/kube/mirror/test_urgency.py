"""Which changes bring a plan at once, and which wait."""

from __future__ import annotations

from typing import Any

import pytest

from edl.kube.mirror.urgency import is_urgent
from edl.kube.translate.decoders import DAEMON_SETS, NODES, PODS, TRAINING_JOBS, Quarantined
from edl.kube.translate.kueue.objects import WORKLOADS
from edl.kube.translate.objects import HasMetadata

OURS = {"labels": {"paddlepaddle.org/job": "a"}}
MARKED = {**OURS, "annotations": {"paddlepaddle.org/intent": "ServingNeedsRoom"}}
GOING: dict[str, Any] = {"deletionTimestamp": "2026-01-05T10:00:00Z"}
PENDING: dict[str, Any] = {"phase": "Pending"}
SHORTER: dict[str, Any] = {**OURS, **GOING, "deletionGracePeriodSeconds": 29}
WHOLE = {"nodeName": "n1", "terminationGracePeriodSeconds": 30}
RUNNING: dict[str, Any] = {"phase": "Running"}
BOUND = {"nodeName": "n1"}
NEVER = {"preemptionPolicy": "Never"}
GROWS = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]
TRIED = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
TRIED_AGAIN = [{**TRIED[0], "message": "0/3 nodes are available"}]


def pod(metadata: dict[str, Any], spec: dict[str, Any] | None = None, **status: Any) -> HasMetadata:
    found = PODS.from_dict({"metadata": {"name": "p", "uid": "u", **metadata}, "spec": spec or {}, "status": status})
    assert not isinstance(found, Quarantined)
    return found


def job(**metadata: Any) -> HasMetadata:
    found = TRAINING_JOBS.from_dict({"metadata": {"name": "a", "uid": "u", "generation": 1, **metadata}, "spec": {}})
    assert not isinstance(found, Quarantined)
    return found


def node(**metadata: Any) -> HasMetadata:
    found = NODES.from_dict({"metadata": {"name": "n1", "uid": "u", **metadata}})
    assert not isinstance(found, Quarantined)
    return found


URGENT: dict[str, tuple[HasMetadata | None, HasMetadata | None]] = {
    "a job comes": (None, job()),
    "a job is edited": (job(), job(generation=2)),
    "a job is being deleted": (job(), job(**GOING)),
    "a job is gone": (job(), None),
    "another job has the name": (job(), job(uid="other")),
    "a node comes": (None, node()),
    "a node changes": (node(), node(labels={"zone": "b"})),
    "a node is gone": (node(), None),
    "a serving pod waits": (None, pod({}, **PENDING)),
    "a serving pod comes that must not preempt": (None, pod({}, NEVER, **PENDING)),
    "a serving pod that must not preempt is bound": (pod({}, NEVER, **PENDING), pod({}, {**NEVER, **BOUND})),
    "a waiting serving pod is bound": (pod({}, **PENDING), pod({}, BOUND, **PENDING)),
    "a waiting serving pod is nominated": (pod({}, **PENDING), pod({}, nominatedNodeName="n1", **PENDING)),
    "kube-scheduler has tried a serving pod": (pod({}, **PENDING), pod({}, **PENDING, conditions=TRIED)),
    "a waiting serving pod is deleted": (pod({}, **PENDING), None),
    "a gated serving pod may start": (pod({}, {"schedulingGates": [{"name": "g"}]}), pod({})),
    "a node cannot grant a serving pod what it requests now": (
        pod({}, BOUND, **RUNNING),
        pod({}, BOUND, **RUNNING, conditions=GROWS),
    ),
    "a node has granted it": (pod({}, BOUND, **RUNNING, conditions=GROWS), pod({}, BOUND, **RUNNING)),
    "a trainer fails": (pod(OURS, BOUND, **RUNNING), pod(OURS, BOUND, phase="Failed")),
    "a trainer is preempted": (pod(OURS, BOUND, **RUNNING), pod({**OURS, **GOING}, BOUND, **RUNNING)),
    "somebody else deletes a trainer": (
        pod(OURS, WHOLE, **RUNNING),
        pod({**SHORTER, "deletionGracePeriodSeconds": 30}, WHOLE, **RUNNING),
    ),
    "a trainer vanishes": (pod(OURS, BOUND, **RUNNING), None),
}

ORDINARY: dict[str, tuple[HasMetadata | None, HasMetadata | None]] = {
    "the status of a job": (job(), job(resourceVersion="7")),
    "a new trainer": (None, pod(OURS, **PENDING)),
    "a trainer is bound": (pod(OURS, **PENDING), pod(OURS, BOUND, **PENDING)),
    "a node can never grant a serving pod what it requests": (
        pod({}, BOUND, **RUNNING),
        pod({}, BOUND, **RUNNING, conditions=[{**GROWS[0], "reason": "Infeasible"}]),
    ),
    "a node cannot grant a trainer what it requests now": (
        pod(OURS, BOUND, **RUNNING),
        pod(OURS, BOUND, **RUNNING, conditions=GROWS),
    ),
    "a trainer runs": (pod(OURS, BOUND, **PENDING), pod(OURS, BOUND, **RUNNING)),
    "a trainer that edl deletes": (pod(MARKED, BOUND, **RUNNING), pod({**MARKED, **GOING}, BOUND, **RUNNING)),
    "a trainer that edl deleted": (pod({**MARKED, **GOING}, BOUND, **RUNNING), None),
    "a trainer that edl deletes for serving": (pod(OURS, WHOLE, **RUNNING), pod(SHORTER, WHOLE, **RUNNING)),
    "a trainer that edl deleted for serving": (pod(SHORTER, WHOLE, **RUNNING), None),
    "kube-scheduler tries a serving pod again": (
        pod({}, **PENDING, conditions=TRIED),
        pod({}, **PENDING, conditions=TRIED_AGAIN),
    ),
    "a running serving pod": (pod({}, BOUND, **PENDING), pod({}, BOUND, **RUNNING)),
    "a bound serving pod is gone": (pod({}, BOUND, **RUNNING), None),
    "a pod of low priority": (None, pod({}, {"priority": -5}, **PENDING)),
}


@pytest.mark.parametrize("name", URGENT)
def test_what_a_person_or_a_serving_pod_waits_for_is_urgent(name: str) -> None:
    assert is_urgent(*URGENT[name])


@pytest.mark.parametrize("name", ORDINARY)
def test_what_a_growth_itself_causes_is_not_urgent(name: str) -> None:
    assert not is_urgent(*ORDINARY[name])


def test_a_daemon_set_can_wait() -> None:
    found = DAEMON_SETS.from_dict({"metadata": {"name": "d"}})
    assert not isinstance(found, Quarantined)
    assert not is_urgent(None, found)


def of_kueue(*true: str, slice_of: str = "") -> HasMetadata:
    conditions = [{"type": name, "status": "True"} for name in true]
    annotations = {"kueue.x-k8s.io/workload-slice-replacement-for": slice_of} if slice_of else {}
    body = {"metadata": {"name": "w", "uid": "u", "annotations": annotations}, "status": {"conditions": conditions}}
    found = WORKLOADS.from_dict(body)
    assert not isinstance(found, Quarantined)
    return found


@pytest.mark.parametrize(
    ("before", "after", "urgent"),
    [
        (None, of_kueue(), True),
        (of_kueue(), of_kueue("QuotaReserved"), True),
        (of_kueue("QuotaReserved"), of_kueue("QuotaReserved", "Admitted"), False),
        (of_kueue("QuotaReserved"), of_kueue("QuotaReserved", "Finished"), True),
        (of_kueue("Finished"), None, False),
        (None, of_kueue(slice_of="ads/w"), False),
    ],
)
def test_who_waits_for_quota_waits_for_a_plan(
    before: HasMetadata | None, after: HasMetadata | None, urgent: bool
) -> None:
    assert is_urgent(before, after) is urgent
