"""`edl submit|get|watch|logs|scale|suspend|resume|delete` against the embedded API server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from edl.api.crd import render_crd
from edl.cli.jobs import job_names
from edl.errors import PermanentError
from edl.kube.client.api_errors import RefusedError
from edl.kube.client.session import ApiSession
from edl.kube.job_client import JobClient
from edl.sandbox.apiserver.server import ApiServer
from tests.cli.conftest import Run
from tests.e2e.control_plane.processes import heed_interrupts
from tests.worlds.waiting import wait_until

ROOT = Path(__file__).parents[2]
JOB = """
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {name: NAME}
spec:
  fault_tolerant: true
  trainer: {entrypoint: train, min-instance: 1, max-instance: 6, resources: {requests: {cpu: "1", memory: 1Gi}}}
"""


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/paddlepaddle.org/v1/namespaces/{}/trainingjobs"


class Server:
    """An embedded API server in a thread of its own, for all tests of this file."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.api = ApiServer(namespaces=("ads",))
        self.do(self.api.start())

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def stop(self) -> None:
        async def end() -> None:
            await self.api.stop()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

        self.do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Cluster:
    """The server with a folder and a kubeconfig of one test."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server, self.folder = server, folder
        self.kubeconfig = str(folder / "kubeconfig")
        server.api.write_kubeconfig(Path(self.kubeconfig))

    def ask(self, method: str, path: str, body: object = None) -> Any:
        async def send() -> bytes:
            async with await ApiSession.open(self.kubeconfig) as session:
                return await session.request(method, path, body=body)

        return json.loads(self._server.do(send()))

    def job(self, name: str, namespace: str = "default") -> Any:
        return self.ask("GET", f"{JOBS.format(namespace)}/{name}")

    def hold(self, name: str, *finalizers: str) -> None:
        held = self.job(name)
        held["metadata"]["finalizers"] = list(finalizers)
        self.ask("PUT", f"{JOBS.format('default')}/{name}", held)

    def end(self, name: str, **status: str) -> None:
        """Store a status, as the controller does."""
        self.ask("PUT", f"{JOBS.format('default')}/{name}/status", {**self.job(name), "status": status})

    def file(self, *names: str) -> str:
        path = self.folder / "jobs.yaml"
        path.write_text("---".join(JOB.replace("NAME", name) for name in names))
        return str(path)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.stop()


@pytest.fixture
def cluster(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The cluster of $KUBECONFIG; it has no job and no pod but those of the test."""
    made = Cluster(server, tmp_path)
    if not made.ask("GET", CRDS)["items"]:
        made.ask("POST", CRDS, render_crd())
    monkeypatch.setenv("KUBECONFIG", made.kubeconfig)
    yield made
    for namespace in ("default", "ads"):
        for job in made.ask("GET", JOBS.format(namespace))["items"]:
            if job["metadata"].get("finalizers"):
                made.hold(job["metadata"]["name"])
            else:
                made.ask("DELETE", f"{JOBS.format(namespace)}/{job['metadata']['name']}")
    for pod in made.ask("GET", PODS)["items"]:
        made.ask("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})


def test_submit_creates_each_job_of_a_file_in_kubectls_words(run: Run, cluster: Cluster) -> None:
    assert run("submit", cluster.file("ctr", "new")) == (
        0,
        "trainingjob.paddlepaddle.org/ctr created\ntrainingjob.paddlepaddle.org/new created\n",
        "",
    )
    assert cluster.job("ctr")["spec"]["trainer"]["max-instance"] == 6


def test_a_job_that_exists_is_refused_in_the_servers_words_and_the_others_are_created(
    run: Run, cluster: Cluster
) -> None:
    run("submit", cluster.file("ctr"))
    code, out, err = run("submit", cluster.file("ctr", "new"))
    assert (code, out) == (1, "trainingjob.paddlepaddle.org/new created\n")
    assert err == (
        'edl: trainingjob.paddlepaddle.org "ctr" already exists in default; delete it first, or choose another name\n'
    )


@pytest.mark.parametrize(
    ("code", "reason", "answer", "remedy"),
    [
        (404, "NotFound", 'namespaces "ads" not found', "kubectl create namespace ads"),
        (404, "NotFound", "the server could not find the requested resource", "kubectl apply --server-side -f crds/"),
        (
            403,
            "Forbidden",
            "cannot create resource",
            "the right to create trainingjob.paddlepaddle.org in namespace ads",
        ),
    ],
)
def test_a_refusal_to_create_a_job_says_what_to_do(code: int, reason: str, answer: str, remedy: str) -> None:
    class Refusing:
        async def request(self, *_: object, **__: object) -> None:
            raise RefusedError(f"POST /jobs: {answer}", code=code, reason=reason, answer=answer)

    client = JobClient(cast(ApiSession, Refusing()), "ads")
    with pytest.raises(PermanentError, match=re.escape(answer)) as refused:
        asyncio.run(client.create({"metadata": {"name": "ctr"}}))
    assert remedy in str(refused.value)


@pytest.mark.usefixtures("cluster")
def test_an_unknown_field_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(JOB.replace("NAME", "ctr").replace("entrypoint", "entripoint"))
    code, out, err = run("submit", str(path))
    assert (code, out) == (1, "")
    assert "entripoint" in err


@pytest.mark.usefixtures("cluster")
def test_a_file_with_another_kind_is_an_error_of_usage_and_creates_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "service.yaml"
    path.write_text(JOB.replace("NAME", "ctr") + "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n")
    code, out, err = run("submit", str(path))
    assert (code, out) == (2, "")
    assert "kind Service of v1 is no TrainingJob" in err
    assert run("get")[2] == "No resources found in default namespace.\n"


@pytest.mark.usefixtures("cluster")
def test_a_file_that_is_not_yaml_is_named_with_the_position(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("apiVersion: paddlepaddle.org/v1\nkind: [TrainingJob\n")
    code, out, err = run("submit", str(path))
    assert (code, out) == (2, "")
    assert f"{path}, line 3, column 1: not YAML" in err
    assert f"{tmp_path} cannot be read" in run("submit", str(tmp_path))[2]


@pytest.mark.parametrize("text", ["", "# nothing\n---\n", "{apiVersion: v1, kind: List, items: []}"])
def test_a_file_without_an_object_is_an_error_and_creates_nothing(
    run: Run, tmp_path: Path, cluster: Cluster, text: str
) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text(text)
    assert run("submit", cluster.file("ctr"), str(empty)) == (
        2,
        "",
        f"edl: {empty} contains no object, so there is nothing to create; write a TrainingJob into it\n",
    )
    assert cluster.ask("GET", JOBS.format("default"))["items"] == []


def test_get_prints_the_columns_of_the_crd(run: Run, cluster: Cluster) -> None:
    run("submit", cluster.file("ctr", "longer-name"))
    columns = render_crd()["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = ["NAME", *(c["name"].upper() for c in columns if not c.get("priority"))]
    code, out, err = run("get")
    head, *rows = out.splitlines()
    assert (code, err, head.split()) == (0, "", shown)
    assert [row.split()[0] for row in rows] == ["ctr", "longer-name"]
    assert all(row[head.index(shown[1]) - 1] == " " for row in rows)
    wide = run("get", "-o", "wide")[1].splitlines()[0].split()
    assert wide == ["NAME", *(word for c in columns for word in c["name"].upper().split())]


def test_get_takes_kubectls_other_forms(run: Run, cluster: Cluster) -> None:
    run("submit", cluster.file("ctr", "new"))
    assert run("get", "ctr", "-o", "name")[1] == "trainingjob.paddlepaddle.org/ctr\n"
    assert json.loads(run("get", "ctr", "-o", "json")[1])["metadata"]["name"] == "ctr"
    listed = yaml.safe_load(run("get", "-o", "yaml")[1])
    assert (listed["kind"], [job["metadata"]["name"] for job in listed["items"]]) == ("List", ["ctr", "new"])
    assert "managedFields" not in run("get", "-o", "json")[1]


def test_all_namespaces_add_a_column(run: Run, cluster: Cluster) -> None:
    run("submit", cluster.file("ctr"))
    run("submit", "-n", "ads", cluster.file("ctr"))
    lines = run("get", "-A")[1].splitlines()
    assert lines[0].split()[:2] == ["NAMESPACE", "NAME"]
    assert [line.split()[:2] for line in lines[1:]] == [["ads", "ctr"], ["default", "ctr"]]
    assert run("get", "-A", "ctr")[0] == 2


def test_the_namespace_of_the_context_is_the_default(run: Run, cluster: Cluster) -> None:
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    config["contexts"][0]["context"]["namespace"] = "ads"
    Path(cluster.kubeconfig).write_text(yaml.safe_dump(config))
    run("submit", cluster.file("ctr"))
    assert cluster.job("ctr", "ads")["metadata"]["namespace"] == "ads"


@pytest.mark.usefixtures("cluster")
def test_a_job_that_does_not_exist_is_named_by_the_server(run: Run) -> None:
    for command in (("get", "none"), ("scale", "none", "--replicas", "2"), ("delete", "none"), ("logs", "none")):
        code, out, err = run(*command)
        assert (code, out) == (1, ""), command
        assert err == 'edl: trainingjobs.paddlepaddle.org "none" not found (404 NotFound)\n', command


def test_scale_sets_the_pin_and_0_takes_it_back(run: Run, cluster: Cluster) -> None:
    run("submit", cluster.file("ctr"))
    assert run("scale", "ctr", "--replicas", "4") == (0, "trainingjob.paddlepaddle.org/ctr scaled\n", "")
    assert cluster.job("ctr")["spec"]["trainer"]["instances"] == 4
    run("scale", "ctr", "--replicas", "0")
    assert cluster.job("ctr")["spec"]["trainer"]["instances"] == 0


def test_scale_names_the_range_of_the_job_and_sends_nothing_outside_of_it(run: Run, cluster: Cluster) -> None:
    run("submit", cluster.file("ctr"))
    before = cluster.job("ctr")["metadata"]["resourceVersion"]
    assert run("scale", "ctr", "--replicas", "9") == (1, "", "edl: --replicas 9: the job allows 1 to 6, or 0\n")
    assert cluster.job("ctr")["metadata"]["resourceVersion"] == before
    for allowed in ("1", "6"):
        assert run("scale", "ctr", "--replicas", allowed)[0] == 0
    path = Path(cluster.file("one"))
    path.write_text(path.read_text().replace("max-instance: 6", "max-instance: 1"))
    run("submit", str(path))
    assert run("scale", "one", "--replicas", "2")[2] == "edl: --replicas 2: the job allows 1, or 0\n"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_scale_of_a_job_that_has_ended_says_that_nothing_changes(run: Run, cluster: Cluster, phase: str) -> None:
    run("submit", cluster.file("ctr"))
    cluster.end("ctr", phase=phase, reason="Finished", startTime="2026-11-23T12:00:00Z")
    before = cluster.job("ctr")["metadata"]["resourceVersion"]
    for replicas in ("2", "0", "9"):
        code, out, err = run("scale", "ctr", "--replicas", replicas)
        assert (code, out) == (1, "")
        assert err == (
            f"edl: job default/ctr has ended ({phase}); nothing was changed;"
            " to train again, delete it and submit it anew\n"
        )
    assert cluster.job("ctr")["metadata"]["resourceVersion"] == before


def test_scale_may_mend_a_job_that_never_ran_because_of_its_spec(run: Run, cluster: Cluster) -> None:
    run("submit", cluster.file("ctr"))
    cluster.end("ctr", phase="Failed", reason="InvalidSpec")
    assert run("scale", "ctr", "--replicas", "2") == (0, "trainingjob.paddlepaddle.org/ctr scaled\n", "")


def test_suspend_and_resume_set_the_field_and_say_if_nothing_changes(run: Run, cluster: Cluster) -> None:
    run("submit", cluster.file("ctr", "new"))
    path = "trainingjob.paddlepaddle.org"
    assert run("suspend", "ctr", "new") == (0, f"{path}/ctr suspended\n{path}/new suspended\n", "")
    assert cluster.job("ctr")["spec"]["suspend"] is True
    version = cluster.job("ctr")["metadata"]["resourceVersion"]
    assert run("suspend", "ctr") == (0, f"{path}/ctr suspended (no change)\n", "")
    assert cluster.job("ctr")["metadata"]["resourceVersion"] == version
    assert run("resume", "ctr") == (0, f"{path}/ctr resumed\n", "")
    assert cluster.job("ctr")["spec"].get("suspend", False) is False
    assert run("resume", "ctr") == (0, f"{path}/ctr resumed (no change)\n", "")


def test_suspend_goes_on_after_a_job_that_cannot_be_suspended(run: Run, cluster: Cluster) -> None:
    run("submit", cluster.file("ctr", "new"))
    cluster.end("ctr", phase="Succeeded", reason="Finished", startTime="2026-11-23T12:00:00Z")
    code, out, err = run("suspend", "ctr", "none", "new")
    assert (code, out) == (1, "trainingjob.paddlepaddle.org/new suspended\n")
    assert err == (
        "edl: job default/ctr has ended (Succeeded); nothing was changed;"
        " to train again, delete it and submit it anew\n"
        'edl: trainingjobs.paddlepaddle.org "none" not found (404 NotFound)\n'
    )


def test_delete_waits_until_the_job_is_gone(run: Run, cluster: Cluster) -> None:
    run("submit", cluster.file("ctr"))
    cluster.hold("ctr", "example.com/hold")

    def let_go() -> None:
        wait_until(lambda: "deletionTimestamp" in cluster.job("ctr")["metadata"], "a deletion timestamp")
        cluster.hold("ctr")

    thread = threading.Thread(target=let_go)
    thread.start()
    assert run("delete", "ctr") == (0, 'trainingjob.paddlepaddle.org "ctr" deleted from default namespace\n', "")
    thread.join()
    assert run("get", "ctr")[0] == 1


def test_delete_does_not_wait_if_asked_not_to(run: Run, cluster: Cluster) -> None:
    run("submit", cluster.file("ctr"))
    cluster.hold("ctr", "example.com/hold")
    assert run("delete", "ctr", "--wait=false")[0] == 0
    assert "deletionTimestamp" in cluster.job("ctr")["metadata"]


def edl(cluster: Cluster, *arguments: str, **more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "KUBECONFIG": cluster.kubeconfig, "PYTHONPATH": str(ROOT), **more}
    command = [
        sys.executable,
        "-c",
        "import sys; sys.argv[0] = 'edl'; from edl.cli.main import main; main()",
        *arguments,
    ]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, preexec_fn=heed_interrupts)


def test_watch_prints_each_change_until_it_is_stopped(run: Run, cluster: Cluster) -> None:
    run("submit", cluster.file("ctr"))
    watching = edl(cluster, "watch", "ctr")
    assert watching.stdout is not None
    assert watching.stdout.readline().split()[0] == "NAME"
    assert watching.stdout.readline().split()[0] == "ctr"
    run("submit", cluster.file("other"))
    run("scale", "ctr", "--replicas", "3")
    assert watching.stdout.readline().split()[0] == "ctr"
    watching.send_signal(2)
    assert watching.wait(90) == 0
    assert watching.communicate()[1] == ""


def pod(name: str, role: str, index: int) -> dict[str, Any]:
    labels = {"paddlepaddle.org/job": "ctr", "paddlepaddle.org/role": role, "paddlepaddle.org/index": str(index)}
    spec = {"containers": [{"name": role, "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def test_logs_of_a_job_without_such_a_pod_say_so(run: Run, cluster: Cluster) -> None:
    run("submit", cluster.file("ctr"))
    cluster.ask("POST", "/api/v1/namespaces/default/pods", pod("ctr-trainer-0", "trainer", 0))
    code, _, err = run("logs", "ctr", "--role", "master")
    assert (code, err) == (1, "edl: job default/ctr has no pod of master now; edl get ctr shows its state\n")
    assert run("logs", "ctr", "--index", "3")[0] == 1


def test_logs_of_all_roles_need_any_pod_of_the_job(run: Run, cluster: Cluster) -> None:
    run("submit", cluster.file("ctr"))
    assert "no pod of any role now" in run("logs", "ctr", "--role", "all")[2]
    owned = pod("ctr-master-0", "master", 0)
    owner = {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "name": "ctr", "controller": True}
    owned["metadata"]["ownerReferences"] = [{**owner, "uid": cluster.job("ctr")["metadata"]["uid"]}]
    cluster.ask("POST", PODS, owned)
    assert run("logs", "ctr", "--role", "all")[2] == ""


def test_a_shell_completes_the_names_of_jobs(run: Run, cluster: Cluster) -> None:
    run("submit", cluster.file("ctr", "ctr-2", "new"))
    assert job_names({"namespace": "default"}, "ct") == ["ctr", "ctr-2"]
    words = {"_EDL_COMPLETE": "complete_bash", "COMP_WORDS": "edl get ct", "COMP_CWORD": "2"}
    done = edl(cluster, **words)
    out, err = done.communicate(timeout=60)
    assert (out.split(), err) == (["ctr", "ctr-2"], "")


def test_completion_is_silent_without_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    started_s = time.monotonic()
    assert job_names({}, "") == []
    assert time.monotonic() - started_s < 10


def test_every_command_is_listed(run: Run) -> None:
    out = run("--help")[1]
    for name in ("submit", "get", "watch", "logs", "scale", "delete"):
        assert re.search(rf"^ +{name} ", out, re.MULTILINE), name
