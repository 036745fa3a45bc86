"""Single effects on the cluster: each conditional, each under a time-out that ends before a lost lease matters.

The API server's answer becomes an `Outcome` here: done, already so, another object now, refused for good, or try
again. Nothing is repeated here: who decides again sees the world again first. What a lost reply left behind is
recognised as ours by its deterministic name and its owner's UID.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

import msgspec

from edl.api.manifest import pod_group_manifest, pod_manifest, service_manifest, token_secret_manifest
from edl.api.v1 import TrainingJob, parse_job
from edl.clock import Clock
from edl.errors import ConfigError, ConflictError, EdlError, TemporaryError
from edl.kube.client.api_errors import AlreadyExistsError, NotFoundError, RefusedError
from edl.kube.client.session import ApiSession, FencedError
from edl.kube.events import emit
from edl.kube.journal_claims import JournalClaims
from edl.kube.master_key import MasterKey, make_token
from edl.kube.translate.status_body import status_body
from edl.model.actions import (
    Action,
    CreatePod,
    DeleteJob,
    DeletePod,
    EmitEvent,
    EnsureClaim,
    EnsurePodGroup,
    EnsureSecret,
    EnsureService,
    MarkPod,
    Need,
    Outcome,
    PatchStatus,
    Result,
)
from edl.model.names import ANNOTATION_INTENT, JobKey, Role

WRITE_TIMEOUT_S = 4.5
"""Less than the lease outlives the last renewal by, so that nothing lands after another replica has taken over."""

JOBS_API = "/apis/paddlepaddle.org/v1"


class CacheView(Protocol):
    """What the writer needs of the caches: what to make pods of, and to be told what we wrote."""

    def job_body(self, key: JobKey) -> dict[str, Any] | None:
        """The TrainingJob as it was last seen; None where there is none."""

    def priority_classes(self) -> frozenset[str]:
        """Names of the priority classes of the cluster."""

    def expect_created(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """We created an object."""

    def expect_deleted(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """We deleted an object."""

    def expect_patched(self, kind: str, namespace: str, name: str, uid: str, resource_version: str) -> None:
        """We changed an object, and this is its version now."""


class Writer:
    """Carries out actions."""

    def __init__(
        self, session: ApiSession, sight: CacheView, clock: Clock, *, key: MasterKey, default_master_image: str
    ) -> None:
        self._session, self._sight, self._clock = session, sight, clock
        self._key, self._master_image = key, default_master_image
        self._claims = JournalClaims(session, clock, timeout_s=WRITE_TIMEOUT_S)
        self._ensured: set[tuple[type[Action], str]] = set()
        self._parsed: dict[str, tuple[Mapping[str, Any], TrainingJob]] = {}

    async def apply(self, action: Action) -> Outcome:
        """Carry out one action; an answer of the server is never raised."""
        try:
            return Outcome(action, await self._carry_out(action))
        except EdlError as error:
            wait_s = error.retry_after_s if isinstance(error, TemporaryError) else None
            return Outcome(action, *_read(action, error), str(error), wait_s)

    def forget_all_but(self, job_uids: Collection[str]) -> None:
        """Drop what is remembered of jobs that are gone."""
        self._ensured = {entry for entry in self._ensured if entry[1] in job_uids}
        self._parsed = {uid: parsed for uid, parsed in self._parsed.items() if uid in job_uids}
        self._claims.forget_all_but(job_uids)

    async def _carry_out(self, action: Action) -> Result:
        match action:
            case CreatePod():
                result = await self._create_pod(action)
            case MarkPod():
                result = await self._mark(action)
            case DeletePod():
                result = await self._delete_pod(action)
            case EnsureService():
                result = await self._once(action, self._ensure_service)
            case EnsureSecret():
                result = await self._once(action, self._ensure_secret)
            case EnsureClaim():
                result = await self._once(action, self._claims.ensure)
            case EnsurePodGroup():
                result = await self._once(action, self._ensure_pod_group)
            case PatchStatus():
                result = await self._patch_status(action)
            case EmitEvent():
                result = Result.DONE
                await emit(self._session, action, self._clock.now_s(), timeout_s=WRITE_TIMEOUT_S)
            case DeleteJob():
                result = await self._delete_job(action)
        return result

    async def _create_pod(self, action: CreatePod) -> Result:
        job = self._job(action)
        manifest = pod_manifest(
            job,
            action.role,
            action.index,
            default_master_image=self._master_image,
            planned_node=action.node,
            pinned=action.pinned,
            priority_classes=self._sight.priority_classes(),
            claims_journal=action.role is Role.MASTER and self._claims.has_claim(action.job_uid),
            expected=action.expected,
            restarts_epoch=action.restarts_epoch,
        )
        namespace, name = action.job.namespace, action.pod_name
        collection = f"/api/v1/namespaces/{namespace}/pods"
        result = Result.DONE
        try:
            answer = await self._session.post(collection, manifest, timeout_s=WRITE_TIMEOUT_S)
        except AlreadyExistsError:
            answer = await self._ours(f"{collection}/{name}", action)
            result = Result.UNCHANGED
        self._sight.expect_created("Pod", namespace, name, answer["metadata"]["uid"])
        return result

    async def _mark(self, action: MarkPod | DeletePod) -> Result:
        """State the intent on the pod, if it still has that UID."""
        namespace = action.job.namespace
        path = f"/api/v1/namespaces/{namespace}/pods/{action.pod}"
        patch = {"metadata": {"uid": action.pod_uid, "annotations": {ANNOTATION_INTENT: action.intent}}}
        try:
            answer = await self._session.patch(path, patch, timeout_s=WRITE_TIMEOUT_S)
        except NotFoundError:
            return Result.UNCHANGED
        except RefusedError as error:
            if error.code == 422 and "metadata.uid" in str(error):
                raise ConflictError(f"pod {namespace}/{action.pod} is another one now") from error
            raise
        version = answer["metadata"]["resourceVersion"]
        self._sight.expect_patched("Pod", namespace, action.pod, action.pod_uid, version)
        return Result.DONE

    async def _delete_pod(self, action: DeletePod) -> Result:
        if not action.marked and await self._mark(action) is Result.UNCHANGED:
            return Result.UNCHANGED
        namespace = action.job.namespace
        path = f"/api/v1/namespaces/{namespace}/pods/{action.pod}"
        grace_s = 0 if action.force else None
        try:
            await self._session.delete(path, uid=action.pod_uid, grace_s=grace_s, timeout_s=WRITE_TIMEOUT_S)
        except NotFoundError:
            return Result.UNCHANGED
        self._sight.expect_deleted("Pod", namespace, action.pod, action.pod_uid)
        return Result.DONE

    async def _once(self, action: Action, ensure: Callable[[Any, TrainingJob], Awaitable[None]]) -> Result:
        """Ensure something that nobody takes away again, once in the life of this process."""
        if (type(action), action.job_uid) in self._ensured:
            return Result.UNCHANGED
        await ensure(action, self._job(action))
        self._ensured.add((type(action), action.job_uid))
        return Result.DONE

    async def _ensure_service(self, action: EnsureService, job: TrainingJob) -> None:
        collection = f"/api/v1/namespaces/{action.job.namespace}/services"
        try:
            await self._session.post(collection, service_manifest(job), timeout_s=WRITE_TIMEOUT_S)
        except AlreadyExistsError:
            await self._ours(f"{collection}/{action.job.name}", action)

    async def _ensure_pod_group(self, action: EnsurePodGroup, job: TrainingJob) -> None:
        collection = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{action.job.namespace}/podgroups"
        try:
            await self._session.post(collection, pod_group_manifest(job), timeout_s=WRITE_TIMEOUT_S)
        except AlreadyExistsError:
            await self._ours(f"{collection}/{action.job.name}", action)
        except RefusedError as error:
            is_needless = job.spec.scheduler_name in {None, "default-scheduler"}
            if not (is_needless and error.code in {403, 404}):
                raise  # without the group the scheduler that was asked for would let the pods wait for ever

    async def _ensure_secret(self, action: EnsureSecret, job: TrainingJob) -> None:
        key = await self._key.get()
        tokens = [make_token(key, action.job, action.job_uid, role) for role in ("trainer", "controller")]
        collection = f"/api/v1/namespaces/{action.job.namespace}/secrets"
        try:
            await self._session.post(collection, token_secret_manifest(job, *tokens), timeout_s=WRITE_TIMEOUT_S)
        except AlreadyExistsError:
            return  # its name holds the job's UID, and we may not read it

    async def _patch_status(self, action: PatchStatus) -> Result:
        """Write the status on the version that the cache shows: on a status the API server ignores a UID."""
        wanted = status_body(action.status)
        body = self._sight.job_body(action.job) or {}
        metadata, stored = body.get("metadata") or {}, body.get("status")
        if metadata.get("uid") != action.job_uid:
            raise ConflictError(f"job {action.job} is gone, or another one now")
        if _says(stored, wanted):
            return Result.UNCHANGED
        path = f"{JOBS_API}/namespaces/{action.job.namespace}/trainingjobs/{action.job.name}/status"
        patch = {"metadata": {"resourceVersion": metadata.get("resourceVersion")}, "status": wanted}
        answer = await self._session.patch(path, patch, timeout_s=WRITE_TIMEOUT_S)
        version = answer["metadata"]["resourceVersion"]
        self._sight.expect_patched("TrainingJob", *action.job, action.job_uid, version)
        return Result.DONE

    async def _delete_job(self, action: DeleteJob) -> Result:
        path = f"{JOBS_API}/namespaces/{action.job.namespace}/trainingjobs/{action.job.name}"
        try:
            await self._session.delete(path, uid=action.job_uid, propagation="Background", timeout_s=WRITE_TIMEOUT_S)
        except NotFoundError:
            return Result.UNCHANGED
        return Result.DONE

    async def _ours(self, path: str, action: Action) -> dict[str, Any]:
        """The object under a name that is taken, if it belongs to the job.

        Raises:
            ConflictError: it is on its way out, whoever owns it, or has just gone.
            RefusedError: it belongs to somebody else.
        """
        try:
            found: dict[str, Any] = msgspec.json.decode(await self._session.get(path, timeout_s=WRITE_TIMEOUT_S))
        except NotFoundError as error:
            raise ConflictError(f"{path} has gone meanwhile") from error
        metadata = found.get("metadata") or {}
        if metadata.get("deletionTimestamp"):
            raise ConflictError(f"{path} is on its way out")
        if not any(ref.get("uid") == action.job_uid for ref in metadata.get("ownerReferences") or ()):
            raise RefusedError(
                f"job {action.job}: {path} exists and does not belong to the job; delete it or rename the job",
                code=409,
                reason="NameTaken",
            )
        return found

    def _job(self, action: Action) -> TrainingJob:
        """The job that the action is about, parsed.

        Raises:
            ConflictError: it is gone, or another has taken its name.
            InvalidJobError: a rule is broken.
        """
        body = self._sight.job_body(action.job)
        if body is None:
            raise ConflictError(f"job {action.job} is gone")
        known = self._parsed.get(action.job_uid)
        if known is not None and known[0].get("spec") == body.get("spec") and known[1].uid == action.job_uid:
            return known[1]
        job = parse_job(body)
        if job.uid != action.job_uid:
            raise ConflictError(f"job {action.job} is another one now")
        self._parsed[action.job_uid] = (body, job)
        return job


def _says(stored: object, wanted: object) -> bool:
    """True where a merge patch with `wanted` would change nothing: null means that there is nothing."""
    if isinstance(wanted, Mapping):
        return isinstance(stored, Mapping) and all(_says(stored.get(name), value) for name, value in wanted.items())
    return stored == wanted


def _read(action: Action, error: EdlError) -> tuple[Result, str]:
    """What a refusal means for the action, and the word for it."""
    word = type(error).__name__.removesuffix("Error")
    result = Result.REFUSED
    if isinstance(error, TemporaryError):
        result, word = Result.FAILED, "Unavailable"
    elif isinstance(error, ConflictError):
        result, word = Result.CONFLICT, "Conflict"
    elif isinstance(error, FencedError):
        result, word = Result.NOT_LEADER, "NotLeader"
    elif isinstance(error, ConfigError):
        word = "InvalidSpec"
    elif isinstance(error, RefusedError):
        word = error.reason or f"Http{error.code}"
        makes = isinstance(action, CreatePod | Need)
        if isinstance(error, NotFoundError) and not makes:
            result = Result.CONFLICT
        elif error.code == 401:
            result = Result.FAILED
    return result, word
