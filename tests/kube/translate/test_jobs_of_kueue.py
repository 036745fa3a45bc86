"""A TrainingJob that names a queue of Kueue."""

from __future__ import annotations

from typing import Any

import pytest

from edl.kube.translate.decoders import TRAINING_JOBS, Quarantined
from edl.kube.translate.jobs import JobReader
from edl.kube.translate.objects import JobObject
from edl.model.jobs import Job
from edl.model.names import KUEUE_PRIORITY, KUEUE_QUEUE, JobKey
from edl.model.quota_trees import KueueState

KEY = JobKey("default", "a")
SPEC = {
    "fault_tolerant": True,
    "trainer": {"min-instance": 2, "max-instance": 8, "resources": {"requests": {"cpu": "1"}}},
}


def source(
    labels: dict[str, str], status: dict[str, Any] | None = None, spec: dict[str, Any] | None = None
) -> JobObject:
    metadata = {"name": "a", "namespace": "default", "uid": "u", "generation": 1, "labels": labels}
    found = TRAINING_JOBS.from_dict(
        {
            "apiVersion": "paddlepaddle.org/v1",
            "kind": "TrainingJob",
            "metadata": metadata,
            "spec": SPEC | (spec or {}),
        }
        | ({"status": status} if status else {})
    )
    assert not isinstance(found, Quarantined), found
    return found


def read(labels: dict[str, str], spec: dict[str, Any] | None = None, **more: Any) -> Job:
    return JobReader().read(source(labels, spec=spec, **more), KEY, (), 0.0)


def test_kueue_admits_it() -> None:
    job = read({KUEUE_QUEUE: "team-a", KUEUE_PRIORITY: "high"})
    assert job.kueue == KueueState("team-a", "trainer", is_owned=True, priority_class="high")
    assert job.problem == ""


def test_a_label_that_comes_or_goes_counts_at_once() -> None:
    reader = JobReader()
    assert reader.read(source({}), KEY, (), 0.0).kueue is None
    assert reader.read(source({KUEUE_QUEUE: "team-a"}), KEY, (), 1.0).kueue is not None
    assert reader.read(source({}), KEY, (), 2.0).kueue is None


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"queue": "blue"}, "names a queue of Kueue, and spec.queue blue one of edl; remove one of both"),
        ({"trainer": {"min-instance": 2, "max-instance": 8}}, "needs trainers that request cpu or memory"),
    ],
)
def test_what_kueue_cannot_count_does_not_start_and_says_what_to_do(spec: dict[str, Any], words: str) -> None:
    assert words in read({KUEUE_QUEUE: "team-a"}, spec).problem
    assert not read({}, spec).problem
    started = {"phase": "Running", "startTime": "2026-01-02T03:04:05Z"}
    assert not read({KUEUE_QUEUE: "team-a"}, spec, status=started).problem, "a label that is added ends no job"
