"""Every container of a pod is read, by name: the main one, init containers, native sidecars and helpers."""

from __future__ import annotations

from typing import Any

import pytest

from edl.lifecycle.pod_events import describe_failure
from edl.model.pods import Pod
from tests.worlds.raw_objects import Object, container, job, pod, the_job, the_pod, trainer

IMAGE = "registry.example/none:1"


def named(*names: str, **more: Any) -> list[Object]:
    return [{**container("1"), "name": name, **more} for name in names]


def status_of(name: str, **state: Any) -> Object:
    return {"name": name, "image": IMAGE, "state": state}


def waiting(name: str, reason: str, **last: Any) -> Object:
    ended = {"lastState": {"terminated": last}} if last else {}
    return {**status_of(name, waiting={"reason": reason}), **ended}


def ended(name: str, code: int, message: str = "") -> Object:
    return status_of(name, terminated={"exitCode": code, "message": message, "startedAt": "2026-01-05T10:00:00Z"})


def read(phase: str, containers: list[Object], statuses: list[Object], init: list[Object] | None = None) -> Pod:
    """A trainer of a job, with its containers and their statuses; those of init containers come last."""
    names = {c["name"] for c in init or ()}
    status = {
        "phase": phase,
        "containerStatuses": [s for s in statuses if s["name"] not in names],
        "initContainerStatuses": [s for s in statuses if s["name"] in names],
    }
    spec = {"nodeName": "n1", "containers": containers, "initContainers": init or []}
    (found,) = the_job(job(), trainer(0, spec=spec, status=status)).pods
    return found


@pytest.mark.parametrize(
    ("init", "begins"),
    [
        (named("fetch"), "init container fetch: image registry.example/none:1 cannot be pulled"),
        (named("proxy", restartPolicy="Always"), "sidecar proxy: image registry.example/none:1 cannot be pulled"),
    ],
)
def test_an_init_container_whose_image_cannot_be_pulled_keeps_a_pod_from_its_start(
    init: list[Object], begins: str
) -> None:
    states = [waiting("trainer", "PodInitializing"), waiting(init[0]["name"], "ImagePullBackOff")]
    found = read("Pending", named("trainer"), states, init)
    assert found.cannot_start
    assert found.container_message.startswith(begins)
    assert not found.has_begun


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("reason", ["ErrImagePull", "CreateContainerConfigError"])
def test_a_helper_that_cannot_start_is_named_wherever_it_stands(first: bool, reason: str) -> None:
    names = ["uploader", "trainer"] if first else ["trainer", "uploader"]
    states = [waiting("uploader", reason), status_of("trainer", running={"startedAt": "2026-01-05T10:00:00Z"})]
    found = read("Pending", named(*names), states)
    assert found.cannot_start
    assert found.container_message.startswith("container uploader: ")
    assert found.has_begun, "the trainer itself runs"
    assert found.started_s == 1767607200


@pytest.mark.parametrize(
    ("init", "which"),
    [(named("fetch"), "init container fetch"), (named("proxy", restartPolicy="Always"), "sidecar proxy")],
)
def test_a_container_before_the_main_one_that_ends_again_and_again_keeps_the_pod_from_its_start(
    init: list[Object], which: str
) -> None:
    states = [
        waiting("trainer", "PodInitializing"),
        waiting(init[0]["name"], "CrashLoopBackOff", exitCode=3, message="cannot reach the data store"),
    ]
    found = read("Pending", named("trainer"), states, init)
    assert found.cannot_start
    assert found.container_message.startswith(
        f"{which} exits with code 3 again and again (cannot reach the data store)"
    )


ENDS: dict[str, tuple[list[Object], list[Object], list[Object], int, str]] = {
    "an init container": (
        named("trainer"),
        [waiting("trainer", "PodInitializing"), ended("fetch", 3, "cannot reach the data store")],
        named("fetch"),
        3,
        "ctr-trainer-0: init container fetch exited with code 3 (cannot reach the data store)",
    ),
    "a helper after the trainer": (
        named("trainer", "uploader"),
        [ended("trainer", 0), ended("uploader", 7)],
        [],
        7,
        "ctr-trainer-0: container uploader exited with code 7 (its termination log is empty;"
        " see `edl logs ctr -c uploader -n ads`)",
    ),
    "a helper that a webhook put before the trainer": (
        named("istio", "trainer"),
        [ended("istio", 0), ended("trainer", 5, "no data")],
        [],
        5,
        "ctr-trainer-0 exited with code 5 (no data)",
    ),
    "the trainer, and a helper with it": (
        named("uploader", "trainer"),
        [ended("uploader", 143), ended("trainer", 5, "no data")],
        [],
        5,
        "ctr-trainer-0 exited with code 5 (no data)",
    ),
    "a native sidecar before the trainer began": (
        named("trainer"),
        [waiting("trainer", "PodInitializing"), ended("proxy", 1, "no certificate")],
        named("proxy", restartPolicy="Always"),
        1,
        "ctr-trainer-0: sidecar proxy exited with code 1 (no certificate)",
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_failure_is_that_of_the_container_that_failed(case: str) -> None:
    containers, states, init, code, said = ENDS[case]
    found = read("Failed", containers, states, init)
    assert found.exit_code == code
    assert describe_failure(found) == said


def test_the_main_container_of_a_pod_of_others_is_the_one_that_its_annotation_names() -> None:
    states = [ended("proxy", 0), ended("work", 4, "broken")]
    metadata = {"annotations": {"kubectl.kubernetes.io/default-container": "work"}}
    spec = {"containers": named("proxy", "work")}
    found = the_pod(
        pod("web", metadata=metadata, spec=spec, status={"phase": "Running", "containerStatuses": states})
    )
    assert (found.exit_code, found.container_message) == (4, "broken")


def test_what_a_helper_says_is_not_the_word_of_the_trainer() -> None:
    found = read(
        "Running", named("uploader", "trainer"), [ended("uploader", 0, "all sent"), status_of("trainer", running={})]
    )
    assert (found.exit_code, found.container_message) == (None, "")
