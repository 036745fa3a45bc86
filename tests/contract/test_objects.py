"""What edl needs of single objects: versions, preconditions, patches, deletion, dry runs, bindings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.servers import READY_S, Server
from tests.e2e.control_plane.kube import KubeError
from tests.worlds.hostile.manifests import make_manifest

Object = dict[str, Any]
NODE = "contract-node"


def config_map(name: str = "a", **rest: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **rest}


def pod(name: str = "p", **spec: Any) -> Object:
    body = {"schedulerName": "none", "containers": [{"name": "c", "image": "i"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


def bind(server: Server, space: str, name: str = "p", node: str = NODE) -> Object:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": node},
    }
    return server.kube.request("POST", f"/api/v1/namespaces/{space}/pods/{name}/binding", body=body)


def test_a_change_counts_up_the_version_and_no_change_does_not(server: Server, space: str) -> None:
    kube = server.kube
    first = kube.create(config_map(data={"a": "1"}), space)["metadata"]["resourceVersion"]
    same = kube.patch("configmaps", "a", {"data": {"a": "1"}}, space)["metadata"]["resourceVersion"]
    other = kube.patch("configmaps", "a", {"data": {"a": "2"}}, space)["metadata"]["resourceVersion"]
    assert same == first
    assert int(other) > int(first)


def test_an_old_version_is_a_conflict(server: Server, space: str) -> None:
    kube = server.kube
    body = kube.create(config_map(data={"a": "1"}), space)
    path = f"/api/v1/namespaces/{space}/configmaps/a"
    kube.request("PUT", path, body={**body, "data": {"a": "2"}})
    with pytest.raises(KubeError) as refused:
        kube.request("PUT", path, body={**body, "data": {"a": "3"}})
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert kube.get("configmaps", "a", space)["data"] == {"a": "2"}


def test_a_deletion_with_anothers_uid_or_version_is_refused(server: Server, space: str) -> None:
    body = server.kube.create(config_map(), space)
    path = f"/api/v1/namespaces/{space}/configmaps/a"
    for condition in ({"uid": "x"}, {"resourceVersion": "1"}):
        assert server.send("DELETE", path, {"preconditions": condition}).code == 409
    right = {name: body["metadata"][name] for name in ("uid", "resourceVersion")}
    assert server.send("DELETE", path, {"preconditions": right}).code == 200
    assert server.send("GET", path).code == 404


def test_a_generated_name_starts_with_the_given_one(server: Server, space: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}
    names = [server.kube.create(body, space)["metadata"]["name"] for _ in range(2)]
    assert all(name.startswith("made-") and len(name) == len("made-") + 5 for name in names)
    assert names[0] != names[1]


def test_a_dry_run_stores_nothing(server: Server, space: str) -> None:
    path = f"/api/v1/namespaces/{space}/configmaps"
    dry = {"dryRun": "All"}
    assert server.send("POST", path, config_map(), query=dry).code == 201
    assert server.send("GET", f"{path}/a").code == 404
    server.kube.create(config_map(data={"a": "1"}), space)
    merged = server.send(
        "PATCH", f"{path}/a", {"data": {"a": "2"}}, query=dry, content_type="application/merge-patch+json"
    )
    assert merged.body["data"] == {"a": "2"}
    assert server.send("DELETE", f"{path}/a", query=dry).code == 200
    assert server.kube.get("configmaps", "a", space)["data"] == {"a": "1"}


def test_a_strategic_patch_merges_lists_by_key(server: Server, space: str) -> None:
    kube = server.kube
    kube.create(pod(containers=[{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]), space)
    patch = {"spec": {"containers": [{"name": "d", "image": "k"}]}, "metadata": {"labels": {"a": "b"}}}
    path = kube.resource("pods").path(space, "p")
    kind = "application/strategic-merge-patch+json"
    new = kube.request("PATCH", path, body=patch, content_type=kind)
    assert [(one["name"], one["image"]) for one in new["spec"]["containers"]] == [("c", "i"), ("d", "k")]
    gone = {"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}, "metadata": {"labels": {"a": None}}}
    assert "labels" not in kube.request("PATCH", path, body=gone, content_type=kind)["metadata"]


def test_an_apply_owns_fields_and_gives_them_up(server: Server, space: str) -> None:
    def apply(manager: str, **data: str) -> Object:
        path = server.kube.resource("configmaps").path(space, "a")
        kind = "application/apply-patch+yaml"
        return server.kube.request(
            "PATCH", path, query={"fieldManager": manager}, body=config_map(data=data), content_type=kind
        )

    apply("one", a="1", b="1")
    apply("two", b="1", c="1")
    assert apply("one", a="2")["data"] == {"a": "2", "b": "1", "c": "1"}
    assert apply("two", c="1")["data"] == {"a": "2", "c": "1"}
    with pytest.raises(KubeError, match=r'conflict with "one": \.data\.a'):
        apply("two", a="9", c="1")


def test_a_finalizer_holds_an_object_until_it_is_removed(server: Server, space: str) -> None:
    kube = server.kube
    body = config_map()
    body["metadata"]["finalizers"] = ["edl.test/hold"]
    kube.create(body, space)
    kube.delete("configmaps", "a", space)
    held = kube.get("configmaps", "a", space)["metadata"]
    assert held["deletionTimestamp"]
    with pytest.raises(KubeError, match=r"(?i)finalizer"):
        kube.patch("configmaps", "a", {"metadata": {"finalizers": ["edl.test/hold", "edl.test/more"]}}, space)
    kube.patch("configmaps", "a", {"metadata": {"finalizers": None}}, space)
    assert kube.find("configmaps", "a", space) is None


def test_a_propagation_policy_becomes_a_finalizer(server: Server, space: str) -> None:
    path = f"/api/v1/namespaces/{space}/pods/p"
    server.kube.create(pod(), space)
    server.kube.patch("pods", "p", {"metadata": {"finalizers": ["edl.test/hold"]}}, space)
    answer = server.send("DELETE", path, {"propagationPolicy": "Foreground"})
    assert "foregroundDeletion" in answer.body["metadata"]["finalizers"], "a garbage collector removes it soon"
    server.kube.patch("pods", "p", {"metadata": {"finalizers": None}}, space)


def test_a_pod_without_a_node_is_deleted_at_once(server: Server, space: str) -> None:
    server.kube.create(pod(), space)
    server.kube.delete("pods", "p", space)
    assert server.kube.find("pods", "p", space) is None


def test_a_pod_on_a_node_keeps_its_grace_period(server: Server, space: str) -> None:
    kube = server.kube
    kube.create(pod(terminationGracePeriodSeconds=17), space)
    bind(server, space)
    bound = kube.get("pods", "p", space)
    assert bound["spec"]["nodeName"] == NODE
    scheduled = {one["type"]: one["status"] for one in bound["status"]["conditions"]}
    assert scheduled["PodScheduled"] == "True"
    kube.delete("pods", "p", space)
    marked = kube.get("pods", "p", space)["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 17
    kube.delete("pods", "p", space, grace_s=5)
    assert kube.get("pods", "p", space)["metadata"]["deletionGracePeriodSeconds"] == 5
    path = f"/api/v1/namespaces/{space}/pods/p"
    server.send("DELETE", path, {"gracePeriodSeconds": 0})
    kube.wait_until(lambda: kube.find("pods", "p", space) is None, READY_S, "the pod is gone")


def test_a_bound_pod_cannot_be_bound_again(server: Server, space: str) -> None:
    server.kube.create(pod(), space)
    bind(server, space)
    with pytest.raises(KubeError, match=f'pod p is already assigned to node "{NODE}"'):
        bind(server, space, node="other")
    server.send("DELETE", f"/api/v1/namespaces/{space}/pods/p", {"gracePeriodSeconds": 0})


def test_an_evicted_pod_says_so(server: Server, space: str) -> None:
    kube = server.kube
    kube.create(pod(), space)
    bind(server, space)
    kube.patch("pods", "p", {"status": {"phase": "Running"}}, space, subresource="status")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": space}}
    answer = server.send("POST", f"/api/v1/namespaces/{space}/pods/p/eviction", body)
    assert (answer.code, answer.body["status"]) == (201, "Success")
    evicted = kube.get("pods", "p", space)
    assert evicted["metadata"]["deletionTimestamp"]
    reasons = {one["type"]: one.get("reason") for one in evicted["status"]["conditions"]}
    assert reasons["DisruptionTarget"] == "EvictionByEvictionAPI"
    server.send("DELETE", f"/api/v1/namespaces/{space}/pods/p", {"gracePeriodSeconds": 0})


def test_a_budget_forbids_an_eviction(server: Server, space: str) -> None:
    kube = server.kube
    body = pod()
    body["metadata"]["labels"] = {"app": "web"}
    kube.create(body, space)
    bind(server, space)
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    kube.patch("pods", "p", {"status": {"phase": "Running", "conditions": ready}}, space, subresource="status")
    selector = {"matchLabels": {"app": "web"}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
    kube.create({**budget, "spec": {"minAvailable": 1, "selector": selector}}, space)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": space}}
    path = f"/api/v1/namespaces/{space}/pods/p"

    def refused() -> bool:
        return server.send("POST", f"{path}/eviction", eviction).code == 429

    kube.wait_until(refused, READY_S, "the eviction is refused")
    assert "deletionTimestamp" not in kube.get("pods", "p", space)["metadata"]
    server.send("DELETE", path, {"gracePeriodSeconds": 0})


def test_a_pod_gets_its_priority_from_its_class(server: Server, space: str) -> None:
    made = server.kube.create(pod(priorityClassName="edl-surplus"), space)["spec"]
    assert (made["priority"], made["preemptionPolicy"]) == (-100, "Never")
    plain = server.kube.create(pod("q"), space)["spec"]
    assert (plain["priority"], plain["preemptionPolicy"]) == (0, "PreemptLowerPriority")


def test_the_status_of_a_job_changes_only_through_its_subresource(server: Server, space: str) -> None:
    kube = server.kube
    kube.create({**make_manifest("job"), "status": {"phase": "Running"}}, space)
    assert "status" not in kube.get("trainingjobs", "job", space)
    kube.patch("trainingjobs", "job", {"status": {"phase": "Running"}, "spec": {"suspend": True}}, space)
    job = kube.patch(
        "trainingjobs", "job", {"status": {"phase": "Failed"}, "spec": {"queue": "x"}}, space, subresource="status"
    )
    assert (job["status"]["phase"], job["spec"]["suspend"], job["spec"]["queue"]) == ("Failed", True, "default")
    assert job["metadata"]["generation"] == 2


def test_a_job_is_scaled_through_its_subresource(server: Server, space: str) -> None:
    kube = server.kube
    kube.create(make_manifest("job"), space)
    assert kube.scale("trainingjobs", "job", 3, space)["spec"] == {"replicas": 3}
    assert kube.get("trainingjobs", "job", space)["spec"]["trainer"]["instances"] == 3
    with pytest.raises(KubeError, match="instances is not between min-instance and max-instance"):
        kube.scale("trainingjobs", "job", 99, space)


def test_unknown_fields_of_a_job_are_dropped_and_defaults_filled_in(server: Server, space: str) -> None:
    body = make_manifest("job", bogus=1)
    stored = server.kube.create(body, space)["spec"]
    assert "bogus" not in stored
    assert (stored["queue"], stored["priority"], stored["suspend"]) == ("default", 0, False)


def test_an_empty_namespace_goes_and_takes_everything_along(server: Server) -> None:
    kube = server.kube
    space = server.namespace()
    kube.create(config_map(), space)
    kube.create(make_manifest("job"), space)
    kube.delete("namespaces", space)
    kube.wait_until(lambda: kube.find("namespaces", space) is None, READY_S, "the namespace is gone")
    assert kube.find("trainingjobs", "job", space) is None


def test_both_kinds_of_events_are_one(server: Server, space: str) -> None:
    kube = server.kube
    about = {"kind": "Pod", "name": "p", "namespace": space, "apiVersion": "v1"}
    body = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": about}
    kube.create({**body, "reason": "Made", "message": "a text", "type": "Normal", "count": 2}, space)
    path = f"/apis/events.k8s.io/v1/namespaces/{space}/events/e"
    new = kube.request("GET", path)
    assert (new["regarding"]["name"], new["note"], new["deprecatedCount"]) == ("p", "a text", 2)
    found = kube.list("events", space, fields="involvedObject.name=p,reason=Made")
    assert [one["message"] for one in found] == ["a text"]


def test_a_secret_takes_plain_text_and_gives_base64(server: Server, space: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    stored = server.kube.create(body, space)
    assert (stored["data"], stored["type"], "stringData" in stored) == ({"a": "Yg=="}, "Opaque", False)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        *(("1000m", "1"), ("0.5", "500m"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("1e3", "1e3"), ("0.1m", "1m")),
        *(("1e400", "10e399"), ("9" * 60, "9" * 60), ("9223372036854775808", "9223372036854775808")),
        ("8Ei", "9223372036854775807"),
    ],
)
def test_a_quantity_is_stored_in_its_canonical_form(server: Server, space: str, given: str, stored: str) -> None:
    resources = {"requests": {"memory" if "i" in given else "cpu": given}}
    body = pod(containers=[{"name": "c", "image": "i", "resources": resources}])
    answer = server.send("POST", f"/api/v1/namespaces/{space}/pods", body, query={"dryRun": "All"})
    assert answer.code == 201, json.dumps(answer.body)
    assert list(answer.body["spec"]["containers"][0]["resources"]["requests"].values()) == [stored]
