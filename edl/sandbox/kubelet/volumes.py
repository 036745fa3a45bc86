"""The volumes of a pod as folders of this machine.

emptyDir, Secret, ConfigMap, downward API and projected volumes are folders of the pod, and go with it. A volume claim
is a folder of the kubelet that outlives the pod. A hostPath is the path itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edl.errors import ConfigError
from edl.sandbox.kubelet.environment import Find, MissingReferenceError, data_of, field_of, resource_of

Object = dict[str, Any]
Token = Callable[[Object, Object], Awaitable[str]]
"""(pod, source of a projected volume) -> a token of the ServiceAccount."""

_MODE = 0o644
_DATA = {"secret": "Secret", "configMap": "ConfigMap"}


@dataclass(frozen=True, slots=True)
class VolumeSources:
    """The folders and objects from which volumes are made.

    Attributes:
        find: finds Secrets, ConfigMaps and claims in the namespace of the pod, and the volumes of these claims.
        token: requests a token.
        node: the node of the pod.
        claims: folder of the volume claims of all pods.
    """

    find: Find
    token: Token
    node: Object
    claims: Path


async def prepare_volumes(pod: Object, folder: Path, sources: VolumeSources) -> dict[str, Path]:
    """Make the folders of a pod's volumes.

    Args:
        pod: the pod.
        folder: for its volumes.
        sources: what they are made of.

    Returns:
        Volume -> folder.

    Raises:
        MissingReferenceError: an object does not exist yet.
        ConfigError: this kubelet does not know such a volume.
        OSError: the disk is full, or a path cannot be made.
    """
    found: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes") or ():
        found[volume["name"]] = await _prepare(pod, volume, folder / volume["name"], sources)
    return found


async def _prepare(pod: Object, volume: Object, folder: Path, sources: VolumeSources) -> Path:
    if "hostPath" in volume:
        return _host_path(volume["hostPath"])
    if "persistentVolumeClaim" in volume:
        claim = volume["persistentVolumeClaim"]["claimName"]
        if made := _made_by_hand(claim, sources):
            return made
        folder = sources.claims / pod["metadata"]["namespace"] / claim
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    if "emptyDir" in volume:
        return folder
    for kind in ("secret", "configMap", "downwardAPI"):
        if kind in volume:
            _write_files(folder, await _files(pod, {kind: volume[kind]}, sources))
            return folder
    if "projected" in volume:
        for source in volume["projected"].get("sources") or ():
            _write_files(folder, await _files(pod, source, sources))
        return folder
    kinds = ", ".join(key for key in volume if key != "name")
    raise ConfigError(
        f"volume {volume['name']}: the process kubelet knows no {kinds} volumes; use emptyDir, hostPath, secret,"
        " configMap, downwardAPI, projected or persistentVolumeClaim"
    )


def _made_by_hand(claim: str, sources: VolumeSources) -> Path | None:
    """The path of a claim's volume if somebody made it by hand; None for a folder that the sandbox has made.

    Raises:
        ConfigError: the volume is of a kind that this kubelet does not know.
    """
    stored = sources.find("PersistentVolumeClaim", claim) or {}
    volume = sources.find("PersistentVolume", (stored.get("spec") or {}).get("volumeName") or "")
    if volume is None:
        return None
    spec = volume["spec"]
    if "hostPath" in spec:
        return _host_path(spec["hostPath"])
    if "local" in spec:
        return Path(spec["local"]["path"])
    raise ConfigError(
        f"volume {volume['metadata']['name']}: the process kubelet knows hostPath and local volumes only"
    )


def _host_path(source: Object) -> Path:
    path, kind = Path(source["path"]), source.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    if kind == "Directory" and not path.is_dir():
        raise MissingReferenceError(f"hostPath {path} is not a directory")
    return path


async def _files(pod: Object, source: Object, sources: VolumeSources) -> dict[str, bytes]:
    """The files of one source: path -> content."""
    for field, kind in _DATA.items():
        if reference := source.get(field):
            name = reference.get("secretName") or reference.get("name")
            obj = sources.find(kind, name)
            if obj is None and not reference.get("optional"):
                raise MissingReferenceError(f'{kind.lower()} "{name}" not found')
            return _chosen(data_of(obj or {}, kind), reference, f"{kind.lower()} {name}")
    if token := source.get("serviceAccountToken"):
        return {token["path"]: (await sources.token(pod, token)).encode()}
    items: Iterable[Object] = (source.get("downwardAPI") or {}).get("items") or ()
    return {item["path"]: _downward(pod, item, sources.node).encode() for item in items}


def _downward(pod: Object, item: Object, node: Object) -> str:
    if "fieldRef" in item:
        return field_of(pod, item["fieldRef"]["fieldPath"])
    return resource_of(pod, pod["spec"]["containers"][0], node, item["resourceFieldRef"])


def _chosen(data: dict[str, bytes], reference: Object, what: str) -> dict[str, bytes]:
    items = reference.get("items")
    if not items:
        return data
    missing = [item["key"] for item in items if item["key"] not in data]
    if missing and not reference.get("optional"):
        raise MissingReferenceError(f"{what} has no key {missing[0]}")
    return {item["path"]: data[item["key"]] for item in items if item["key"] in data}


def _write_files(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"a volume has the path {name!r}, which leaves the volume; use a path below it")
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_bytes(content)
        new.chmod(_MODE)
        new.replace(path)


async def until_ready(
    attempt: Callable[[], Awaitable[dict[str, Path]]], report: Callable[[str], Awaitable[None]], pause_s: float
) -> dict[str, Path]:
    """Make the folders of the volumes, trying again while an object is missing or the disk is full.

    Args:
        attempt: makes them.
        report: is given each new problem.
        pause_s: between two attempts.
    """
    reported = ""
    while True:
        try:
            return await attempt()
        except (ConfigError, OSError) as error:
            if str(error) != reported:
                reported = str(error)
                await report(reported)
        await asyncio.sleep(pause_s)
