"""A pod that edl pinned to its planned node is read as pinned, with the shape of its job's other trainers."""

from __future__ import annotations

from typing import Any

import pytest

from edl.api.pods import PodPlace, pod_manifest
from edl.api.v1 import TrainingJob
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.pods import Pod
from tests.worlds.raw_objects import Object, job, take

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PIN = {"key": "metadata.name", "operator": "In", "values": ["n7"]}
ANNOTATIONS = {"paddlepaddle.org/planned-node": "n7", "paddlepaddle.org/pinned": "true"}
ZONES = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]
BY_NAME = [{"matchFields": [PIN]}, {"matchFields": [{**PIN, "values": ["n8"]}]}]


def read(terms: list[Object], **options: Any) -> tuple[Job, Pod]:
    """Read a job whose trainer template requires one of the terms, and its first trainer as edl creates it."""
    source = job()
    if terms:
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
        source["spec"]["trainer"]["template"] = {"spec": {"affinity": affinity}}
    model = TrainingJob.model_validate(source)
    made = pod_manifest(model, Role.TRAINER, 0, default_master_image="edl", priority_classes=(), **options)
    made["metadata"]["uid"] = "uid-pod"
    (found,) = take(source, made).jobs
    (pod,) = found.pods
    return found, pod


@pytest.mark.parametrize(
    "terms", [[], ZONES, BY_NAME, BY_NAME[:1]], ids=["anywhere", "two zones", "two nodes", "that node"]
)
def test_the_pin_is_not_part_of_the_shape(terms: list[Object]) -> None:
    for pinned in (True, False):
        found, pod = read(terms, place=PodPlace("n7", is_required=pinned))
        assert pod.shape == found.trainer
        assert (pod.planned, pod.pinned) == ("n7", pinned)


def test_a_pod_without_a_planned_node_is_not_pinned() -> None:
    found, pod = read([])
    assert (pod.shape, pod.planned, pod.pinned) == (found.trainer, "", False)


def test_a_foreign_pod_keeps_its_affinity_despite_the_annotation() -> None:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [PIN]}]}}}
    metadata = {"name": "web", "namespace": "ads", "annotations": ANNOTATIONS}
    (pod,) = take({"kind": "Pod", "metadata": metadata, "spec": {"affinity": affinity}}).pods
    assert not pod.pinned
    assert pod.shape.placement.required[0].fields[0].values == ("n7",)
