"""Which webhooks and policies of saved files may meet new pods."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from edl.kube.translate.admission.objects import RuleObject

Object = dict[str, Any]

PODS = RuleObject([""], ["pods"], ["CREATE"])
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
API = "admissionregistration.k8s.io/v1"


def job(name: str = "ctr", namespace: str = "ads", **metadata: Any) -> Object:
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "trainer": {
                "entrypoint": "train",
                "min-instance": 1,
                "max-instance": 1,
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
                "template": {"metadata": metadata},
            }
        },
    }


def namespace(name: str, **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def hook(name: str = "inject.example.com", **match: Any) -> Object:
    return {"name": name, "rules": [RULE], **match}


def webhooks(*hooks: Object, name: str = "inject") -> Object:
    return {
        "apiVersion": API,
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": list(hooks),
    }


def policy(name: str = "sizes", *, conditions: list[Object] | None = None, **constraints: Any) -> Object:
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [RULE], **constraints}, "matchConditions": conditions or []},
    }


def binding(name: str = "sizes", *actions: str, **match: Any) -> Object:
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": f"{name}-{len(match)}"},
        "spec": {"policyName": name, "validationActions": list(actions or ("Deny",)), "matchResources": match},
    }


def warnings(*objects: Object) -> list[str]:
    return list(read_snapshot_texts([("now.yaml", yaml.safe_dump_all(objects))]).not_asked())


def condition(expression: str) -> Object:
    return {"matchConditions": [{"name": "only", "expression": expression}]}


@pytest.mark.parametrize(
    "rule",
    [
        PODS,
        RuleObject(["*"], ["*"], ["*"]),
        RuleObject(["apps", ""], ["deployments", "pods"], ["UPDATE", "CREATE"]),
        RuleObject([""], ["*/*"], ["CREATE"]),
        RuleObject([""], ["pods/*"], ["CREATE"]),
        RuleObject([""], ["pods"], ["CREATE"], ["v1"], "Namespaced"),
        RuleObject([""], ["pods"], ["CREATE"], ["*"], "*"),
    ],
)
def test_a_rule_for_the_creation_of_pods_meets_them(rule: RuleObject) -> None:
    assert rule.meets_new_pods


@pytest.mark.parametrize(
    "rule",
    [
        RuleObject(),
        RuleObject(["apps"], ["pods"], ["CREATE"]),
        RuleObject([""], ["pods/exec"], ["CREATE"]),
        RuleObject([""], ["pods"], ["DELETE"]),
        RuleObject([""], ["pods"], ["CREATE"], ["v2"]),
        RuleObject([""], ["*"], ["CREATE"], ["v1"], "Cluster"),
    ],
)
def test_any_other_rule_does_not(rule: RuleObject) -> None:
    assert not rule.meets_new_pods


def test_a_configuration_without_webhooks_is_no_reason_to_warn() -> None:
    assert warnings(job(), webhooks()) == []


def test_nobody_is_named_if_the_files_hold_no_pod_to_come() -> None:
    exists = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "uid": "1"},
        "spec": {"containers": []},
    }
    assert warnings(exists, webhooks(hook())) == []


def test_a_pod_written_by_hand_is_one_to_come() -> None:
    written = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}, "spec": {}}
    (line,) = warnings(written, webhooks(hook()))
    assert "may change pod shop/web, and" in line


@pytest.mark.parametrize(
    ("match", "named"),
    [
        ({}, True),
        ({"namespaceSelector": {}, "objectSelector": {}}, True),
        ({"namespaceSelector": {"matchLabels": {"inject": "yes"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"inject": "no"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}, False),
        ({"objectSelector": {"matchLabels": {"app": "model"}}}, True),
        ({"objectSelector": {"matchLabels": {"app": "web"}}}, False),
        ({"objectSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, False),
        (condition("request.namespace == 'ads'"), True),
        (condition("request.namespace != 'ads'"), False),
        (condition("!('app' in object.metadata.labels)"), False),
        (condition("object.metadata.annotations['sidecar'] == 'false'"), False),
        (condition("request.kind.kind == 'Pod' && request.operation == 'CREATE'"), True),
        (condition("object.metadata.namespace == 'ads'"), True),
    ],
)
def test_a_webhook_is_named_only_if_it_may_see_the_pods_of_a_job(match: Object, *, named: bool) -> None:
    mine = job(labels={"app": "model"}, annotations={"sidecar": "true"})
    found = warnings(mine, namespace("ads", inject="yes"), webhooks(hook(**match)))
    assert bool(found) is named
    assert not any("depends on" in line for line in found)


def test_a_plain_namespace_is_known_by_its_name_without_its_object() -> None:
    others = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["ads"]}]}
    assert warnings(job(), webhooks(hook(namespaceSelector=others))) == []
    (line,) = warnings(job(), webhooks(hook(namespaceSelector={"matchLabels": {"inject": "yes"}})))
    assert "; whether it does depends on the labels of namespace ads, which the files do not have;" in line


@pytest.mark.parametrize(
    "expression",
    [
        "object.spec.serviceAccountName != 'default'",  # the API server sets it
        "request.userInfo.username != 'system:admin'",
        "authorizer.group('').resource('pods').check('get').allowed()",
        "object.metadata.labels['nobody'] == 'x'",  # no such key: that is an error
        "object.metadata.labels.exists(one, one == 'app')",
        "this is no expression",
        "",
    ],
)
def test_a_condition_that_cannot_be_evaluated_counts_as_true_and_is_named(expression: str) -> None:
    (line,) = warnings(job(labels={"app": "model"}), webhooks(hook(**condition(expression))))
    assert "; whether it does depends on matchCondition only, which edl cannot evaluate;" in line


def test_only_the_webhooks_and_the_jobs_that_meet_are_named() -> None:
    (line,) = warnings(
        job("a"),
        job("b", "other"),
        *(job(name) for name in "cdef"),
        webhooks(
            hook("first.example.com", namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "ads"}}),
            hook("second.example.com", rules=[{**RULE, "resources": ["services"]}]),
        ),
    )
    assert line.startswith(
        "MutatingWebhookConfiguration inject (webhook first.example.com) may change the pods of jobs ads/a, ads/c,"
        " ads/d and 2 more, and a plan from files cannot ask it: pods of jobs count as their specs have them;"
    )


def test_a_policy_sees_what_its_constraints_and_one_of_its_bindings_select() -> None:
    assert warnings(job(), policy(), binding())
    assert not warnings(job(), policy(), binding("sizes", "Audit", "Warn"))
    assert not warnings(job(), policy(excludeResourceRules=[RULE]), binding())
    assert warnings(job(), policy(excludeResourceRules=[{**RULE, "resourceNames": ["x"]}]), binding())
    assert not warnings(job(), policy(objectSelector={"matchLabels": {"app": "x"}}), binding())
    elsewhere = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ads"}}, "objectSelector": {}}
    assert not warnings(job(), policy(), binding("sizes", **elsewhere))
    assert warnings(job(), policy(), binding("sizes", **elsewhere), binding("sizes", **here))
    never = [{"name": "never", "expression": "request.namespace == 'shop'"}]
    assert not warnings(job(), policy(conditions=never), binding())


def test_a_policy_without_a_binding_in_the_files_may_have_one() -> None:
    (line,) = warnings(job(), policy(), binding("another"))
    assert "ValidatingAdmissionPolicy sizes may refuse the pods of job ads/ctr" in line
    assert "; whether it does depends on its binding, which the files do not have;" in line
