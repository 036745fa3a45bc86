"""A workload whose own controller makes the pods, as the owner of the Workloads that edl makes for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edl.errors import ConflictError
from edl.kube.kueue.objects import OwnerOfWorkloads
from edl.kube.workloads.adapter import SuspendingAdapter
from edl.kube.workloads.owned_by_kueue import added_to, owner_pod_spec
from edl.model.actions import ChangeWorkloads
from edl.model.names import Role


def owner_of_workload(
    adapter: SuspendingAdapter, body: Mapping[str, Any], action: ChangeWorkloads
) -> OwnerOfWorkloads:
    """Return the object for which Workloads are made, with the pod template as its user wrote it.

    Args:
        adapter: of its kind.
        body: the object as the API server stores it.
        action: for which the object was read.

    Raises:
        ConflictError: another object has the name now, or the object cannot be read.
    """
    source = adapter.decoder.from_dict(dict(body))
    metadata = getattr(source, "metadata", None)
    if metadata is None or metadata.uid != action.job_uid:
        raise ConflictError(f"another object has the name of {action.job} now")
    version, kind, _ = adapter.api
    template = body["spec"]
    for name in adapter.template_path:
        template = template[name]
    reference = {
        "apiVersion": version,
        "kind": kind,
        "name": action.job.object_name,
        "uid": action.job_uid,
        "controller": True,
    }
    pods = {Role.TRAINER: owner_pod_spec(template["spec"], added_to(metadata))}
    return OwnerOfWorkloads(action.job.namespace, action.job.object_name, action.job_uid, reference, pods)
