"""Creates and deletes request pods; see `edl.model.node_groups`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from edl.api.node_request import node_request_manifest
from edl.api.priorities import PRIORITY_TRAINING
from edl.api.v1 import TrainingJob
from edl.errors import ConflictError
from edl.kube.client.api_errors import AlreadyExistsError, NotFoundError, RefusedError
from edl.kube.client.pod_creations import PodCreations
from edl.kube.client.session import ApiSession
from edl.model.actions import RequestNode, Result, WithdrawNodeRequest

NodeAction = RequestNode | WithdrawNodeRequest


class StoresAnswers(Protocol):
    """The part of the cache that this module uses: it stores what the API server answers to a write."""

    def priority_classes(self) -> Collection[str]:
        """Return the names of the cluster's PriorityClasses."""

    def deleted(self, kind: str, key: tuple[str, str], uid: str, answer: dict[str, Any]) -> None:
        """Store what the API server has answered to the deletion of the object with that UID."""


async def send_node_action(
    session: ApiSession,
    pods: PodCreations,
    cache: StoresAnswers,
    action: NodeAction,
    job: TrainingJob,
) -> Result:
    """Create a request pod, or delete one without a grace period.

    Raises:
        ConflictError: another pod has its name.
        RefusedError: its PriorityClass is missing, so the pod could preempt; or the API server rejects it.
        EdlError: the request failed.
    """
    collection = f"/api/v1/namespaces/{action.job.namespace}/pods"
    if isinstance(action, WithdrawNodeRequest):
        try:
            path = f"{collection}/{action.pod}"
            answer = await session.delete(path, uid=action.pod_uid, grace_s=0, timeout_s=pods.timeout_s)
        except NotFoundError:
            return Result.UNCHANGED
        cache.deleted("Pod", (action.job.namespace, action.pod), action.pod_uid, answer)
        return Result.DONE
    if PRIORITY_TRAINING not in cache.priority_classes():
        raise RefusedError(
            f"job {action.job}: no node is asked for without PriorityClass {PRIORITY_TRAINING}, because the pod could"
            " preempt others; run kubectl apply -f deploy/base/priorityclasses.yaml",
            code=403,
            reason="PriorityClassMissing",
        )
    try:
        await pods.create(node_request_manifest(job, action))
    except AlreadyExistsError as error:
        raise ConflictError(f"a pod has the name {action.job.namespace}/{action.pod_name} already") from error
    return Result.DONE
