"""A namespace that is being deleted gets no new pods, which a plan from files says."""

from __future__ import annotations

import yaml

from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from tests.worlds.rules.scenes import Object, job, members, nodes


def warnings(*objects: Object) -> list[str]:
    return list(read_snapshot_texts([("now.yaml", yaml.safe_dump_all(objects))]).not_asked())


def test_pods_to_come_in_a_namespace_that_is_being_deleted_are_refused() -> None:
    namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    scene = (*nodes(1), job("t"), *members("t", "n0"))
    assert warnings(*scene, namespace) == []
    namespace["metadata"]["deletionTimestamp"] = "2026-01-05T10:00:00Z"
    assert warnings(*scene, namespace) == [
        "namespace default is being deleted, so the API server refuses the pods of job default/t; use another one"
    ]
    assert warnings(*scene, {**namespace, "metadata": {**namespace["metadata"], "name": "ads"}}) == []
