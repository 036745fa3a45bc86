"""The subresource `resize` of pods: both servers have it, change the same and refuse the same with the same words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.servers import EMBEDDED, REAL, Server
from tests.contract.test_refusals import PODS, scrubbed

Object = dict[str, Any]
STRATEGIC = "application/strategic-merge-patch+json"
BOTH = {"cpu": "1", "memory": "1Gi"}


def pod(name: str, requests: Object, limits: Object) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": limits}}
    spec = {"containers": [container, {"name": "d", "image": "i"}], "schedulerName": "none"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def alone(name: str, requests: Object, limits: Object) -> Object:
    made = pod(name, requests, limits)
    return {**made, "spec": {**made["spec"], "containers": made["spec"]["containers"][:1]}}


def change(resources: Object, **more: Any) -> Object:
    return {"spec": {"containers": [{"name": "c", "resources": resources, **more}]}}


BURSTABLE = pod("burstable", BOTH, {"cpu": "2", "memory": "1Gi"})
CHANGES: dict[str, tuple[Object, Object]] = {
    "a lower request": (BURSTABLE, change({"requests": {"cpu": "100m"}})),
    "a higher request": (BURSTABLE, change({"requests": {"cpu": "1500m"}})),
    "a request above the limit": (BURSTABLE, change({"requests": {"cpu": "3"}})),
    "a negative request": (BURSTABLE, change({"requests": {"cpu": "-1"}})),
    "a request that is removed": (BURSTABLE, change({"requests": {"cpu": None}, "limits": {"cpu": None}})),
    "a new label and another image beside it": (
        BURSTABLE,
        {"metadata": {"labels": {"a": "b"}}, **change({"requests": {"cpu": "100m"}}, image="other")},
    ),
    "a Guaranteed pod that would not stay so": (
        alone("guaranteed", BOTH, BOTH),
        change({"requests": {"cpu": "100m"}}),
    ),
    "a Guaranteed pod that stays so": (
        alone("same", BOTH, BOTH),
        change({"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}}),
    ),
    "another version": (
        BURSTABLE,
        {"metadata": {"resourceVersion": "1"}, **change({"requests": {"cpu": "100m"}})},
    ),
}


def resized(server: Server, body: Object, patch: Object) -> tuple[Any, ...]:
    """The answer and, if the pod was changed, its resources, labels and images."""
    path = f"{PODS}/{body['metadata']['name']}"
    server.send("DELETE", path, query={"gracePeriodSeconds": "0"})
    assert server.send("POST", PODS, body).code == 201
    answer = server.send("PATCH", f"{path}/resize", patch, content_type=STRATEGIC)
    found = server.send("GET", path).body
    server.send("DELETE", path, query={"gracePeriodSeconds": "0"})
    resources = json.dumps([one["resources"] for one in found["spec"]["containers"]], sort_keys=True)
    images = [one["image"] for one in found["spec"]["containers"]]
    seen = (resources, images, found["metadata"].get("labels"), found["status"]["qosClass"])
    return (answer.code, *seen) if answer.code < 400 else (*scrubbed(answer), *seen)


@pytest.mark.parametrize("name", CHANGES)
def test_a_resize_has_the_same_effect_and_the_same_refusals(servers: dict[str, Server], name: str) -> None:
    mine, theirs = (resized(servers[which], *CHANGES[name]) for which in (EMBEDDED, REAL))
    assert mine == theirs


def test_the_resource_list_has_it(server: Server) -> None:
    found = {one["name"]: one for one in server.send("GET", "/api/v1").body["resources"]}
    assert sorted(found["pods/resize"]["verbs"]) == ["get", "patch", "update"]


def test_a_resize_changes_requests_and_nothing_else(server: Server) -> None:
    code, resources, images, labels, qos = resized(server, *CHANGES["a new label and another image beside it"])
    assert (code, images, labels, qos) == (200, ["i", "i"], None, "Burstable")
    assert json.loads(resources)[0]["requests"] == {"cpu": "100m", "memory": "1Gi"}


def test_a_guaranteed_pod_does_not_change_its_class(server: Server) -> None:
    code, *_, qos = resized(server, *CHANGES["a Guaranteed pod that would not stay so"])
    assert (code, qos) == (422, "Guaranteed")


def test_a_quota_and_a_limit_range_count_what_is_added(server: Server) -> None:
    for kind, name, spec in (
        ("ResourceQuota", "few", {"hard": {"requests.cpu": "2"}}),
        ("LimitRange", "some", {"limits": [{"type": "Container", "min": {"cpu": "50m"}}]}),
    ):
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "tight"}, "spec": spec}
        if kind == "ResourceQuota":
            server.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tight"}})
        server.kube.create(body)
    path = "/api/v1/namespaces/tight/pods"

    def beside(cpu: str) -> int:
        other = alone("q", {"cpu": cpu, "memory": "1Gi"}, {"cpu": "4", "memory": "1Gi"})
        return server.send("POST", path, other, query={"dryRun": "All"}).code

    # A pod that is created before admission knows the quota may stay uncounted for minutes.
    server.kube.wait_until(
        lambda: [beside(cpu) for cpu in ("3", "100m", "10m")] == [403, 201, 403], 60, "both limits are known"
    )
    assert server.send("POST", path, alone("p", BOTH, {"cpu": "4", "memory": "1Gi"})).code == 201
    server.kube.wait_until(lambda: [beside(cpu) for cpu in ("2", "100m")] == [403, 201], 60, "the pod counts")

    def resize(cpu: str) -> int:
        patch = change({"requests": {"cpu": cpu}})
        return server.send("PATCH", f"{path}/p/resize", patch, content_type=STRATEGIC).code

    assert [resize(cpu) for cpu in ("3", "2", "1", "10m")] == [403, 200, 200, 403]
