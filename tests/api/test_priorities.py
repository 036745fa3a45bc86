"""The PriorityClass of a pod: by role, index, and whether the pod requests cpu or memory."""

from __future__ import annotations

from typing import Any

import pytest

from edl.api.pods import PodTerms, pod_manifest
from edl.api.priorities import BASIC_PRIORITY_CLASSES, PRIORITY_CLASSES
from edl.api.v1 import parse_job
from edl.install.objects import priority_classes
from edl.model.names import Role
from tests.worlds.hostile.manifests import make_manifest

Object = dict[str, Any]
SIDECAR = {"name": "logs", "image": "logs", "resources": {"limits": {"memory": "64Mi"}}}


def class_of(
    index: int, *, role: Role = Role.TRAINER, known: tuple[str, ...] = PRIORITY_CLASSES, **trainer: Any
) -> str:
    """The class of a pod of a job whose minimum is two trainers."""
    job = make_manifest()
    job["spec"]["trainer"] |= {"min-instance": 2, "max-instance": 4, **trainer}
    pod = pod_manifest(parse_job(job), role, index, default_master_image="edl", priority_classes=known)
    return str(pod["spec"].get("priorityClassName", ""))


@pytest.mark.parametrize(("index", "expected"), [(1, "edl-best-effort"), (2, "edl-best-effort-surplus")])
def test_trainers_without_requests_have_classes_of_their_own(index: int, expected: str) -> None:
    assert class_of(index, resources={}) == expected


def test_a_cluster_without_these_classes_gives_them_those_of_other_trainers() -> None:
    found = [class_of(index, known=BASIC_PRIORITY_CLASSES, resources={}) for index in (1, 2)]
    assert found == ["edl-training", "edl-surplus"], "without a class they had the priority of serving"


def test_a_container_beside_the_trainer_that_has_a_limit_counts() -> None:
    template = {"spec": {"containers": [SIDECAR]}}
    assert [class_of(index, resources={}, template=template) for index in (1, 2)] == ["edl-training", "edl-surplus"]


def test_trainers_that_get_requests_from_a_limit_range_have_the_classes_of_others() -> None:
    job = make_manifest()
    job["spec"]["trainer"] |= {"min-instance": 1, "max-instance": 4, "resources": {}}
    found = [
        pod_manifest(
            parse_job(job),
            Role.TRAINER,
            index,
            default_master_image="edl",
            priority_classes=PRIORITY_CLASSES,
            terms=PodTerms(is_best_effort=False),
        )["spec"]["priorityClassName"]
        for index in (0, 1)
    ]
    assert found == ["edl-training", "edl-surplus"]


def test_what_a_job_has_beside_its_trainers_is_core() -> None:
    assert class_of(0, role=Role.MASTER, resources={}) == "edl-core"


@pytest.mark.parametrize("missing", BASIC_PRIORITY_CLASSES)
def test_whatever_class_is_missing_serving_preempts_no_master_before_a_trainer(missing: str) -> None:
    values = {body["metadata"]["name"]: body["value"] for body in priority_classes()}
    known = tuple(name for name in PRIORITY_CLASSES if name != missing)
    for resources in ({"requests": {"cpu": "1"}}, {}):
        surplus, least = (values.get(class_of(index, known=known, resources=resources), 0) for index in (3, 1))
        master = values.get(class_of(0, role=Role.MASTER, known=known), 0)
        assert surplus <= least <= master
        assert surplus < 0, "serving preempts the surplus"


def test_serving_preempts_in_the_order_of_the_plan() -> None:
    values = {body["metadata"]["name"]: body["value"] for body in priority_classes()}
    order = ["edl-best-effort-surplus", "edl-surplus", "edl-best-effort", "edl-training", "edl-core"]
    assert sorted(values, key=lambda name: values[name]) == order
    assert values["edl-core"] < 0
    assert values["edl-best-effort"] >= -10, "below -10 Cluster Autoscaler adds no node for a pod"


def test_a_trainer_of_a_high_number_may_belong_to_the_minimum() -> None:
    job = make_manifest()
    job["spec"]["trainer"] |= {"min-instance": 1, "max-instance": 4}
    given: Any = {
        "default_master_image": "edl",
        "priority_classes": PRIORITY_CLASSES,
        "terms": PodTerms(is_base=True),
    }
    assert pod_manifest(parse_job(job), Role.TRAINER, 3, **given)["spec"]["priorityClassName"] == "edl-training"
    job["spec"]["trainer"]["resources"] = {}
    assert pod_manifest(parse_job(job), Role.TRAINER, 3, **given)["spec"]["priorityClassName"] == "edl-best-effort"
