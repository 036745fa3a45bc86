"""Makes and deletes Workloads of Kueue, and tells Kueue about their pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Protocol

import msgspec

from edl.api.v1 import TrainingJob
from edl.clock import Clock
from edl.errors import ConflictError, TemporaryError
from edl.kube.client.api_errors import AlreadyExistsError, NotFoundError, RefusedError
from edl.kube.client.session import ApiSession
from edl.kube.kueue.objects import OwnerOfWorkloads, owner_of_training_job, status_patch, workload_manifest
from edl.kube.kueue.owners import owner_of_workload
from edl.kube.translate.kueue.objects import API, FlavorSpec
from edl.kube.workloads.registry import SUSPENDING
from edl.model.actions import (
    ChangeWorkloads,
    NewWorkload,
    ReportWorkloads,
    Result,
    WorkloadAction,
    WorkloadReport,
)
from edl.model.names import ANNOTATION_KUEUE_PRIORITY, WorkloadKind

_REQUESTS_AT_ONCE = 8
_CLASSES = f"/apis/{API}/workloadpriorityclasses"


class CacheOfKueue(Protocol):
    """The part of the cache that these writes use."""

    def flavors(self, names: Collection[str]) -> list[FlavorSpec]:
        """Return the ResourceFlavors of these names that exist."""

    def answered(self, kind: str, body: dict[str, Any]) -> None:
        """Store an object as the API server has answered."""

    def deleted(self, kind: str, key: tuple[str, str], uid: str, answer: dict[str, Any]) -> None:
        """Store what the API server has answered to the deletion of the object with that UID."""


class WorkloadWriter:
    """Carries out what concerns the Workloads that edl makes.

    Args:
        session: the API server.
        cache: stores the answers.
        clock: for the times of conditions.
        master_image: the image of a master whose job names none.
        timeout_s: for all requests of one action together.
    """

    def __init__(
        self, session: ApiSession, cache: CacheOfKueue, clock: Clock, *, master_image: str, timeout_s: float
    ) -> None:
        self._session, self._cache, self._clock = session, cache, clock
        self._master_image, self._timeout_s = master_image, timeout_s

    async def carry_out(self, action: WorkloadAction, job_of: Callable[[WorkloadAction], TrainingJob]) -> Result:
        """Delete Workloads, then make others; or set conditions, each in the very version that was read.

        What was done by a failed attempt is not done again.

        Args:
            action: what to do.
            job_of: returns the TrainingJob of an action; what one that is not valid any more has left can be deleted.

        Raises:
            EdlError: a request failed.
        """
        if isinstance(action, ReportWorkloads):
            await self._all(self._report(action.job.namespace, one) for one in action.reports)
            return Result.DONE
        await self._all(self._delete(action, name, uid) for name, uid in action.gone)
        if action.new:
            if action.job.kind is WorkloadKind.TRAINING_JOB:
                owner = owner_of_training_job(job_of(action), self._master_image)
            else:
                owner = await self._owner(action)
            priority = await self._priority(action)
            await self._all(self._create(action, owner, one, priority) for one in action.new)
        return Result.DONE

    async def _owner(self, action: ChangeWorkloads) -> OwnerOfWorkloads:
        """Read the object whose controller makes the pods: the cache has not all of its pod template.

        Raises:
            ConflictError: it was deleted, or another object has its name now.
        """
        adapter = SUSPENDING[action.job.kind]
        version, _, plural = adapter.api
        path = f"/apis/{version}/namespaces/{action.job.namespace}/{plural}/{action.job.object_name}"
        try:
            raw = await self._session.get(path, timeout_s=self._timeout_s)
        except NotFoundError as error:
            raise ConflictError(f"{action.job} was deleted") from error
        return owner_of_workload(adapter, msgspec.json.decode(raw), action)

    async def _all(self, requests: Any) -> None:  # noqa: ANN401 - coroutines
        """Run requests beside each other, a few at once; the first failure is raised once all have ended.

        Raises:
            TemporaryError: they took too long.
        """
        places = asyncio.Semaphore(_REQUESTS_AT_ONCE)

        async def run(request: Any) -> None:  # noqa: ANN401
            async with places:
                await request

        try:
            async with asyncio.timeout(self._timeout_s):
                ended = await asyncio.gather(*map(run, requests), return_exceptions=True)
        except TimeoutError as error:
            raise TemporaryError(f"requests about Workloads took longer than {self._timeout_s:g} s") from error
        for problem in ended:
            if isinstance(problem, BaseException):
                raise problem

    async def _create(
        self, action: ChangeWorkloads, owner: OwnerOfWorkloads, one: NewWorkload, priority: int
    ) -> None:
        flavors = self._cache.flavors(action.flavors)
        body = workload_manifest(owner, one, action, priority=priority, flavors=flavors)
        path = _path(action.job.namespace)
        try:
            stored = await self._session.post(path, body, timeout_s=self._timeout_s)
        except AlreadyExistsError:
            stored = await self._read(action.job.namespace, body["metadata"]["name"])
            owners = stored["metadata"].get("ownerReferences") or ()
            if not any(owner.get("uid") == action.job_uid for owner in owners):
                raise RefusedError(
                    f"job {action.job}: Workload {action.job.namespace}/{body['metadata']['name']} exists and does"
                    " not belong to the job; delete it",
                    code=409,
                    reason="NameTaken",
                ) from None
        self._cache.answered("Workload", stored)

    async def _delete(self, action: ChangeWorkloads, name: str, uid: str) -> None:
        key = action.job.namespace, name
        try:
            answer = await self._session.delete(_path(*key), uid=uid, timeout_s=self._timeout_s)
        except NotFoundError:
            answer = {}
        self._cache.deleted("Workload", key, uid, answer)

    async def _report(self, namespace: str, report: WorkloadReport) -> None:
        try:
            found = await self._read(namespace, report.name)
        except NotFoundError:
            return
        if found["metadata"].get("uid") != report.uid:
            raise ConflictError(f"another Workload has the name {namespace}/{report.name} now")
        patch = status_patch(found, report, self._clock.now_s())
        if patch is not None:
            path = f"{_path(namespace, report.name)}/status"
            found = await self._session.patch(path, patch, timeout_s=self._timeout_s)
        self._cache.answered("Workload", found)

    async def _read(self, namespace: str, name: str) -> dict[str, Any]:
        raw = await self._session.get(_path(namespace, name), timeout_s=self._timeout_s)
        found: dict[str, Any] = msgspec.json.decode(raw)
        return found

    async def _priority(self, action: ChangeWorkloads) -> int:
        """The priority of the job: that of the class that it names, else 0.

        Raises:
            RefusedError: the class does not exist.
        """
        name = action.priority_class
        if not name:
            return 0
        try:
            raw = await self._session.get(f"{_CLASSES}/{name}", timeout_s=self._timeout_s)
        except NotFoundError as error:
            is_own = action.job.kind is WorkloadKind.TRAINING_JOB
            where = "label kueue.x-k8s.io/priority-class" if is_own else f"annotation {ANNOTATION_KUEUE_PRIORITY}"
            raise RefusedError(
                f"job {action.job}: WorkloadPriorityClass {name} does not exist; create it, or correct {where}",
                code=422,
                reason="PriorityClassMissing",
            ) from error
        return int(msgspec.json.decode(raw).get("value") or 0)


def _path(namespace: str, name: str = "") -> str:
    base = f"/apis/{API}/namespaces/{namespace}/workloads"
    return f"{base}/{name}" if name else base
