"""`edl shadow` as a whole, on an API server that records each request: it reads, and sends nothing else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from edl.errors import ConfigError, TemporaryError
from edl.settings.flags import read_settings
from edl.settings.shadow import ShadowSettings
from edl.shadow import process
from edl.shadow.document import Report
from edl.shadow.process import serve
from tests.worlds.fake_api import FakeApi, eventually, refusal
from tests.worlds.raw_objects import batch_job, batch_pod, container, node, pod, pytorch_job, pytorch_pod

NODES, PODS, BATCH = "/api/v1/nodes", "/api/v1/pods", "/apis/batch/v1/jobs"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SILENT = {f"paddlepaddle.org/{name}": "" for name in ("elastic", "min-instance", "max-instance")}


def kubeconfig(tmp_path: Path, api: FakeApi) -> Path:
    """A kubeconfig for the fake API server."""
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(body))
    return path


def settings(tmp_path: Path, api: FakeApi, **flags: Any) -> ShadowSettings:
    given = {"kubeconfig": str(kubeconfig(tmp_path, api)), "out": str(tmp_path / "out"), "for_": "2s", **flags}
    return read_settings(ShadowSettings, given)


def busy() -> FakeApi:
    """A node that a Job fills, a serving pod that waits, a webhook, an unknown kind of owner and a rule."""
    api = FakeApi()
    api.put(NODES, node("n1"))
    api.put(BATCH, batch_job(annotations=SILENT, spec={"parallelism": 8}))
    for number in range(8):
        api.put(PODS, batch_pod(f"train-{number}", ready_at=number))
    tried = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available:",
    }
    api.put(
        PODS, pod("web", spec={"containers": [container("2")]}, status={"phase": "Pending", "conditions": [tried]})
    )
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "w", "uid": "u", "controller": True}
    claim = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}], "schedulerName": "yunikorn"}
    api.put(PODS, pod("step", owner=owner, spec={"containers": [container("0")], "nodeName": "n1", **claim}))
    hook = {"rules": [{"resources": ["pods"]}]}
    api.put(WEBHOOKS, {"metadata": {"name": "sidecars"}, "webhooks": [hook]})
    api.put(WEBHOOKS, {"metadata": {"name": "ingresses"}, "webhooks": [{"rules": [{"resources": ["ingresses"]}]}]})
    return api


def report_of(tmp_path: Path) -> Report:
    return Report.model_validate_json((tmp_path / "out" / "report.json").read_bytes())


async def test_not_one_write_is_sent_and_the_report_says_what_would_be(tmp_path: Path) -> None:
    said: list[str] = []
    async with busy().serve() as api:
        assert await serve(settings(tmp_path, api, as_if_elastic="true"), said.append) == 0
    assert {method for method, _, _ in api.requests} == {"GET"}
    assert not any("leases" in path for _, path, _ in api.requests)
    report = report_of(tmp_path)
    assert (report.is_final, report.settings.as_if_elastic) == (True, True)
    assert 2.0 <= report.observed_s < 10.0
    assert (report.evictions.trainers, report.evictions.fits) == (2, 1)
    assert [one.serving for one in report.evictions.evictions] == [["ads/web"]] * 2
    assert report.costs.decisions >= 1
    assert report.unknown.kinds == {"argoproj.io/v1alpha1 Workflow": 1}
    assert report.unknown.schedulers == {"yunikorn": 1}
    assert report.unknown.rules == {}, "a volume claim is judged"
    assert report.unknown.admission == ["mutatingwebhookconfigurations sidecars"]
    assert said[-1].endswith("report.html")


async def test_without_the_flag_a_job_that_asks_for_nothing_is_left_alone(tmp_path: Path) -> None:
    async with busy().serve() as api:
        assert await serve(settings(tmp_path, api), lambda _: None) == 0
    assert {method for method, _, _ in api.requests} == {"GET"}
    assert report_of(tmp_path).evictions.trainers == 0


async def test_a_pytorch_job_gives_way_as_a_master_and_workers(tmp_path: Path) -> None:
    api = FakeApi()
    api.put(NODES, node("n1"))
    api.put("/apis/kubeflow.org/v1/pytorchjobs", pytorch_job(6))
    for name in ("torch-master-0", *(f"torch-worker-{number}" for number in range(6))):
        api.put(PODS, pytorch_pod(name))
    tried = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available",
    }
    waits = {"phase": "Pending", "conditions": [tried]}
    api.put(PODS, pod("web", spec={"containers": [container("3")]}, status=waits))
    async with api.serve():
        assert await serve(settings(tmp_path, api, as_if_elastic="true"), lambda _: None) == 0
    report = report_of(tmp_path)
    assert sorted(one.trainer for one in report.evictions.evictions) == ["torch-worker-4", "torch-worker-5"]
    assert {one.job for one in report.evictions.evictions} == {"ads/pytorchjob.kubeflow.org/torch"}
    assert report.unknown.kinds == {}


async def test_a_pod_of_a_kind_that_edl_does_not_know_is_counted(tmp_path: Path) -> None:
    api = FakeApi()
    api.put(NODES, node("n1"))
    owner = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "mpi", "uid": "u", "controller": True}
    api.put(PODS, pod("mpi-worker-0", owner=owner, spec={"nodeName": "n1"}))
    api.put(PODS, pytorch_pod("torch-worker-0"))
    async with api.serve():
        assert await serve(settings(tmp_path, api), lambda _: None) == 0
    assert report_of(tmp_path).unknown.kinds == {"kubeflow.org/v2beta1 MPIJob": 1}


async def test_the_answers_of_kube_scheduler_are_followed_while_it_runs(tmp_path: Path) -> None:
    async with busy().serve() as api:
        running = asyncio.ensure_future(serve(settings(tmp_path, api, for_="4s", report_every="1s"), lambda _: None))
        await eventually((tmp_path / "out" / "report.json").exists)
        api.put(PODS, pod("new", spec={"containers": [container("0")]}, status={"phase": "Pending"}))
        api.put(PODS, pod("new", spec={"containers": [container("0")], "nodeName": "n1"}))
        assert await running == 0
    agreement = report_of(tmp_path).agreement
    assert (agreement.bound, agreement.bound_agreed, agreement.share) == (1, 1, 1.0)


async def test_a_missing_right_is_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    api = busy()
    for path in (BATCH, WEBHOOKS, "/apis/paddlepaddle.org/v1/trainingjobs"):
        api.broken[path] = refusal(403, "Forbidden", "no")
    async with api.serve():
        assert await serve(settings(tmp_path, api, as_if_elastic="true"), lambda _: None) == 0
    unread = report_of(tmp_path).unknown.unreadable
    assert {path: unread[path] for path in api.broken} == dict.fromkeys(api.broken, "no right to read it")


async def test_without_the_right_to_read_nodes_it_ends_and_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "PATIENCE_S", 0.2)
    api = busy()
    api.broken[NODES] = refusal(403, "Forbidden", "nodes is forbidden")
    async with api.serve():
        with pytest.raises(TemporaryError, match=r"edl cannot watch /api/v1/nodes: .*forbidden.* as deploy/shadow"):
            await serve(settings(tmp_path, api), lambda _: None)
    assert not (tmp_path / "out" / "report.json").exists()


@pytest.mark.parametrize("value", ["0m", "1", "h", "1.5h", "-1h", "1y", "99999999h"])
def test_a_duration_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"--for .*a duration is a whole number above 0 and one of s, m, h, d, w"):
        read_settings(ShadowSettings, {"for_": value})


def test_durations_are_read_in_each_unit() -> None:
    found = {unit: read_settings(ShadowSettings, {"for_": f"2{unit}"}).for_s for unit in "smhdw"}
    assert found == {"s": 2, "m": 120, "h": 7200, "d": 172_800, "w": 1_209_600}
    assert read_settings(ShadowSettings, {}).for_s is None
    assert read_settings(ShadowSettings, {}).report_every_s == 600
