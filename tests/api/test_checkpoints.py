"""A job is warned if what its trainers save goes with their pods."""

from __future__ import annotations

from typing import Any

import pytest

from edl.api.checkpoints import checkpoints_warning
from edl.api.v1 import parse_job
from tests.worlds.hostile.manifests import make_manifest

Object = dict[str, Any]
CLAIM: Object = {"name": "models", "persistentVolumeClaim": {"claimName": "models"}}
EMPTY: Object = {"name": "models", "emptyDir": {}}


def warning(folder: Object, mounts: list[str], volume: Object = CLAIM, **spec: Any) -> str:
    """The warning about a job with this variable and these mounts of the volume in the template of its trainer."""
    job = make_manifest(**spec)
    container = {
        "name": "trainer",
        "env": [{"name": "EDL_CHECKPOINTS", **folder}],
        "volumeMounts": [{"name": volume["name"], "mountPath": path} for path in mounts],
    }
    job["spec"]["trainer"] |= {
        "workspace": "/work",
        "template": {"spec": {"containers": [container], "volumes": [volume]}},
    }
    return checkpoints_warning(parse_job(job))


@pytest.mark.parametrize(
    ("folder", "mounts", "volume"),
    [
        ("/ckpt", [], CLAIM),
        ("/ckpt", ["/data"], CLAIM),
        ("/checkpoints", ["/check"], CLAIM),
        ("models", ["/models"], CLAIM),
        ("/data/../ckpt", ["/data"], CLAIM),
        ("/ckpt/a", ["/ckpt"], EMPTY),
        ("/ckpt/a", ["/ckpt"], {"name": "models"}),
    ],
)
def test_a_folder_that_goes_with_the_pod_is_named_with_the_remedy(
    folder: str, mounts: list[str], volume: Object
) -> None:
    text = warning({"value": folder}, mounts, volume)
    assert text.startswith(f"EDL_CHECKPOINTS of the trainer is {folder}, but ")
    assert ("volume models there is an emptyDir" in text) is (folder == "/ckpt/a")
    assert text.endswith("; mount a persistentVolumeClaim or a hostPath there")


@pytest.mark.parametrize(
    ("folder", "mounts", "volume"),
    [
        ({"value": "/ckpt"}, ["/ckpt"], CLAIM),
        ({"value": "/ckpt/run/1"}, ["/ckpt/"], CLAIM),
        ({"value": "models"}, ["/work"], CLAIM),
        ({"value": "/ckpt"}, ["/"], CLAIM),
        ({"value": "/ckpt"}, ["/ckpt"], {"name": "models", "hostPath": {"path": "/srv"}}),
        ({"value": "$(ROOT)/ckpt"}, [], CLAIM),
        ({"value": ""}, [], CLAIM),
        ({"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, [], CLAIM),
    ],
)
def test_a_folder_that_is_kept_or_not_known_is_not(folder: Object, mounts: list[str], volume: Object) -> None:
    assert warning(folder, mounts, volume) == ""


def test_mounts_of_the_whole_job_count() -> None:
    both: Object = {
        "volumes": [{"name": "shared", "hostPath": {"path": "/srv"}}],
        "volumeMounts": [{"name": "shared", "mountPath": "/ckpt"}],
    }
    assert warning({"value": "/ckpt"}, [], **both) == ""
    assert warning({"value": "/other"}, [], **both) != ""


def test_a_job_without_the_variable_is_not_warned() -> None:
    assert checkpoints_warning(parse_job(make_manifest())) == ""
