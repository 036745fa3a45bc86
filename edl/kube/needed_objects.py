"""What the pods of a job need besides themselves: a Service, a Secret, the claim of the journal, a PodGroup.

edl creates each of them and never deletes one: garbage collection does, with the job.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from edl.api.manifest import service_manifest, token_secret_manifest
from edl.api.v1 import TrainingJob
from edl.clock import Clock
from edl.kube.client.api_errors import AlreadyExistsError, RefusedError
from edl.kube.client.session import ApiSession
from edl.kube.journal_claims import JournalClaims
from edl.kube.master_key import MasterKey, make_token
from edl.kube.pod_groups import pod_group
from edl.kube.translate.status_body import contains
from edl.model.actions import Action, EnsureClaim, EnsurePodGroup, EnsureSecret, EnsureService, Need

ReadOwn = Callable[[str, str, Action], Awaitable[dict[str, Any]]]
"""Reads the object that has the name of a new one, from (kind and name, path, action); see `Writer._existing`."""


class NeededObjects:
    """Creates the objects, unless they exist.

    Args:
        session: the API server.
        clock: for the age of what is remembered about the default StorageClass.
        read_own: reads an object that exists already; an error if it is not the job's.
        key: makes the tokens of masters.
        master_image: the image of a master whose job names none.
        timeout_s: timeout of each request.
    """

    def __init__(
        self,
        session: ApiSession,
        clock: Clock,
        read_own: ReadOwn,
        *,
        key: MasterKey,
        master_image: str,
        timeout_s: float,
    ) -> None:
        self._session, self._read_own, self._timeout_s = session, read_own, timeout_s
        self._key, self._master_image = key, master_image
        self._claims = JournalClaims(session, clock, timeout_s=timeout_s)

    def has_claim(self, job_uid: str) -> bool:
        """Return True if `ensure` found or created a claim for the journal of the job."""
        return self._claims.has_claim(job_uid)

    def forget_all_but(self, job_uids: Collection[str]) -> None:
        """Forget the jobs that no longer exist."""
        self._claims.forget_all_but(job_uids)

    async def ensure(self, action: Need, job: TrainingJob, priority_classes: frozenset[str]) -> bool:
        """Create an object unless it exists; returns whether it was created or changed.

        Args:
            action: which object.
            job: its job.
            priority_classes: the names of the cluster's PriorityClasses.

        Raises:
            EdlError: the API server rejected the request, or did not respond; or the name belongs to somebody else.
        """
        match action:
            case EnsureService():
                is_new = await self._ensure_service(action, job)
            case EnsureSecret():
                is_new = await self._ensure_secret(action, job)
            case EnsureClaim():
                is_new = await self._claims.ensure(action, job)
            case EnsurePodGroup():
                is_new = await self._ensure_pod_group(action, job, priority_classes)
        return is_new

    async def _ensure_service(self, action: EnsureService, job: TrainingJob) -> bool:
        collection = f"/api/v1/namespaces/{action.job.namespace}/services"
        try:
            await self._session.post(collection, service_manifest(job), timeout_s=self._timeout_s)
        except AlreadyExistsError:
            await self._read_own(f"Service {action.job}", f"{collection}/{action.job.name}", action)
            return False
        return True

    async def _ensure_pod_group(
        self, action: EnsurePodGroup, job: TrainingJob, priority_classes: frozenset[str]
    ) -> bool:
        collection = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{action.job.namespace}/podgroups"
        manifest = pod_group(job, self._master_image, priority_classes)
        try:
            await self._session.post(collection, manifest, timeout_s=self._timeout_s)
        except AlreadyExistsError:
            path = f"{collection}/{action.job.name}"
            found = await self._read_own(f"PodGroup {action.job}", path, action)
            if contains(found.get("spec"), manifest["spec"]):
                return False
            await self._session.patch(path, {"spec": manifest["spec"]}, timeout_s=self._timeout_s)
        except RefusedError as error:
            is_optional = job.spec.scheduler_name in {None, "default-scheduler"}
            if not (is_optional and error.code in {403, 404}):
                raise  # without the group the job's own scheduler would leave the pods pending forever
            return False
        return True

    async def _ensure_secret(self, action: EnsureSecret, job: TrainingJob) -> bool:
        key = await self._key.get()
        tokens = [make_token(key, action.job, action.job_uid, role) for role in ("trainer", "controller")]
        collection = f"/api/v1/namespaces/{action.job.namespace}/secrets"
        try:
            await self._session.post(collection, token_secret_manifest(job, *tokens), timeout_s=self._timeout_s)
        except AlreadyExistsError:
            return False  # its name contains the job's UID, and edl may not read Secrets
        return True
