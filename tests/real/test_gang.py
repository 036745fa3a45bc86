"""Gang mode in real containers: the order of the start, restarts of the whole gang, and its end.

The tests of this module are one story of one job in their order. Its pods find each other through the API, with the
account of deploy/pod-reader; its pservers take some seconds to start, so that the order can be seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.real.cluster.images import BASE_IMAGE, ROOT, TRAINER_IMAGE
from tests.real.cluster.running import RealCluster
from tests.real.mission import condition, events, evict, pods, run_program, status

Object = dict[str, Any]
JOB, PORT, START_S = "gang", 7164, 4
PROGRAM = Path(__file__).parent / "programs" / "linear.py"
NAMES = {f"{JOB}-{role}-{index}" for role in ("pserver", "trainer") for index in range(2)}


def job() -> Object:
    """Two pservers and two trainers, with the policies of the Volcano article."""
    amounts = {"cpu": "100m", "memory": "64Mi"}
    spec = {"serviceAccountName": "edl-pod-reader", "terminationGracePeriodSeconds": 2}
    slow = {"name": "slow", "image": BASE_IMAGE, "command": ["sleep", str(START_S)]}
    resources = {"requests": amounts, "limits": amounts}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": JOB, "namespace": "default"},
        "spec": {
            "image": TRAINER_IMAGE,
            "port": PORT,
            "ports_num": 2,
            "fault_tolerant": False,
            "backoffLimit": 0,
            "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
            "trainer": {
                "entrypoint": "python linear.py",
                "min-instance": 2,
                "max-instance": 2,
                "resources": resources,
                "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}],
                "template": {"spec": spec},
            },
            "pserver": {
                "min-instance": 2,
                "resources": resources,
                "template": {"spec": {**spec, "initContainers": [slow]}},
            },
        },
    }


@pytest.fixture(scope="module")
def gang(controller: RealCluster) -> Iterator[RealCluster]:
    """The job, begun."""
    controller.kubectl("apply", "-k", str(ROOT / "deploy" / "pod-reader"))
    run_program(controller, job(), PROGRAM)
    yield controller
    controller.kubectl("delete", f"tj/{JOB}", f"configmap/{JOB}", timeout_s=60)
    controller.kubectl("delete", "-k", str(ROOT / "deploy" / "pod-reader"))


def members(cluster: RealCluster) -> dict[str, Object]:
    """The pods that run and stay, by name."""
    return {pod["metadata"]["name"]: pod for role in ("pserver", "trainer") for pod in pods(cluster, JOB, role)}


def await_training(cluster: RealCluster) -> dict[str, Object]:
    """The pods, once every trainer has made a step."""
    trainers = [name for name in NAMES if "trainer" in name]
    cluster.kube.wait_until(lambda: members(cluster).keys() == NAMES, 60, "all run")
    cluster.kube.wait_until(
        lambda: all("step 0:" in cluster.kubectl("logs", name) for name in trainers), 60, "both train", poll_s=0.3
    )
    return members(cluster)


def started_s(pod: Object) -> float:
    """When the container of a pod started."""
    said = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    return datetime.fromisoformat(said).timestamp()


def test_trainers_start_when_every_pserver_runs_and_find_them_all(gang: RealCluster) -> None:
    found = await_training(gang)
    pservers = [found[f"{JOB}-pserver-{index}"] for index in range(2)]
    endpoints = ",".join(f"{pod['status']['podIP']}:{PORT + index}" for index, pod in enumerate(pservers))
    for rank in range(2):
        name = f"{JOB}-trainer-{rank}"
        log = gang.kubectl("logs", name)
        print(log)
        assert re.match(
            rf"waiting for 2 running pods \(selector paddle-job-pserver={JOB}\)\n[01] of 2 pods are running; ", log
        )
        began = re.search(rf"^trainer {rank} of 2 at ([0-9.]+), pservers {endpoints}$", log, re.MULTILINE)
        assert began, endpoints
        assert float(began[1]) >= max(map(started_s, pservers)) > started_s(found[name])


def test_an_eviction_starts_the_whole_gang_anew_and_is_no_failure(gang: RealCluster) -> None:
    before = await_training(gang)
    evict(gang, f"{JOB}-trainer-1")
    gang.kube.wait_until(
        lambda: (now := members(gang)).keys() == NAMES and not uids(now) & uids(before), 90, "four others run"
    )
    text = events(gang, JOB)
    print(text)
    seen = r"trainer-1 was evicted \(EvictionByEvictionAPI\)|a trainer pod no longer exists"  # by how soon it is
    assert re.search(rf"Restarting .*({seen}); edl deletes every pod", text)
    await_training(gang)
    first_losses = [re.findall(r"step 0: loss ([0-9.]+)", gang.kubectl("logs", f"{JOB}-trainer-{r}")) for r in (0, 1)]
    assert max(float(loss) for (loss,) in first_losses) > 1, "the model begins anew"
    assert status(gang, JOB)["failures"] == 0


def uids(found: dict[str, Object]) -> set[str]:
    return {str(pod["metadata"]["uid"]) for pod in found.values()}


def test_the_end_of_the_trainers_ends_the_pservers(gang: RealCluster) -> None:
    gang.kube.wait_until(lambda: condition(gang, JOB, "Complete"), 60, "it completes")
    assert (
        condition(gang, JOB, "Complete")["message"]
        == "all trainers exited with code 0 (edl keeps 2 pods for the logs)"
    )
    of_job = f"paddlepaddle.org/job={JOB}"
    gang.kube.wait_until(
        lambda: (
            {pod["metadata"]["name"]: pod["status"]["phase"] for pod in gang.kube.list("pods", labels=of_job)}
            == {f"{JOB}-trainer-{rank}": "Succeeded" for rank in (0, 1)}
        ),
        30,
        "the trainers are kept for their logs, the pservers are gone",
    )
    for rank in range(2):
        log = gang.kubectl("logs", f"{JOB}-trainer-{rank}")
        last = re.findall(r"loss ([0-9.]+)", log)[-1]
        assert float(last) < 0.05, log
        assert log.endswith("the entrypoint exited with code 0\n")
