"""PersistentVolumeClaims for the journals of masters.

A job gets a claim if its spec sets `master.storage`, or if the cluster has a default StorageClass. That is decided
before its first master is created and never changes, because a journal cannot move.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from edl.api.manifest import claim_name, volume_claim_manifest
from edl.api.v1 import TrainingJob
from edl.clock import Clock
from edl.kube.client.api_errors import AlreadyExistsError, NotFoundError
from edl.kube.client.session import ApiSession
from edl.model.actions import EnsureClaim

_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_CLASSES_KEPT_S = 60.0


class JournalClaims:
    """Creates claims, and remembers which jobs have one.

    Args:
        session: the API server.
        clock: for the age of the cached answer about the default StorageClass.
        timeout_s: timeout of each request.
    """

    def __init__(self, session: ApiSession, clock: Clock, *, timeout_s: float) -> None:
        self._session, self._clock, self._timeout_s = session, clock, timeout_s
        self._with_claim: set[str] = set()
        self._default: tuple[bool, float] | None = None

    def has_claim(self, job_uid: str) -> bool:
        """Return True if `ensure` found or created a claim for the job."""
        return job_uid in self._with_claim

    def forget_all_but(self, job_uids: Collection[str]) -> None:
        """Forget the jobs that no longer exist."""
        self._with_claim &= set(job_uids)

    async def ensure(self, action: EnsureClaim, job: TrainingJob) -> bool:
        """Create the claim, if the job needs one and does not have it; returns whether it was created.

        Raises:
            EdlError: the API server rejected, or did not respond.
        """
        collection = f"/api/v1/namespaces/{action.job.namespace}/persistentvolumeclaims"
        if not await self._needs_claim(job, f"{collection}/{claim_name(job)}"):
            return False
        try:
            await self._session.post(collection, volume_claim_manifest(job), timeout_s=self._timeout_s)
            is_new = True
        except AlreadyExistsError:  # its name contains the job's UID, so it is the job's
            is_new = False
        self._with_claim.add(action.job_uid)
        return is_new

    async def _needs_claim(self, job: TrainingJob, path: str) -> bool:
        return job.spec.master.storage is not None or await self._exists(path) or await self._has_default_class()

    async def _exists(self, path: str) -> bool:
        try:
            await self._session.get(path, timeout_s=self._timeout_s)
        except NotFoundError:
            return False
        return True

    async def _has_default_class(self) -> bool:
        now_s = self._clock.monotonic_s()
        if self._default is None or now_s - self._default[1] > _CLASSES_KEPT_S:
            found: dict[str, Any] = msgspec.json.decode(await self._session.get(_CLASSES, timeout_s=self._timeout_s))
            annotations = ((c.get("metadata") or {}).get("annotations") or {} for c in found.get("items") or ())
            self._default = (any(a.get(_IS_DEFAULT) == "true" for a in annotations), now_s)
        return self._default[0]
