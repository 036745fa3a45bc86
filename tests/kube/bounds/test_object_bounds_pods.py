"""Pods and templates with more rules than any real pod has: they cost no decision anything, whatever their kind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edl.kube.translate.decoders import DAEMON_SETS, PODS, TRAINING_JOBS, Decoder, Quarantined
from edl.kube.translate.jobs import JobReader
from edl.kube.translate.objects import JobObject, PodObject
from edl.kube.workloads.registry import ADAPTERS
from edl.model.names import JobKey, WorkloadKind
from tests.worlds.rules.scenes import HOSTNAME, job

Object = dict[str, Any]
MANY = 2500
REQUIRED, PREFERRED = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))


def about(number: int) -> Object:
    return {"matchLabels": {"app": f"a{number}"}}


def between(kind: str, term: Object, count: int = 1) -> Object:
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": HOSTNAME, **term}] * count}}}


def of_nodes(*terms: Object) -> Object:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [*terms]}}}}


def expression(number: int, values: int = 1) -> Object:
    return {"key": f"k{number}", "operator": "In", "values": [f"v{n}" for n in range(values)]}


SPREAD = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}
SPECS: dict[str, tuple[Object, str]] = {
    "tolerations": ({"tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(MANY)]}, "tolerations"),
    "selector": ({"nodeSelector": {f"k{n}": "v" for n in range(MANY)}}, "labels of the node selector"),
    "affinity": (between("podAffinity", {"labelSelector": about(1)}, MANY), "terms of an affinity between pods"),
    "anti": (between("podAntiAffinity", {"labelSelector": about(1)}, MANY), "terms of an affinity between pods"),
    "labels": (
        between("podAntiAffinity", {"labelSelector": {"matchLabels": {f"k{n}": "v" for n in range(MANY)}}}),
        "labels and values of a label selector",
    ),
    "expressions": (
        between("podAffinity", {"labelSelector": {"matchExpressions": [expression(0, MANY)]}}),
        "labels and values of a label selector",
    ),
    "namespaces": (
        between("podAffinity", {"namespaces": [f"n{n}" for n in range(MANY)]}),
        "namespaces and label keys of a term",
    ),
    "keys": (
        between("podAffinity", {"matchLabelKeys": [f"n{n}" for n in range(MANY)]}),
        "namespaces and label keys of a term",
    ),
    "spread": (
        {"topologySpreadConstraints": [{**SPREAD, "labelSelector": about(n)} for n in range(MANY // 4)]},
        "topology spread constraints",
    ),
    "spread keys": (
        {"topologySpreadConstraints": [{**SPREAD, "matchLabelKeys": [f"n{n}" for n in range(MANY)]}]},
        "label keys of a spread constraint",
    ),
    "node terms": (
        of_nodes(*({"matchExpressions": [expression(n)]} for n in range(MANY))),
        "terms of the required node affinity",
    ),
    "node expressions": (
        of_nodes({"matchExpressions": [expression(n) for n in range(MANY)]}),
        "expressions of the node affinity",
    ),
    "node values": (
        of_nodes(*({"matchExpressions": [expression(n, MANY // 2)]} for n in range(4))),
        "values of the node affinity",
    ),
    "preferred": (
        {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {}}] * MANY}}},
        "terms of the preferred node affinity",
    ),
    "volumes": ({"volumes": [{"name": f"v{n}"} for n in range(MANY)]}, "volumes"),
    "claims": ({"resourceClaims": [{"name": f"c{n}"} for n in range(MANY)]}, "claims on devices"),
    "gates": ({"schedulingGates": [{"name": f"g{n}"} for n in range(MANY)]}, "scheduling gates"),
}
CASES = [pytest.param(*case, id=name) for name, case in SPECS.items()]


def pod(spec: Object, **metadata: Any) -> Object:
    containers = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    named = {"name": "p", "namespace": "n", "uid": "u", **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": {"containers": containers, **spec}}


def read(decoder: Decoder[Any], body: Object) -> list[Any]:
    """The object, from a watch and from a file."""
    return [decoder.from_bytes(json.dumps(body).encode()), decoder.from_dict(body)]


@pytest.mark.parametrize(("spec", "what"), CASES)
def test_a_waiting_pod_with_more_rules_than_edl_reads_is_left_out(spec: Object, what: str) -> None:
    for found in read(PODS, pod(spec)):
        assert isinstance(found, Quarantined)
        assert f"{what} exceed the " in str(found)
        assert str(found).startswith("Pod n/p is left out: ")


@pytest.mark.parametrize(("spec", "what"), [*CASES, pytest.param({}, "labels", id="labels of the pod")])
def test_a_bound_pod_with_more_rules_than_edl_reads_takes_its_node(spec: Object, what: str) -> None:
    labels = {f"k{n}": "v" for n in range(MANY)} if what == "labels" else {"app": "a"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    for found in read(PODS, pod({**spec, "nodeName": "n0"}, labels=labels, ownerReferences=[owner])):
        assert isinstance(found, PodObject)
        assert found.metadata is not None
        assert found.spec is not None
        assert (found.spec.node_name, found.spec.affinity, found.spec.volumes) == ("n0", None, None)
        assert found.spec.containers is not None
        assert found.spec.containers[0].resources is not None
        assert found.spec.containers[0].resources.requests == {"cpu": "2"}
        assert [one.uid for one in found.metadata.owner_references or ()] == ["j"]
        assert 0 < len(found.metadata.labels or {}) < MANY


@pytest.mark.parametrize(("spec", "what"), CASES)
def test_a_template_with_more_rules_than_edl_reads_is_left_out_whatever_makes_pods_of_it(
    spec: Object, what: str
) -> None:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **spec}}
    specs: dict[WorkloadKind, Object] = {
        WorkloadKind.BATCH_JOB: {"template": template},
        WorkloadKind.VOLCANO_JOB: {"tasks": [{"name": "t", "template": template}]},
        WorkloadKind.RAY_CLUSTER: {"workerGroupSpecs": [{"groupName": "g", "template": template}]},
        WorkloadKind.PYTORCH_JOB: {"pytorchReplicaSpecs": {"Worker": {"template": template}}},
    }
    decoders = [(ADAPTERS[kind].decoder, body) for kind, body in specs.items()]
    for decoder, body in [*decoders, (DAEMON_SETS, {"template": template})]:
        for found in read(decoder, {"metadata": {"name": "w", "namespace": "n", "uid": "u"}, "spec": body}):
            assert isinstance(found, Quarantined), decoder.kind
            assert f"{what} exceed the " in str(found)
            assert (found.namespace, found.name, found.uid) == ("n", "w", "u")


@pytest.mark.parametrize("name", ["affinity", "anti", "labels", "spread", "spread keys", "claims", "gates"])
def test_a_job_whose_template_has_more_rules_than_edl_reads_is_invalid(name: str) -> None:
    """The API server counts the other fields itself."""
    spec, what = SPECS[name]
    for source in read(TRAINING_JOBS, job("j", template=spec)):
        assert isinstance(source, JobObject)
        found = JobReader().read(source, JobKey("default", "j"), (), 0.0)
        assert "spec.trainer.template is not a valid pod template: " in found.problem
        assert f"{what} exceed the " in found.problem
