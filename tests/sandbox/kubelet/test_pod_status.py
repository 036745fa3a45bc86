from __future__ import annotations

from typing import Any

from edl.sandbox.kubelet.backoff import CrashBackoff
from edl.sandbox.kubelet.names import service_names
from edl.sandbox.kubelet.pod_status import ContainerRecord, PodFacts, final_phase, pod_status

RUNNING: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def ended(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code}}


def record(state: dict[str, Any], *, ready: bool = False) -> ContainerRecord:
    return ContainerRecord("main", "image", state, is_ready=ready, container_id="process://x")


def status_of(*records: ContainerRecord, initialized: bool = True, phase: str = "") -> dict[str, Any]:
    facts = PodFacts("127.9.0.1", "127.0.0.1", "2026-01-01T00:00:00Z", (), records, initialized, phase)
    return pod_status({"status": {}}, facts)


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: one["status"] for one in status["conditions"]}


def test_a_pod_is_pending_until_its_containers_have_started() -> None:
    assert status_of(ContainerRecord("main", "image"))["phase"] == "Pending"
    assert status_of(record(RUNNING), initialized=False)["phase"] == "Pending"


def test_a_pod_that_waits_for_a_restart_is_still_running() -> None:
    assert status_of(record({"waiting": {"reason": "CrashLoopBackOff"}}))["phase"] == "Running"


def test_a_pod_is_ready_once_all_its_containers_are() -> None:
    one, other = record(RUNNING, ready=True), record(RUNNING)
    assert conditions(status_of(one))["Ready"] == "True"
    assert conditions(status_of(one, other))["Ready"] == "False"


def test_a_pod_that_has_ended_is_not_ready() -> None:
    status = status_of(record(ended(0)), phase="Succeeded")
    assert conditions(status)["Ready"] == "False"
    assert next(one for one in status["conditions"] if one["type"] == "Ready")["reason"] == "PodCompleted"


def test_one_failed_container_fails_the_pod() -> None:
    assert final_phase([record(ended(0)), record(ended(0))]) == "Succeeded"
    assert final_phase([record(ended(0)), record(ended(1))]) == "Failed"


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    before = {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    facts = PodFacts("127.9.0.1", "127.0.0.1", "", (), (record(RUNNING, ready=True),), True)
    status = pod_status({"status": {"conditions": [before]}}, facts)
    assert next(one for one in status["conditions"] if one["type"] == "Ready")["lastTransitionTime"][:4] == "2020"


def test_crashes_are_followed_by_longer_and_longer_pauses() -> None:
    backoff = CrashBackoff()
    assert [backoff.after_run(1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert backoff.after_run(601) == 0


def pod(name: str, address: str, *, ready: bool = True, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "x"}},
        "spec": {"containers": [{"ports": [{"name": "web", "containerPort": 8080}]}], **spec},
        "status": {"podIP": address, "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def service(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "x"}, **spec}}


def test_a_headless_service_names_its_pods_by_their_hostname() -> None:
    pods = [
        pod("a", "127.9.0.1", ready=False, hostname="a", subdomain="s"),
        pod("b", "127.9.0.2", hostname="b", subdomain="other"),
    ]
    found = service_names([service(clusterIP="None", publishNotReadyAddresses=True)], pods)
    assert found == {
        "default/s": {"addresses": ["127.9.0.1", "127.9.0.2"], "hosts": {"a": ["127.9.0.1"]}, "ports": {}}
    }


def test_a_service_leads_to_ready_pods_and_to_the_port_that_they_have() -> None:
    pods = [pod("a", "127.9.0.1", ready=False), pod("b", "127.9.0.2")]
    ports = [{"port": 80, "targetPort": "web"}, {"port": 9090}]
    found = service_names([service(clusterIP="10.0.0.1", ports=ports)], pods)
    assert found == {"default/s": {"addresses": ["127.9.0.2"], "hosts": {}, "ports": {"80": 8080}}}
