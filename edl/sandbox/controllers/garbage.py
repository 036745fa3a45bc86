"""The garbage collector: deletes dependents of objects that are gone, and carries out finalizers of deletion.

Source: https://kubernetes.io/docs/concepts/architecture/garbage-collection/

- in the background (the default): dependents go once no owner of theirs exists;
- in the foreground (finalizer `foregroundDeletion`): dependents go first, then the owner;
- orphan (finalizer `orphan`): dependents lose the reference to the owner, then it goes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from edl.kube.client.session import ApiSession
from edl.sandbox.controllers.loop import Informers, attempt, delete, path_of, read
from edl.sandbox.objects import is_deleted, namespace_of, uid_of

Object = dict[str, Any]
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class GarbageCollector:
    """Collects the garbage among the kinds that its informers watch.

    Args:
        session: the API server.
        informers: the informers of every kind that owns or is owned.
    """

    def __init__(self, session: ApiSession, informers: Informers) -> None:
        self._session, self._informers = session, informers

    async def run(self) -> None:
        """Collect forever."""
        await self._informers.after_each_change(self.collect)

    async def collect(self) -> None:
        """Check all objects once."""
        everything = [(kind, obj) for kind, informer in self._informers for obj in informer]
        alive = {uid_of(obj) for _, obj in everything}
        dependents: dict[str, list[tuple[str, Object]]] = {}
        for kind, obj in everything:
            for owner in _owners(obj):
                dependents.setdefault(owner["uid"], []).append((kind, obj))
        work = [
            self._finish(kind, obj, dependents.get(uid_of(obj), [])) for kind, obj in everything if is_deleted(obj)
        ]
        work += [self._check_orphan(kind, obj, alive) for kind, obj in everything if _owners(obj)]
        await asyncio.gather(*work)

    async def _check_orphan(self, kind: str, obj: Object, alive: set[str]) -> None:
        """Delete an object none of whose owners exists; drop references to owners that are gone if another lives."""
        if is_deleted(obj):
            return
        gone = [one for one in _owners(obj) if one["uid"] not in alive and not await self._exists(obj, one)]
        if not gone:
            return
        if len(gone) == len(_owners(obj)):
            await delete(self._session, kind, obj)
        else:
            await self._drop(kind, obj, {one["uid"] for one in gone})

    async def _exists(self, obj: Object, owner: Object) -> bool:
        """Ask the API server if an owner exists: an informer may be late, or may not watch its kind."""
        try:
            path = path_of({"metadata": {**owner, "namespace": _namespace(obj, owner["kind"])}}, owner["kind"])
        except KeyError:
            return True
        found = await read(self._session, path)
        return found is not None and uid_of(found) == owner["uid"]

    async def _finish(self, kind: str, obj: Object, dependents: list[tuple[str, Object]]) -> None:
        """Do what the finalizers of a deleted object ask for."""
        finalizers = obj["metadata"].get("finalizers") or []
        if ORPHAN in finalizers:
            for one, dependent in dependents:
                await self._drop(one, dependent, {uid_of(obj)})
            await self._remove_finalizer(kind, obj, ORPHAN)
        elif FOREGROUND in finalizers:
            blocking = [(one, dependent) for one, dependent in dependents if _blocks(dependent, uid_of(obj))]
            for one, dependent in dependents:
                if not is_deleted(dependent):
                    await delete(self._session, one, dependent, "Foreground")
            if not blocking:
                await self._remove_finalizer(kind, obj, FOREGROUND)

    async def _drop(self, kind: str, obj: Object, uids: set[str]) -> None:
        """Remove references to owners from an object."""
        kept = [one for one in _owners(obj) if one["uid"] not in uids]
        body = {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"], "ownerReferences": kept or None}}
        await attempt(self._session.patch(path_of(obj, kind), body))

    async def _remove_finalizer(self, kind: str, obj: Object, name: str) -> None:
        kept = [one for one in obj["metadata"]["finalizers"] if one != name]
        body = {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"], "finalizers": kept or None}}
        await attempt(self._session.patch(path_of(obj, kind), body))


def _owners(obj: Object) -> list[Object]:
    return obj["metadata"].get("ownerReferences") or []


def _blocks(dependent: Object, owner: str) -> bool:
    return any(one["uid"] == owner and one.get("blockOwnerDeletion") for one in _owners(dependent))


def _namespace(obj: Object, owner_kind: str) -> str:
    return "" if owner_kind in {"Node", "Namespace"} else namespace_of(obj)
