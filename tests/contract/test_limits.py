"""ResourceQuotas and LimitRanges: defaults, refusals in the words of the real server, and what is used."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.servers import Answer, Server

Object = dict[str, Any]


class Space:
    """A namespace with limits."""

    def __init__(self, server: Server, name: str) -> None:
        self.server, self.name = server, name
        self.path = f"/api/v1/namespaces/{name}"

    def limit(self, **item: Any) -> None:
        body = {
            "kind": "LimitRange",
            "metadata": {"name": "limits"},
            "spec": {"limits": [{"type": "Container", **item}]},
        }
        assert self.server.send("POST", f"{self.path}/limitranges", {"apiVersion": "v1", **body}).code == 201
        wanted = {"requests": {"cpu": "1m"}, "limits": {"cpu": "99"}}
        self.server.kube.wait_until(
            lambda: self.create("probe", wanted, query={"dryRun": "All"}).code == 403, 20, "the limits are in force"
        )

    def quota(self, **hard: str) -> None:
        hard = {key.replace("_", "."): value for key, value in hard.items()}
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": hard}}
        assert self.server.send("POST", f"{self.path}/resourcequotas", body).code == 201
        self.server.kube.wait_until(lambda: set(self.used()) == set(hard), 20, "the quota is counted")

    def used(self) -> dict[str, str]:
        answer = self.server.send("GET", f"{self.path}/resourcequotas/team")
        used: dict[str, str] = answer.body.get("status", {}).get("used") or {}
        return used

    def create(self, name: str, resources: Object | None = None, *, query: dict[str, str] | None = None) -> Answer:
        container = {"name": "c", "image": "i", **({"resources": resources} if resources else {})}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
        spec = {"containers": [container], "schedulerName": "none"}
        return self.server.send("POST", f"{self.path}/pods", {**body, "spec": spec}, query=query)


@pytest.fixture
def limited(server: Server, space: str) -> Space:
    return Space(server, space)


def both(**amounts: str) -> Object:
    return {"requests": amounts, "limits": amounts}


def test_a_quota_of_pods_refuses_one_more_and_counts(limited: Space) -> None:
    limited.quota(pods="1")
    assert limited.create("a").code == 201
    answer = limited.create("b")
    refusal = 'pods "b" is forbidden: exceeded quota: team, requested: pods=1, used: pods=1, limited: pods=1'
    assert (answer.code, answer.reason, answer.message) == (403, "Forbidden", refusal)
    assert limited.used() == {"pods": "1"}
    limited.server.send("DELETE", f"{limited.path}/pods/a")
    limited.server.kube.wait_until(lambda: limited.used() == {"pods": "0"}, 20, "the deleted pod is not counted")
    # Admission of the real server reads quotas from a cache of its own, which follows what it answers to others.
    limited.server.kube.wait_until(lambda: limited.create("b").code == 201, 20, "the next pod is admitted")
    assert limited.create("c").code == 403
    assert limited.used() == {"pods": "1"}


def test_a_quota_of_requests_adds_up_what_pods_ask_for(limited: Space) -> None:
    limited.quota(requests_cpu="1", limits_memory="1Gi")
    assert limited.create("a", both(cpu="600m", memory="256Mi")).code == 201
    assert limited.used() == {"requests.cpu": "600m", "limits.memory": "256Mi"}
    answer = limited.create("b", both(cpu="500m", memory="256Mi"))
    assert answer.message == (
        'pods "b" is forbidden: exceeded quota: team, requested: requests.cpu=500m, used: requests.cpu=600m, '
        "limited: requests.cpu=1"
    )
    answer = limited.create("b", both(cpu="500m", memory="1Gi"))
    assert answer.message == (
        'pods "b" is forbidden: exceeded quota: team, requested: limits.memory=1Gi,requests.cpu=500m, '
        "used: limits.memory=256Mi,requests.cpu=600m, limited: limits.memory=1Gi,requests.cpu=1"
    )


def test_a_pod_must_say_what_a_quota_limits(limited: Space) -> None:
    limited.quota(requests_cpu="1", memory="1Gi")
    answer = limited.create("a")
    assert answer.message == (
        'pods "a" is forbidden: failed quota: team: must specify memory for: c; requests.cpu for: c'
    )


def test_a_quota_counts_other_objects_too(limited: Space) -> None:
    limited.quota(**{"count/deployments.apps": "0", "services": "0"})
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}
    answer = limited.server.send("POST", f"{limited.path}/services", body)
    assert answer.message == (
        'services "s" is forbidden: exceeded quota: team, requested: services=1, used: services=0, '
        "limited: services=0"
    )
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    answer = limited.server.send("POST", f"/apis/apps/v1/namespaces/{limited.name}/deployments", body)
    assert answer.message == (
        'deployments.apps "d" is forbidden: exceeded quota: team, requested: count/deployments.apps=1, '
        "used: count/deployments.apps=0, limited: count/deployments.apps=0"
    )


def test_a_limit_range_completes_itself_and_the_pods(limited: Space) -> None:
    limited.limit(max={"cpu": "2"}, default={"memory": "64Mi"}, min={"cpu": "100m"})
    item = limited.server.send("GET", f"{limited.path}/limitranges/limits").body["spec"]["limits"][0]
    assert item["default"] == {"cpu": "2", "memory": "64Mi"}
    assert item["defaultRequest"] == {"cpu": "2", "memory": "64Mi"}
    pod = limited.create("a", {"requests": {"cpu": "500m"}}).body
    assert pod["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "500m", "memory": "64Mi"},
        "limits": {"cpu": "2", "memory": "64Mi"},
    }
    assert pod["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: memory request for container c; "
        "cpu, memory limit for container c"
    }
    assert pod["status"]["qosClass"] == "Burstable"


def test_a_limit_range_refuses_too_much_and_too_little(limited: Space) -> None:
    limited.limit(max={"cpu": "2"}, min={"cpu": "100m"})
    for resources, refusal in (
        (both(cpu="3"), "maximum cpu usage per Container is 2, but limit is 3"),
        ({"requests": {"cpu": "50m"}}, "minimum cpu usage per Container is 100m, but request is 50m"),
    ):
        answer = limited.create("a", resources)
        assert (answer.code, answer.message) == (403, f'pods "a" is forbidden: {refusal}')
