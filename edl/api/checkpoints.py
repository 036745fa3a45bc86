"""Whether what a trainer saves outlives its pod.

Trainers save checkpoints and the trained model below `EDL_CHECKPOINTS`. Where no volume is mounted, they go with the
pod, and nothing else would say so before they are needed.
"""

from __future__ import annotations

from posixpath import join, normpath
from typing import Any

from edl.api.pods import pod_manifest
from edl.api.v1 import TrainingJob
from edl.model.names import Role

CHECKPOINTS = "EDL_CHECKPOINTS"

Object = dict[str, Any]


def checkpoints_warning(job: TrainingJob) -> str:
    """Why the folder of `EDL_CHECKPOINTS` is lost with the pod of a trainer; empty if it is kept, or not known.

    Args:
        job: a valid job.
    """
    if not _names_folder(job):
        return ""
    spec = pod_manifest(job, Role.TRAINER, 0, default_master_image="", priority_classes=())["spec"]
    main = spec["containers"][0]
    value = next((one.get("value") or "" for one in main["env"] if one["name"] == CHECKPOINTS), "")
    if not value or "$(" in value:
        return ""
    folder = normpath(join("/", main.get("workingDir") or "", job.spec.trainer.workspace, value))
    mount = _mount_of(folder, main)
    if mount is None:
        why = "but no volume is mounted there"
    elif _is_kept(mount["name"], spec):
        return ""
    else:
        why = f"but volume {mount['name']} there is an emptyDir"
    return (
        f"{CHECKPOINTS} of the trainer is {value[:120]}, {why}, so checkpoints and the model are lost with the pod;"
        " mount a persistentVolumeClaim or a hostPath there"
    )


def _names_folder(job: TrainingJob) -> bool:
    """Return True if the trainer's template sets the variable of the folder of checkpoints.

    No pod is built for this.
    """
    template = job.spec.trainer.template
    written = template.spec.as_dict() if template and template.spec else {}
    containers = (one for one in written.get("containers") or () if one.get("name") == Role.TRAINER.value)
    parts = (written, *containers)
    return any(one.get("name") == CHECKPOINTS for part in parts for one in part.get("env") or ())


def _mount_of(folder: str, container: Object) -> Object | None:
    """The mount that holds a folder: the deepest one at it or above it."""
    places = {normpath(mount["mountPath"]): mount for mount in container.get("volumeMounts") or ()}
    holding = [path for path in places if path == folder or folder.startswith(path.rstrip("/") + "/")]
    return places[max(holding, key=len)] if holding else None


def _is_kept(name: str, spec: Object) -> bool:
    """True if the volume is not an emptyDir, which is also that of a volume without a source."""
    volume: Object = next((one for one in spec.get("volumes") or () if one["name"] == name), {"name": name})
    return "emptyDir" not in volume and bool(volume.keys() - {"name"})
