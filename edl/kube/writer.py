"""Carries out single actions: each is conditional, and each times out before another replica can take over.

The API server's response becomes an `Outcome`: done, unchanged, conflict, refused or failed. The writer does not
retry: the controller observes the cluster again before it decides again. If a response is lost, the object that was
created is recognised later by its deterministic name and its owner's UID.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import msgspec

from edl.api.pods import MasterJournal, PodPlace, PodTerms, pod_manifest
from edl.api.v1 import TrainingJob, parse_job
from edl.clock import Clock
from edl.errors import ConflictError, EdlError, TemporaryError
from edl.kube.client.api_errors import AlreadyExistsError, NotFoundError, RefusedError
from edl.kube.client.pod_creations import PodCreations
from edl.kube.client.session import STRATEGIC_PATCH, ApiSession
from edl.kube.events import emit
from edl.kube.kueue.objects import with_flavors
from edl.kube.kueue.writer import CacheOfKueue, WorkloadWriter
from edl.kube.master_key import MasterKey
from edl.kube.needed_objects import NeededObjects
from edl.kube.node_request_writer import NodeAction, send_node_action
from edl.kube.outcomes import check_owner, message_of, result_of
from edl.kube.translate.status_body import contains, status_body
from edl.kube.workload_writer import send_resize
from edl.kube.workloads.resize import resize_request
from edl.model.actions import (
    Action,
    ChangeWorkloads,
    CreatePod,
    DeleteJob,
    DeletePod,
    EmitEvent,
    EnsureClaim,
    EnsurePodGroup,
    EnsureSecret,
    EnsureService,
    MarkPod,
    Outcome,
    PatchStatus,
    ProbePod,
    ReportWorkloads,
    RequestNode,
    ResizePod,
    ResizeWorkload,
    Result,
    WithdrawNodeRequest,
    WorkloadAction,
)
from edl.model.names import ANNOTATION_DECLARED_CPU, ANNOTATION_INTENT, JobKey, Role
from edl.model.resources import CPU

WRITE_TIMEOUT_S = 4.5
"""Less than the time from the renew deadline to the end of the lease: no write arrives after a takeover."""

JOBS_API = "/apis/paddlepaddle.org/v1"


class CacheView(CacheOfKueue, Protocol):
    """The part of the cache that the writer uses: it reads jobs, and stores answers."""

    def job_body(self, key: JobKey) -> dict[str, Any] | None:
        """Return the TrainingJob as the cache shows it; None if it does not exist."""

    def workload(self, key: JobKey) -> Any | None:  # noqa: ANN401 - the decoded object of any kind
        """Return a workload that is no TrainingJob as the cache shows it; None if it does not exist."""

    def has_pod(self, namespace: str, name: str) -> bool:
        """Return True if the cache shows a pod of that name."""

    def priority_classes(self) -> frozenset[str]:
        """Return the names of the cluster's PriorityClasses."""

    def learn(self, key: JobKey, uid: str, role: Role, pod: Mapping[str, Any]) -> bool:
        """Read what admission adds to the pods of a role; True if that changes their shape."""


