"""Both servers refuse the same requests, with the same codes, reasons and words."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from tests.contract.servers import EMBEDDED, REAL, Answer, Server
from tests.worlds.hostile.changes import CHANGES
from tests.worlds.hostile.jobs import CASES
from tests.worlds.hostile.manifests import Case, Change, make_manifest
from tests.worlds.hostile.queues import INVALID, queue

Object = dict[str, Any]
JOBS = "/apis/paddlepaddle.org/v1/namespaces/default/trainingjobs"
QUEUES = "/apis/paddlepaddle.org/v1/queues"
PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
DRY = {"dryRun": "All"}
JSON_PATCH, MERGE = "application/json-patch+json", "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


def pod(name: str = "p", **spec: Any) -> Object:
    body = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "none", **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


def claim(request: Object) -> Object:
    """A claim on devices."""
    spec = {"devices": {"requests": [request]}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}


def config_map(**rest: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "refused"}, **rest}


def scrubbed(answer: Answer) -> tuple[int, str, str, set[tuple[str, str, str]]]:
    """What of an answer must be the same; versions and UIDs differ, and causes have no order."""
    message = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID", answer.message)
    message = re.sub(r"(current: |record \()\d+", r"\1VERSION", message)
    return answer.code, answer.reason, "" if answer.causes else message, answer.causes


def both(servers: dict[str, Server], *request: Any, **options: Any) -> list[Any]:
    return [scrubbed(servers[name].send(*request, **options)) for name in (EMBEDDED, REAL)]


REQUESTS: dict[str, tuple[Any, ...]] = {
    "no such object": ("GET", f"{PODS}/none"),
    "no such resource": ("GET", "/api/v1/namespaces/default/nones"),
    "no such group": ("GET", "/apis/nope/v1"),
    "no such path": ("GET", "/nope"),
    "no such namespace": ("POST", "/api/v1/namespaces/none/pods", pod(), DRY),
    "a name with capitals": ("POST", PODS, pod("A_"), DRY),
    "no name": ("POST", PODS, {**pod(), "metadata": {}}, DRY),
    "no containers": ("POST", PODS, pod(containers=[]), DRY),
    "no image": ("POST", PODS, pod(containers=[{"name": "c"}]), DRY),
    "two containers of one name": ("POST", PODS, pod(containers=[{"name": "c", "image": "i"}] * 2), DRY),
    "a bad restart policy": ("POST", PODS, pod(restartPolicy="Sometimes"), DRY),
    "a request above the limit": (
        "POST",
        PODS,
        pod(
            containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]
        ),
        DRY,
    ),
    "an unknown volume": (
        "POST",
        PODS,
        pod(containers=[{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]),
        DRY,
    ),
    "an unknown priority class": ("POST", PODS, pod(priorityClassName="none"), DRY),
    "an unknown service account": ("POST", PODS, pod(serviceAccountName="none"), DRY),
    "an unknown field, strictly": ("POST", PODS, pod(bogus=1), {**DRY, "fieldValidation": "Strict"}),
    "a number for a text": ("POST", PODS, pod(containers=[{"name": 1, "image": "i"}]), DRY),
    "another kind": ("POST", PODS, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}, DRY),
    "another namespace": ("POST", PODS, {**pod(), "metadata": {"name": "p", "namespace": "other"}}, DRY),
    "a version on a create": ("POST", MAPS, config_map(metadata={"name": "a", "resourceVersion": "5"})),
    "a put on a collection": ("PUT", PODS, {}),
    "a post on an object": ("POST", f"{MAPS}/a", {}),
    "a broken label selector": ("GET", MAPS, None, {"labelSelector": "a in"}),
    "an unknown field selector": ("GET", MAPS, None, {"fieldSelector": "spec.x=1"}),
    "an unknown field selector of pods": ("GET", PODS, None, {"fieldSelector": "spec.bogus=1"}),
    "a limit that is no number": ("GET", MAPS, None, {"limit": "x"}),
    "a version of the future": ("GET", MAPS, None, {"resourceVersion": "99999999"}),
    "a match without a version": ("GET", MAPS, None, {"resourceVersionMatch": "Exact"}),
    "binding no pod": (
        "POST",
        f"{PODS}/none/binding",
        {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "none"}, "target": {"name": "n"}},
    ),
    "a service without ports": (
        "POST",
        "/api/v1/namespaces/default/services",
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}}},
        DRY,
    ),
    "a service with a bad name": (
        "POST",
        "/api/v1/namespaces/default/services",
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s_"}, "spec": {"ports": [{"port": 1}]}},
        DRY,
    ),
    "a claim without a size": (
        "POST",
        "/api/v1/namespaces/default/persistentvolumeclaims",
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {}},
        DRY,
    ),
    "a class that is too high": (
        "POST",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "p"},
            "value": 2_000_000_000,
        },
        DRY,
    ),
    "a claim on devices without a kind of request": ("POST", CLAIMS, claim({"name": "r"}), DRY),
    "a claim on devices without a class": ("POST", CLAIMS, claim({"name": "r", "exactly": {"count": 1}}), DRY),
    "a claim on devices without a name": ("POST", CLAIMS, claim({"exactly": {"deviceClassName": "c"}}), DRY),
    "a lease of no time": (
        "POST",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "l"},
            "spec": {"leaseDurationSeconds": 0},
        },
        DRY,
    ),
    "a job in edl's own namespace": (
        "POST",
        "/apis/paddlepaddle.org/v1/namespaces/paddlecloud/trainingjobs",
        make_manifest(),
        DRY,
    ),
    "a job of another version": ("POST", JOBS, {**make_manifest(), "apiVersion": "paddlepaddle.org/v2"}, DRY),
    "a job with unknown fields, strictly": (
        "POST",
        JOBS,
        make_manifest(foo=1),
        {**DRY, "fieldValidation": "Strict"},
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_refused_with_the_same_words(servers: dict[str, Server], name: str) -> None:
    method, path, *rest = REQUESTS[name]
    body = rest[0] if rest else None
    query = rest[1] if len(rest) > 1 else None
    mine, theirs = both(servers, method, path, body, query=query)
    assert theirs[0] >= 400
    assert mine == theirs


PATCHES: dict[str, tuple[str, str, Any, dict[str, str]]] = {
    "a test that fails": (MAPS, JSON_PATCH, [{"op": "test", "path": "/data/a", "value": "2"}], {}),
    "a removal of nothing": (MAPS, JSON_PATCH, [{"op": "remove", "path": "/data/zz"}], {}),
    "a conflict of managers": (MAPS, APPLY, config_map(data={"a": "3"}), {"fieldManager": "second"}),
    "an apply of nobody": (MAPS, APPLY, config_map(data={"a": "3"}), {}),
    "a foreign content type": (MAPS, "text/plain", "x", {}),
    "an old version": (MAPS, MERGE, {"metadata": {"resourceVersion": "1"}, "data": {"q": "1"}}, {}),
    "another uid": (MAPS, MERGE, {"metadata": {"uid": "q"}}, {}),
    "another name": (MAPS, MERGE, {"metadata": {"name": "q"}}, {}),
}


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_is_refused_with_the_same_words(servers: dict[str, Server], name: str) -> None:
    path, content_type, body, query = PATCHES[name]
    for server in servers.values():
        if server.send("GET", f"{MAPS}/refused").code == 404:
            server.send("POST", MAPS, config_map(data={"a": "1"}), query={"fieldManager": "first"})
    mine, theirs = both(servers, "PATCH", f"{path}/refused", body, query={**DRY, **query}, content_type=content_type)
    assert theirs[0] >= 400
    assert mine == theirs


def _judged(server: Server, job: Object) -> tuple[int, str, set[tuple[str, str, str]]]:
    code, reason, message, causes = scrubbed(server.send("POST", JOBS, job, query=DRY))
    return code, reason if code >= 400 else message, causes


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_job_gets_the_same_verdict_with_the_same_words(servers: dict[str, Server], case: Case) -> None:
    mine, theirs = (_judged(servers[name], case.job) for name in (EMBEDDED, REAL))
    assert theirs[0] == (201 if case.accepted else mine[0])
    assert mine == theirs


@pytest.mark.parametrize("case", sorted(INVALID.keys() - {"no spec", "another version"}))
def test_an_invalid_queue_is_refused_with_the_same_words(servers: dict[str, Server], case: str) -> None:
    mine, theirs = both(servers, "POST", QUEUES, INVALID[case][0], query=DRY)
    assert theirs[0] >= 400
    assert mine == theirs


def test_a_negative_quota_is_refused_in_a_patch_too(servers: dict[str, Server]) -> None:
    for server in servers.values():
        if server.send("GET", f"{QUEUES}/refused").code == 404:
            assert server.send("POST", QUEUES, queue("refused", nominalQuota={"cpu": 3})).code == 201
    body = {"spec": {"nominalQuota": {"cpu": -3}}}
    mine, theirs = both(servers, "PATCH", f"{QUEUES}/refused", body, query=DRY, content_type=MERGE)
    assert theirs[0] == 422
    assert mine == theirs


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_an_update_gets_the_same_verdict_with_the_same_words(servers: dict[str, Server], change: Change) -> None:
    answers = []
    for name in (EMBEDDED, REAL):
        server = servers[name]
        path = f"{JOBS}/changed"
        server.send("DELETE", path)
        old = {**(change.before or make_manifest()), "metadata": {"name": "changed"}}
        assert server.send("POST", JOBS, old).code == 201
        assert server.send("PATCH", f"{path}/status", {"status": change.status}, content_type=MERGE).code == 200
        new = copy.deepcopy(change.job)
        new["metadata"] = server.kube.get("trainingjobs", "changed")["metadata"]
        answers.append(scrubbed(server.send("PUT", path, new)))
        server.send("DELETE", path)
    mine, theirs = answers
    assert (theirs[0] < 400) is change.accepted
    assert (mine[0], mine[1], mine[3]) == (theirs[0], theirs[1], theirs[3])
