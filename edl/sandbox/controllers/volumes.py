"""Volume claims: a folder for each claim of the default StorageClass, and volumes that somebody made by hand.

A volume made by hand is bound to the claim that it names, else to the first claim of its StorageClass that asks
for no more than it has. Of several the smallest is taken. Once its claim is gone, it is Released, or deleted if its
policy says so; edl never touches what it holds.

Source: k8s.io/kubernetes pkg/controller/volume/persistentvolume, v1.36.
"""

from __future__ import annotations

from typing import Any

from edl.kube.client.session import ApiSession
from edl.model.quantity import parse_quantity
from edl.sandbox.controllers.loop import Informers, attempt, delete, path_of
from edl.sandbox.objects import is_deleted, labels_of, name_of, namespace_of, uid_of

Object = dict[str, Any]
CLAIM, VOLUME = "PersistentVolumeClaim", "PersistentVolume"
_MARKS = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}


class VolumeController:
    """Binds volume claims to volumes.

    Args:
        session: the API server.
        informers: the informers of PersistentVolumeClaim and PersistentVolume.
        storage_class: the class whose claims get a folder of the kubelet.
    """

    def __init__(self, session: ApiSession, informers: Informers, storage_class: str) -> None:
        self._session, self._informers, self._class = session, informers, storage_class

    async def run(self) -> None:
        """Bind claims forever."""
        await self._informers.after_each_change(self._bind_all)

    async def _bind_all(self) -> None:
        claims = {uid_of(claim): claim for claim in self._informers[CLAIM]}
        volumes = list(self._informers[VOLUME])
        for volume in volumes:
            await self._keep_phase(volume, claims)
        free = [volume for volume in volumes if _phase(volume) in {"Available", "Pending", ""}]
        for claim in claims.values():
            if is_deleted(claim) or _phase(claim) == "Bound":
                continue
            chosen = chosen_volume(claim, free)
            if chosen is not None:
                free.remove(chosen)
                await self._bind(claim, chosen)
            elif claim["spec"].get("storageClassName") == self._class:
                await self._bind_to_folder(claim)

    async def _keep_phase(self, volume: Object, claims: dict[str, Object]) -> None:
        """Set the phase of a volume: Available if new, Released if its claim is gone; or delete it then."""
        reference = volume["spec"].get("claimRef") or {}
        phase = "Available"
        if reference.get("uid"):
            phase = "Bound" if reference["uid"] in claims else "Released"
        if phase == "Released" and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            await delete(self._session, VOLUME, volume)
        elif _phase(volume) != phase:
            await self._patch(f"{path_of(volume, VOLUME)}/status", {"status": {"phase": phase}})

    async def _bind(self, claim: Object, volume: Object) -> None:
        reference = {
            "apiVersion": "v1",
            "kind": CLAIM,
            "namespace": namespace_of(claim),
            "name": name_of(claim),
            "uid": uid_of(claim),
        }
        path = path_of(volume, VOLUME)
        await self._patch(path, {"spec": {"claimRef": reference}})
        await self._patch(f"{path}/status", {"status": {"phase": "Bound"}})
        spec = volume["spec"]
        await self._complete(claim, name_of(volume), spec.get("accessModes") or [], spec.get("capacity") or {})

    async def _bind_to_folder(self, claim: Object) -> None:
        requests = (claim["spec"].get("resources") or {}).get("requests") or {}
        modes = claim["spec"].get("accessModes") or ["ReadWriteOnce"]
        await self._complete(claim, f"pvc-{uid_of(claim)}", modes, requests)

    async def _complete(self, claim: Object, volume: str, modes: list[str], capacity: Object) -> None:
        path = path_of(claim, CLAIM)
        if not claim["spec"].get("volumeName"):
            await self._patch(path, {"metadata": {"annotations": _MARKS}, "spec": {"volumeName": volume}})
        status = {"phase": "Bound", "accessModes": modes, "capacity": capacity}
        await self._patch(f"{path}/status", {"status": status})

    async def _patch(self, path: str, body: Object) -> None:
        await attempt(self._session.patch(path, body))


def chosen_volume(claim: Object, volumes: list[Object]) -> Object | None:
    """The volume made by hand that a claim is bound to; None if there is none."""
    fitting = [volume for volume in volumes if not is_deleted(volume) and _fits(claim, volume)]
    named = [volume for volume in fitting if volume["spec"].get("claimRef")]
    ordered = sorted(named or fitting, key=lambda volume: (_size(volume["spec"].get("capacity")), name_of(volume)))
    return ordered[0] if ordered else None


def _fits(claim: Object, volume: Object) -> bool:
    wanted, spec = claim["spec"], volume["spec"]
    if reference := spec.get("claimRef"):
        is_named = (reference.get("namespace"), reference.get("name")) == (namespace_of(claim), name_of(claim))
        if not is_named or reference.get("uid") not in {None, "", uid_of(claim)}:
            return False
    if wanted.get("volumeName") not in {None, "", name_of(volume)}:
        return False
    labels = (wanted.get("selector") or {}).get("matchLabels") or {}
    return (
        (wanted.get("storageClassName") or "") == (spec.get("storageClassName") or "")
        and set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
        and (wanted.get("volumeMode") or "Filesystem") == (spec.get("volumeMode") or "Filesystem")
        and labels.items() <= labels_of(volume).items()
        and _size((wanted.get("resources") or {}).get("requests")) <= _size(spec.get("capacity"))
    )


def _size(amounts: Object | None) -> int:
    return parse_quantity((amounts or {}).get("storage", "0"), "storage")


def _phase(obj: Object) -> str:
    return str((obj.get("status") or {}).get("phase") or "")