class Writer:
    """Carries out actions.

    Args:
        session: the API server.
        cache: shows the jobs, and stores the answers to the writes.
        clock: for the times of events.
        key: makes the tokens of masters.
        default_master_image: the image of a master whose job names none.
        max_grace_s: the longest time that a pod has to end, in seconds.
    """

    def __init__(
        self,
        session: ApiSession,
        cache: CacheView,
        clock: Clock,
        *,
        key: MasterKey,
        default_master_image: str,
        max_grace_s: int,
    ) -> None:
        self._session, self._cache, self._clock = session, cache, clock
        self._master_image, self._max_grace_s = default_master_image, max_grace_s
        self._needed = NeededObjects(
            session, clock, self._existing, key=key, master_image=default_master_image, timeout_s=WRITE_TIMEOUT_S
        )
        self._pods = PodCreations(session, lambda pod: cache.answered("Pod", pod), timeout_s=WRITE_TIMEOUT_S)
        self._workloads = WorkloadWriter(
            session, cache, clock, master_image=default_master_image, timeout_s=WRITE_TIMEOUT_S
        )
        self._parsed: dict[str, tuple[Mapping[str, Any], TrainingJob]] = {}

    async def apply(self, action: Action) -> Outcome:
        """Carry out one action; an error of the API server becomes an outcome and is never raised."""
        try:
            return Outcome(action, await self._carry_out(action))
        except EdlError as error:
            wait_s = error.retry_after_s if isinstance(error, TemporaryError) else None
            return Outcome(action, *result_of(action, error), message_of(action, error), wait_s)

    def forget_all_but(self, job_uids: Collection[str]) -> None:
        """Forget the jobs that no longer exist."""
        self._parsed = {uid: parsed for uid, parsed in self._parsed.items() if uid in job_uids}
        self._needed.forget_all_but(job_uids)

    async def _carry_out(self, action: Action) -> Result:
        match action:
            case CreatePod():
                result = await self._create_pod(action)
            case ProbePod():
                result = await self._probe_pod(action)
            case MarkPod():
                result = await self._mark(action)
            case DeletePod():
                result = await self._delete_pod(action)
            case EnsureService() | EnsureSecret() | EnsureClaim() | EnsurePodGroup():
                is_new = await self._needed.ensure(action, self._job(action), self._cache.priority_classes())
                result = Result.DONE if is_new else Result.UNCHANGED
            case PatchStatus():
                result = await self._patch_status(action)
            case EmitEvent():
                result = Result.DONE
                await emit(self._session, action, self._clock.now_s(), timeout_s=WRITE_TIMEOUT_S)
            case DeleteJob():
                result = await self._delete_job(action)
            case ResizeWorkload():
                result = await self._resize(action)
            case ResizePod():
                result = await self._resize_pod(action)
            case ChangeWorkloads() | ReportWorkloads() | RequestNode() | WithdrawNodeRequest():
                result = await self._ask_others(action)
        return result

    async def _ask_others(self, action: WorkloadAction | NodeAction) -> Result:
        """Ask Kueue for quota, or an autoscaler for nodes; or tell them that it is not needed any more."""
        if isinstance(action, WorkloadAction):
            return await self._workloads.carry_out(action, self._job)
        return await send_node_action(self._session, self._pods, self._cache, action, self._job(action))

    async def _create_pod(self, action: CreatePod) -> Result:
        job = self._job(action)
        manifest = pod_manifest(
            job,
            action.role,
            action.index,
            default_master_image=self._master_image,
            priority_classes=self._cache.priority_classes(),
            place=PodPlace(action.node, action.pinned, action.labels, action.avoided),
            terms=PodTerms(
                action.cpu_request, action.is_best_effort, action.is_base, action.may_evict, self._max_grace_s
            ),
            journal=MasterJournal(
                action.role is Role.MASTER and self._needed.has_claim(action.job_uid),
                action.expected,
                action.restarts_epoch,
            ),
        )
        if action.flavors:
            manifest["spec"] = with_flavors(manifest["spec"], self._cache.flavors(action.flavors))
        namespace, name = action.job.namespace, action.pod_name
        collection = f"/api/v1/namespaces/{namespace}/pods"
        try:
            await self._pods.create(manifest)
        except AlreadyExistsError:
            found = await self._existing(f"pod {namespace}/{name}", f"{collection}/{name}", action)
            self._cache.answered("Pod", found)
            return Result.UNCHANGED
        return Result.DONE

    async def _probe_pod(self, action: ProbePod) -> Result:
        """Create the pod without effect: every admission plugin judges it, and nothing is stored.

        DONE means that admission makes the pod larger or smaller than it was planned.

        A webhook with side effects cannot be asked in this way; then only a real pod can tell.
        """
        manifest = pod_manifest(
            self._job(action),
            action.role,
            action.index,
            default_master_image=self._master_image,
            priority_classes=self._cache.priority_classes(),
        )
        namespace, name = action.job.namespace, action.pod_name
        collection = f"/api/v1/namespaces/{namespace}/pods"
        try:
            stored = await self._session.post(f"{collection}?dryRun=All", manifest, timeout_s=WRITE_TIMEOUT_S)
            has_learned = self._cache.learn(action.job, action.job_uid, action.role, stored)
            return Result.DONE if has_learned else Result.UNCHANGED
        except AlreadyExistsError:
            await self._existing(f"pod {namespace}/{name}", f"{collection}/{name}", action)
        except RefusedError as error:
            if not (error.code == 400 and "dry run" in str(error)):
                raise
        return Result.UNCHANGED

    async def _mark(self, action: MarkPod | DeletePod) -> Result:
        """Annotate the pod with the intent, if it still has that UID."""
        stored = await self._annotate(action, {ANNOTATION_INTENT: action.intent})
        return Result.UNCHANGED if stored is None else Result.DONE

    async def _annotate(
        self, action: MarkPod | DeletePod | ResizePod, annotations: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """Annotate the pod, if it still has that UID, and return it as stored; None if it does not exist."""
        namespace = action.job.namespace
        path = f"/api/v1/namespaces/{namespace}/pods/{action.pod}"
        patch = {"metadata": {"uid": action.pod_uid, "annotations": dict(annotations)}}
        try:
            stored = await self._session.patch(path, patch, timeout_s=WRITE_TIMEOUT_S)
        except NotFoundError:
            self._is_gone(action)
            return None
        except RefusedError as error:
            if error.code == 422 and "metadata.uid" in str(error):
                raise ConflictError(f"another pod has the name {namespace}/{action.pod} now") from error
            raise
        self._cache.answered("Pod", stored)
        return stored

    async def _resize_pod(self, action: ResizePod) -> Result:
        """Annotate what the trainer declares, then change its request in the very version that was stored.

        The resize subresource ignores the UID, so the version stands for it. A crash between the two writes leaves a
        pod that declares what it requests.
        """
        stored = await self._annotate(action, {ANNOTATION_DECLARED_CPU: f"{action.declared_milli}m"})
        if stored is None:
            return Result.UNCHANGED
        namespace, version = action.job.namespace, stored["metadata"]["resourceVersion"]
        resources = {"requests": {CPU: f"{action.cpu_milli}m"}}
        patch = {
            "metadata": {"resourceVersion": version},
            "spec": {"containers": [{"name": Role.TRAINER.value, "resources": resources}]},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{action.pod}/resize"
        stored = await self._session.patch(path, patch, content_type=STRATEGIC_PATCH, timeout_s=WRITE_TIMEOUT_S)
        self._cache.answered("Pod", stored)
        return Result.DONE

    async def _delete_pod(self, action: DeletePod) -> Result:
        is_said = action.marked or action.grace_s is not None
        if not is_said and await self._mark(action) is Result.UNCHANGED:
            return Result.UNCHANGED
        namespace = action.job.namespace
        path = f"/api/v1/namespaces/{namespace}/pods/{action.pod}"
        grace_s = 0 if action.force else action.grace_s
        try:
            answer = await self._session.delete(path, uid=action.pod_uid, grace_s=grace_s, timeout_s=WRITE_TIMEOUT_S)
        except NotFoundError:
            self._is_gone(action)
            return Result.UNCHANGED
        self._cache.deleted("Pod", (namespace, action.pod), action.pod_uid, answer)
        return Result.DONE

    def _is_gone(self, action: MarkPod | DeletePod | ResizePod) -> None:
        """The API server has no pod of that name, whatever the watch has shown so far."""
        self._cache.deleted("Pod", (action.job.namespace, action.pod), action.pod_uid, {})

    async def _patch_status(self, action: PatchStatus) -> Result:
        """Patch the status of the version that the cache shows: in a status patch the API server ignores the UID."""
        status = status_body(action.status)
        body = self._cache.job_body(action.job) or {}
        metadata = body.get("metadata") or {}
        if metadata.get("uid") != action.job_uid:
            raise ConflictError(f"job {action.job} was deleted, or another job has its name now")
        if contains(body.get("status"), status):
            return Result.UNCHANGED
        path = f"{JOBS_API}/namespaces/{action.job.namespace}/trainingjobs/{action.job.name}/status"
        patch = {"metadata": {"resourceVersion": metadata.get("resourceVersion")}, "status": status}
        stored = await self._session.patch(path, patch, timeout_s=WRITE_TIMEOUT_S)
        self._cache.answered("TrainingJob", stored)
        return Result.DONE

    async def _resize(self, action: ResizeWorkload) -> Result:
        namespace = action.job.namespace
        request = resize_request(
            action,
            self._cache.workload(action.job),
            lambda name: self._cache.has_pod(namespace, name),
            self._cache.flavors(action.flavors) if action.flavors else (),
        )
        stored = await send_resize(self._session, request, WRITE_TIMEOUT_S)
        self._cache.answered(action.job.kind.value, stored)
        return Result.DONE

    async def _delete_job(self, action: DeleteJob) -> Result:
        path = f"{JOBS_API}/namespaces/{action.job.namespace}/trainingjobs/{action.job.name}"
        try:
            answer = await self._session.delete(
                path, uid=action.job_uid, propagation="Background", timeout_s=WRITE_TIMEOUT_S
            )
        except NotFoundError:
            return Result.UNCHANGED
        self._cache.deleted("TrainingJob", (action.job.namespace, action.job.name), action.job_uid, answer)
        return Result.DONE

    async def _existing(self, what: str, path: str, action: Action) -> dict[str, Any]:
        """Read an object that exists under the name of a new one.

        Args:
            what: its kind and name, for messages.
            path: the path of the object.
            action: the action that should have created it.

        Raises:
            ConflictError: the object is terminating, or was just deleted.
            RefusedError: the object does not belong to the job, or is one of a former job that should have ended.
        """
        try:
            raw = await self._session.get(path, timeout_s=WRITE_TIMEOUT_S)
        except NotFoundError as error:
            raise ConflictError(f"{what} was deleted in the meantime") from error
        found: dict[str, Any] = msgspec.json.decode(raw)
        check_owner(found, what, action.job, action.job_uid, self._clock.now_s())
        return found

    def _job(self, action: Action) -> TrainingJob:
        """Return the parsed job of an action.

        Raises:
            ConflictError: the job was deleted, or another job has its name now.
            InvalidJobError: the spec breaks a rule.
        """
        body = self._cache.job_body(action.job)
        if body is None:
            raise ConflictError(f"job {action.job} was deleted")
        known = self._parsed.get(action.job_uid)
        if known is not None and known[0].get("spec") == body.get("spec") and known[1].uid == action.job_uid:
            return known[1]
        job = parse_job(body)
        if job.uid != action.job_uid:
            raise ConflictError(f"another job has the name {action.job} now")
        self._parsed[action.job_uid] = (body, job)
        return job
