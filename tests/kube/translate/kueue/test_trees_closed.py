"""Queues that admit nothing from a namespace: nobody keeps anything for what waits there."""

from __future__ import annotations

from typing import Any

import pytest

from edl.controller.planning import plan_snapshot
from edl.kube.translate.kueue.growth import ADMITTED_WITHIN_S
from edl.model.limits import Limits
from tests.kube.translate.kueue.test_kueue_reader import NODES, key, refusal, running, sizes
from tests.kube.translate.kueue.test_owned import pods as trainers
from tests.kube.translate.kueue.test_owned import queued, seen
from tests.worlds.kueue.objects import (
    cluster_queue,
    flavor,
    kueue_job,
    local_queue,
    own_workload,
    workload,
)
from tests.worlds.raw_objects import Object, job, node, take

ADS: Object = {"kind": "Namespace", "metadata": {"name": "ads", "labels": {"team": "ads"}}}
NAME = "kubernetes.io/metadata.name"
NOBODY: Object = {"matchLabels": {"team": "research"}}
EXCLUDED: Object = {"namespaceSelector": NOBODY}
HELD: Object = {"stopPolicy": "Hold"}
WORDS = (
    "ClusterQueue green admits no Workloads of namespace ads: its spec.namespaceSelector does not choose it ({}"
    " chooses all); correct the selector or the labels of the namespace, or name a LocalQueue of another ClusterQueue"
)


def chosen(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": values} if values else {})}]}


def beside(**green: Any) -> tuple[Object, ...]:
    """Two ClusterQueues that lend to each other; the job of blue has borrowed all that is green's."""
    queues = cluster_queue("blue", 10, cohort="all"), cluster_queue("green", 10, cohort="all", **green)
    return (*NODES, flavor(), local_queue("blue"), local_queue("green"), *queues, *running(20))


@pytest.mark.parametrize(
    ("selector", "namespaces", "is_kept"),
    [
        ({}, (ADS,), True),
        ({}, (), True),
        (None, (ADS,), False),
        (None, (), False),
        ({"matchLabels": {"team": "ads"}}, (ADS,), True),
        (NOBODY, (ADS,), False),
        (NOBODY, (), True),
        (chosen("team", "In", "ads", "research"), (ADS,), True),
        (chosen("team", "Exists"), (ADS,), True),
        (chosen("team", "DoesNotExist"), (ADS,), False),
        (chosen("other", "NotIn", "x"), (ADS,), True),
        (chosen(NAME, "In", "research"), (), False),
        (chosen(NAME, "In", "ads", *(f"team-{i}" for i in range(1000))), (), True),
        (chosen(NAME, "NotIn", "ads"), (ADS,), False),
    ],
)
def test_quota_is_kept_for_what_waits_if_the_selector_chooses_its_namespace(
    selector: Object | None, namespaces: tuple[Object, ...], *, is_kept: bool
) -> None:
    """Without a selector it chooses none; without labels that edl may not read it counts as if it did."""
    objects = beside(namespaceSelector=selector)
    found = sizes(take(*objects, *namespaces, workload("owner", 7, queue="green")))
    assert found == {"train": 13 if is_kept else 20}


def test_a_namespace_that_is_chosen_is_not_kept_out_with_another_one() -> None:
    theirs = local_queue("green", namespace="research")
    waiting = workload("owner", 7, queue="green")
    waiting["metadata"]["namespace"] = "research"
    research: Object = {"kind": "Namespace", "metadata": {"name": "research", "labels": {"team": "research"}}}
    assert sizes(take(*beside(**EXCLUDED), ADS, research, theirs, waiting)) == {"train": 13}


@pytest.mark.parametrize("closed", [EXCLUDED, HELD])
def test_a_job_that_waits_in_a_queue_that_admits_nothing_keeps_no_quota(closed: Object) -> None:
    """All that it may have would be kept for it otherwise, and its minimum once its Workload has waited for long."""
    owner = kueue_job("owner", "green", size=7, spec={"suspend": True})
    waits = workload("w-owner", 7, queue="green", job="owner", at=998)
    for now_s, kept in ((998.0, 10), (998.0 + ADMITTED_WITHIN_S, 2)):
        assert sizes(take(*beside(), ADS, owner, waits, now_s=now_s))["train"] == 20 - kept
        assert sizes(take(*beside(**closed), ADS, owner, waits, now_s=now_s)) == {"train": 20, "owner": 2}


def test_it_keeps_no_node_from_others() -> None:
    small = node("n1", status={"allocatable": {"cpu": "10", "memory": "64Gi", "pods": "110"}})
    trainer = {"min-instance": 1, "max-instance": 10, "entrypoint": "x", "resources": {"requests": {"cpu": "1"}}}
    waits = kueue_job("owner", "green", size=4, spec={"suspend": True})
    for green, expected in (({}, 4), (EXCLUDED, 9)):
        queue = cluster_queue("green", 10, **green)
        snapshot = take(small, ADS, flavor(), local_queue("green"), queue, waits, job(spec={"trainer": trainer}))
        decisions = plan_snapshot(snapshot, "maxmin", Limits()).decisions
        assert [one.target for one in decisions if one.job != key("owner")] == [expected]


def test_a_job_that_runs_keeps_its_size_and_grows_no_more() -> None:
    blue = cluster_queue("green", 10, **EXCLUDED)
    objects = (*NODES, ADS, flavor(), local_queue("green"), blue, *running(3, queue="green"))
    assert sizes(take(*objects)) == {"train": 3}
    assert refusal(*objects) == WORDS


def test_a_workload_that_waits_there_stops_nobody_from_growing() -> None:
    waiting = workload("large", 12, queue="green")
    for green, expected in (({}, "Workload ads/large waits"), (EXCLUDED, "")):
        queues = cluster_queue("blue", 10, cohort="all"), cluster_queue("green", 10, cohort="all", **green)
        objects = (*NODES, ADS, flavor(), local_queue("blue"), local_queue("green"), *queues, *running(12), waiting)
        assert refusal(*objects).startswith(expected)
        assert bool(refusal(*objects)) == bool(expected)


def test_the_line_of_a_job_names_the_queue_the_namespace_and_the_remedy() -> None:
    owner = kueue_job("owner", "green", size=7, spec={"suspend": True})
    snapshot = take(*beside(**EXCLUDED), ADS, owner)
    found = plan_snapshot(snapshot, "maxmin", Limits()).decision(key("owner"))
    assert found is not None
    assert (found.reason.value, found.message) == ("QuotaReached", WORDS)


def test_a_training_job_says_it_too_while_it_waits_and_while_it_runs() -> None:
    blue = cluster_queue("blue", "10250m", **EXCLUDED)
    objects = (*NODES, ADS, flavor(), local_queue("blue"), blue, queued())
    waits = seen(*objects, own_workload(0, 2, state="waiting", message="no"))
    runs = seen(*objects, own_workload(0, 2), own_workload(1, 1), *trainers(3))
    assert waits.is_barred
    assert [one.refusal and one.refusal.message for one in (waits, runs)] == [WORDS.replace("green", "blue")] * 2
    assert not runs.is_barred
    assert runs.refusal
    assert runs.refusal.allowed == 3
