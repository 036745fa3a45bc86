"""What saved files lack of the queues of Kueue that jobs name is said, with what to save."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from tests.kube.translate.kueue.test_owned import queued
from tests.worlds.kueue.objects import cluster_queue, flavor, kueue_job, local_queue
from tests.worlds.kueue.owned_jobs import owned_batch_job, owned_pytorch_job
from tests.worlds.raw_objects import Object, batch_job

ALL = (flavor(), cluster_queue("blue"), local_queue("blue"))
SAVE = "save it with the other objects of Kueue: kubectl get localqueues.kueue.x-k8s.io,"


def warnings(*objects: Object) -> list[str]:
    """What is said about a file with these objects, as far as it concerns Kueue."""
    saved = read_snapshot_texts([("file", json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))])
    return [line for line in saved.warnings() if "Kueue" in line]


def new(body: Object) -> Object:
    """An object that its owner has written."""
    del body["metadata"]["uid"]
    return body


@pytest.mark.parametrize("make", [queued, kueue_job, owned_batch_job, owned_pytorch_job])
def test_a_queue_that_is_not_in_the_files_is_named_with_what_to_save(make: Any) -> None:
    (line,) = warnings(make())
    assert "the plan gives it nothing, because LocalQueue ads/blue is not in the files" in line
    assert SAVE in line
    (line,) = warnings(make(), flavor(), local_queue("blue"))
    assert "because ClusterQueue blue of LocalQueue ads/blue is not in the files" in line
    (line,) = warnings(make(), cluster_queue("blue"), local_queue("blue"))
    assert "ResourceFlavor a of ClusterQueue blue is not in the files, so the plan takes all nodes" in line
    assert warnings(make(), *ALL) == []


def test_jobs_of_one_queue_are_named_once() -> None:
    (line,) = warnings(kueue_job("a"), kueue_job("b"), kueue_job("c"))
    assert line.startswith("job ads/job.batch/a and 2 more: the plan gives it nothing")


def test_jobs_that_ask_nothing_of_edl_are_not_named() -> None:
    asks_nothing = kueue_job(annotations={"paddlepaddle.org/elastic": "false"})
    assert warnings(batch_job(), asks_nothing) == []


def test_a_new_job_that_kueue_would_take_for_itself_is_named() -> None:
    default = local_queue("default", "blue")
    (line,) = warnings(new(owned_batch_job()), *ALL, default)
    assert line.startswith(
        "job ads/job.batch/train: namespace ads has a LocalQueue named default, so Kueue gives the"
    )
    assert warnings(owned_batch_job(), *ALL, default) == [], "it exists, and Kueue has given it no label"
    assert warnings(new(kueue_job()), *ALL, default) == []
    assert warnings(new(owned_batch_job()), *ALL, local_queue("default", "blue", "other")) == []
