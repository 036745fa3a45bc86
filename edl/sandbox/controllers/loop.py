"""What the controllers share: informers of several collections, and a loop that runs after each change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from edl.errors import ConflictError, EdlError
from edl.kube.client.api_errors import AlreadyExistsError, NotFoundError
from edl.kube.client.session import ApiSession, Propagation
from edl.observability.logs import log_event
from edl.sandbox.informer import Informer, Wakeup
from edl.sandbox.objects import name_of, namespace_of, uid_of

Object = dict[str, Any]
COLLECTIONS = {
    "Pod": "/api/v1/pods",
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "Service": "/api/v1/services",
    "Endpoints": "/api/v1/endpoints",
    "Secret": "/api/v1/secrets",
    "ConfigMap": "/api/v1/configmaps",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "Deployment": "/apis/apps/v1/deployments",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "Job": "/apis/batch/v1/jobs",
    "ResourceClaim": "/apis/resource.k8s.io/v1/resourceclaims",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/resourceclaimtemplates",
    "Lease": "/apis/coordination.k8s.io/v1/leases",
    "TrainingJob": "/apis/paddlepaddle.org/v1/trainingjobs",
}
LONGEST_S = 5.0
_log = logging.getLogger(__name__)


class Informers:
    """The collections that controllers read; each is watched once.

    Args:
        session: the API server.
        kinds: the kinds of COLLECTIONS.
    """

    def __init__(self, session: ApiSession, kinds: list[str]) -> None:
        self.session = session
        self._wakeups: list[Wakeup] = []
        self._informers = {kind: Informer(session, kind, COLLECTIONS[kind], self._wake) for kind in kinds}

    def __getitem__(self, kind: str) -> Informer:
        return self._informers[kind]

    def __iter__(self) -> Any:  # noqa: ANN401 - pairs of kind and informer
        return iter(self._informers.items())

    async def run(self) -> None:
        """Keep all collections up to date forever."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run())

    async def wait_until_synced(self) -> None:
        """Wait until each collection is listed once."""
        await asyncio.gather(*(informer.wait_until_synced() for informer in self._informers.values()))

    async def after_each_change(self, reconcile: Callable[[], Awaitable[None]]) -> None:
        """Call `reconcile` once all collections are listed, then after each change, at least every LONGEST_S."""
        wakeup = Wakeup()
        self._wakeups.append(wakeup)
        await self.wait_until_synced()
        while True:
            await reconcile()
            await wakeup.wait(LONGEST_S)

    def _wake(self) -> None:
        for wakeup in self._wakeups:
            wakeup.set()


def path_of(obj: Object, kind: str = "") -> str:
    """The path of an object at the API server."""
    collection = COLLECTIONS[kind or obj["kind"]]
    head, _, plural = collection.rpartition("/")
    namespace = namespace_of(obj)
    return f"{head}/namespaces/{namespace}/{plural}/{name_of(obj)}" if namespace else f"{collection}/{name_of(obj)}"


def collection_of(kind: str, namespace: str) -> str:
    """The path of a collection in a namespace."""
    head, _, plural = COLLECTIONS[kind].rpartition("/")
    return f"{head}/namespaces/{namespace}/{plural}"


async def attempt(call: Awaitable[Any]) -> bool:
    """Make a call whose failure does not matter, because the next round repeats it; True if it succeeded."""
    try:
        await call
    except (NotFoundError, ConflictError, AlreadyExistsError):
        return False
    except EdlError as error:
        log_event(_log, logging.WARNING, "a write failed", err=str(error))
        return False
    return True


async def delete(session: ApiSession, kind: str, obj: Object, propagation: Propagation = "Background") -> bool:
    """Delete an object, if it still has the same UID."""
    return await attempt(session.delete(path_of(obj, kind), uid=uid_of(obj), propagation=propagation))


async def read(session: ApiSession, path: str) -> Object | None:
    """Read an object; None if there is none."""
    try:
        found: Object = msgspec.json.decode(await session.get(path))
    except NotFoundError:
        return None
    return found
