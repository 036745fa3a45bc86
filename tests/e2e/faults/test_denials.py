"""If a rule of the cluster refuses a job's pods, only that job is Degraded, and only while the rule exists.

Four jobs are refused at the same time, each in a namespace with another rule, beside a fifth that nobody refuses.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from edl.install.manifests import controller_manifests
from tests.e2e.faults.faults import Asked
from tests.e2e.faults.stage import GROWN, STEADY, Stage
from tests.e2e.faults.webhook import WORDS, Webhook
from tests.e2e.worlds.controller_process import free_port

Object = dict[str, Any]
ACCOUNT = "training-job-controller"
REFUSED_S = 15.0
WATCHED_S = 6.0


@dataclass(frozen=True)
class Row:
    """One rule of a cluster.

    Attributes:
        says: part of what the condition must say.
    """

    name: str
    says: str


ROWS = (
    Row("security", 'violates PodSecurity "restricted:latest"'),
    Row("webhook", WORDS),
    Row("webhook-down", "failed calling webhook"),
)


@dataclass
class Seen:
    """What came of the rules.

    Attributes:
        namespaces: of each row, and of the job that nobody refuses, which is `good`.
        conditions: Degraded of each row's job while it was refused.
        pods: names of the pods there were then.
        tried: POSTs of pods in the row's namespace, from the first refusal on for WATCHED_S.
    """

    namespaces: dict[str, str]
    conditions: dict[str, Object]
    pods: dict[str, frozenset[str]]
    tried: dict[str, list[Asked]]


@pytest.fixture(scope="module")
def seen(running: Stage) -> Iterator[Seen]:
    """The jobs in the namespaces of the rules: refused, watched for a while, then let go."""
    running.assert_well()
    spaces = {name: running.here.plane.namespace(name) for name in ("good", *(row.name for row in ROWS))}
    with Webhook(running.here.plane.workdir / "tls") as webhook, ruled(running, spaces, webhook.url):
        began_s = time.monotonic()
        for row in ROWS:
            running.submit(row.name, spaces[row.name])
        for row in ROWS:
            until(running, partial(is_degraded, running, row.name, spaces[row.name]), f"{row.name} is degraded")
        running.submit("good", spaces["good"])
        running.wait_grown("good", spaces["good"], 10.0)
        time.sleep(max(0.0, began_s + WATCHED_S - time.monotonic()))
        found = Seen(
            spaces,
            {row.name: running.condition(row.name, "Degraded", spaces[row.name]) for row in ROWS},
            {row.name: frozenset(p["metadata"]["name"] for p in running.pods_of(row.name)) for row in ROWS},
            {row.name: running.proxy.writes(began_s, "POST", f"/{spaces[row.name]}/pods$") for row in ROWS},
        )
    yield found
    running.assert_well()


@contextmanager
def ruled(stage: Stage, spaces: dict[str, str], webhook_url: str) -> Iterator[None]:
    """The rules are in force while the block runs."""
    kube = stage.here.kube
    level = "pod-security.kubernetes.io/enforce"
    kube.patch("namespaces", spaces["security"], {"metadata": {"labels": {level: "restricted"}}})
    certificate = (stage.here.plane.workdir / "tls" / "apiserver.crt").read_bytes()
    urls = {"webhook": webhook_url, "webhook-down": f"https://127.0.0.1:{free_port()}/"}
    for name, url in urls.items():
        kube.create(_webhook(name, spaces[name], url, certificate))
    try:
        yield
    finally:
        kube.patch("namespaces", spaces["security"], {"metadata": {"labels": {level: None}}})
        for name in urls:
            kube.delete("validatingwebhookconfigurations", name)


def _webhook(name: str, space: str, url: str, certificate: bytes) -> Object:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook = {
        "name": f"{name}.example.com",
        "clientConfig": {"url": url, "caBundle": base64.b64encode(certificate).decode()},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    kind = "ValidatingWebhookConfiguration"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": [hook]
    }  # fmt: skip


@pytest.mark.cluster("Pod Security and admission webhooks")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_denial_is_that_jobs_condition_and_ends_with_the_rule(running: Stage, seen: Seen, row: Row) -> None:
    degraded = seen.conditions[row.name]
    assert degraded["reason"] in {"Forbidden", "InternalError", "Http403"}
    assert row.says in degraded["message"]
    assert not seen.pods[row.name], "a dry run was refused, so no pod was tried"
    tried_s = [a.at_s - seen.tried[row.name][0].at_s for a in seen.tried[row.name]]
    assert len(tried_s) <= 2 + 2 * GROWN, "a first try and at most one more within six seconds"
    assert not [at for at in tried_s if 1.5 < at < 4.9], "it is left alone for five seconds"
    running.wait_grown(row.name, seen.namespaces[row.name])
    assert running.condition(row.name, "Degraded", seen.namespaces[row.name])["status"] == "False"
    assert len(running.pods_of(row.name)) == 1 + GROWN


def test_a_resource_quota_is_planned_for_and_no_pod_is_refused(running: Stage) -> None:
    kube, space = running.here.kube, running.here.plane.namespace("quota")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    kube.create(quota, space)
    kube.wait_until(lambda: kube.get("resourcequotas", "none", space).get("status", {}).get("hard"), 20, "quota")
    began_s = time.monotonic()
    running.submit("limited", space)

    def is_named() -> bool:
        return "ResourceQuota none" in str(running.condition("limited", "Admitted", space).get("message", ""))

    until(running, is_named, "the quota is named")
    assert running.condition("limited", "Admitted", space)["reason"] == "QuotaReached"
    assert not running.proxy.writes(began_s, "POST", f"/{space}/pods")
    kube.delete("resourcequotas", "none", space)
    running.wait_grown("limited", space)


def test_a_missing_priority_class_is_reported_and_gone_without(stage: Stage) -> None:
    kube = stage.here.kube
    surplus = next(b for b in controller_manifests() if b["metadata"]["name"] == "edl-surplus")
    kube.delete("priorityclasses", "edl-surplus")
    try:
        until(stage, lambda: is_degraded(stage, STEADY), "the condition names what is missing")
        stage.submit("classless")
        stage.wait_grown("classless")
        degraded = stage.condition("classless", "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "PriorityClassMissing")
        assert "edl-surplus" in degraded["message"]
        classes = {p["metadata"]["name"]: p["spec"].get("priorityClassName") for p in stage.pods_of("classless")}
        assert [classes[f"classless-trainer-{i}"] for i in range(GROWN)] == ["edl-training"] * 4
    finally:
        kube.apply(surplus)
    until(stage, lambda: not is_degraded(stage, "classless"), "the class is back")
    stage.assert_only_grown("classless")


def test_a_right_that_is_taken_away_degrades_who_needs_it(stage: Stage) -> None:
    kube = stage.here.kube
    role = next(b for b in controller_manifests() if b["kind"] == "ClusterRole" and b["metadata"]["name"] == ACCOUNT)
    less = {**role, "rules": [_without_create(rule) for rule in role["rules"]]}
    began_s = time.monotonic()
    kube.apply(less)
    try:
        stage.submit("rightless")
        until(stage, lambda: is_degraded(stage, "rightless"), "it says so")
        degraded = stage.condition("rightless", "Degraded")
        assert degraded["reason"] == "Forbidden"
        assert 'cannot create resource "pods"' in degraded["message"]
        assert not stage.pods_of("rightless")
        assert len(stage.proxy.writes(began_s, "POST", "/pods$")) <= 2
        assert stage.condition(STEADY, "Degraded")["status"] == "False"
    finally:
        kube.apply(role)
    stage.wait_grown("rightless")
    stage.assert_only_grown("rightless")


def _without_create(rule: Object) -> Object:
    verbs = [verb for verb in rule["verbs"] if verb != "create"]
    return {**rule, "verbs": verbs} if "pods" in rule["resources"] else rule


def test_without_any_right_it_waits_for_better_days(stage: Stage) -> None:
    kube = stage.here.kube
    binding = next(
        b for b in controller_manifests() if b["kind"] == "ClusterRoleBinding" and b["metadata"]["name"] == ACCOUNT
    )
    kube.delete("clusterrolebindings", ACCOUNT)
    began_s = time.monotonic()
    try:
        stage.proxy.cut_watches()
        stage.submit("outlawed")
        until(stage, lambda: forbidden(stage, began_s) >= 10, "it asks and is refused")
        assert stage.here.controller.answers("/healthz")
        assert not stage.proxy.writes(began_s)
    finally:
        kube.apply(binding)
    stage.wait_grown("outlawed")
    stage.assert_only_grown("outlawed")


def forbidden(stage: Stage, since_s: float) -> int:
    """How many requests were refused."""
    return sum(asked.status == 403 for asked in stage.proxy.since(since_s))


def is_degraded(stage: Stage, job: str, namespace: str = "default") -> bool:
    """Whether a job says that something keeps it from its full count."""
    return bool(stage.condition(job, "Degraded", namespace).get("status") == "True")


def until(stage: Stage, condition: Callable[[], object], what: str) -> None:
    """Wait for something that takes a plan or two."""
    stage.here.kube.wait_until(condition, REFUSED_S, what)
