"""Jobs that cannot train, in real containers: each is told in its conditions, in words that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.real.cluster.images import BASE_IMAGE, TRAINER_IMAGE
from tests.real.cluster.running import RealCluster
from tests.real.mission import installed, pods, status

Object = dict[str, Any]
SEGFAULT = "python -c 'import os; os.kill(os.getpid(), 11)'"
LIMIT = "failed pods: 1, more than spec.backoffLimit 0: {name}-trainer-0 exited with "

# name -> image, entrypoint, the condition and its reason, pieces of its message.
CASES = {
    "no-image": ("edl.test/none:1", "true", "Degraded", "PodCannotStart", ["cannot be pulled", "imagePullSecrets"]),
    "no-launcher": (
        BASE_IMAGE,
        "true",
        "Failed",
        "BackoffLimitExceeded",
        ['exec: "paddle_k8s": executable file not'],
    ),
    "no-entrypoint": (TRAINER_IMAGE, "no-such", "Failed", "BackoffLimitExceeded", ["127 (Entrypoint Not Found)"]),
    "exits-1": (TRAINER_IMAGE, "exit 1", "Failed", "BackoffLimitExceeded", ["1 (General Error); kubectl logs"]),
    "exits-139": (TRAINER_IMAGE, SEGFAULT, "Failed", "BackoffLimitExceeded", ["139 (Segmentation Fault)"]),
}
DEAF, GRACE_S = "deaf", 3


def job(name: str, image: str, entrypoint: str) -> Object:
    """A job of one trainer that may not fail once."""
    amounts = {"cpu": "50m", "memory": "64Mi"}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "image": image,
            "backoffLimit": 0,
            "trainer": {
                "entrypoint": entrypoint,
                "min-instance": 1,
                "max-instance": 1,
                "resources": {"requests": amounts, "limits": amounts},
                "template": {"spec": {"terminationGracePeriodSeconds": GRACE_S}},
            },
        },
    }


@pytest.fixture(scope="module")
def jobs(real_cluster: RealCluster) -> Iterator[RealCluster]:
    """All of them at once, beside the controller."""
    with installed(real_cluster) as cluster:
        for name, (image, entrypoint, *_) in CASES.items():
            cluster.kube.create(job(name, image, entrypoint))
        cluster.kube.create(job(DEAF, TRAINER_IMAGE, "trap '' TERM; echo deaf; while :; do sleep 1; done"))
        yield cluster
        cluster.kubectl("delete", "tj", "--all", timeout_s=90)


def condition(cluster: RealCluster, name: str, kind: str) -> Object | None:
    """The condition of a job where it holds."""
    found = status(cluster, name).get("conditions", [])
    return next((c for c in found if c["type"] == kind and c["status"] == "True"), None)


@pytest.mark.parametrize("name", CASES)
def test_a_job_that_cannot_train_says_why(jobs: RealCluster, name: str) -> None:
    _, _, kind, reason, pieces = CASES[name]
    found = jobs.kube.wait_until(lambda: condition(jobs, name, kind) or {}, 60, f"{name} is {kind}")
    assert found["reason"] == reason
    for piece in pieces:
        assert piece in found["message"]
    if kind == "Failed":
        assert LIMIT.format(name=name) in found["message"]


def test_a_trainer_that_ignores_sigterm_is_gone_after_its_grace(jobs: RealCluster) -> None:
    jobs.kube.wait_until(lambda: pods(jobs, DEAF), 60, "it runs")
    jobs.kube.wait_until(lambda: "deaf" in jobs.kubectl("logs", f"{DEAF}-trainer-0"), 60, "it ignores SIGTERM now")
    jobs.kube.patch("trainingjobs", DEAF, {"spec": {"suspend": True}})
    gone = f"paddlepaddle.org/job={DEAF}"
    jobs.kube.wait_until(lambda: not jobs.kube.list("pods", "default", labels=gone), GRACE_S + 30, "it is gone")
    jobs.kube.wait_until(lambda: status(jobs, DEAF)["phase"] == "Suspended", 30, "suspended")
    assert condition(jobs, DEAF, "Failed") is None
