"""Claims on devices: made from templates for pods, and freed once no pod uses them.

Source: k8s.io/kubernetes pkg/controller/resourceclaim, v1.36.
"""

from __future__ import annotations

from typing import Any

from edl.errors import EdlError
from edl.kube.client.session import ApiSession
from edl.sandbox.controllers.loop import Informers, attempt, collection_of, delete, path_of, read
from edl.sandbox.events import WARNING, EventRecorder
from edl.sandbox.objects import is_deleted, is_finished, name_of, namespace_of, pod_path, uid_of
from edl.sandbox.scheduler.claims import FINALIZER

Object = dict[str, Any]
CLAIM, TEMPLATE = "ResourceClaim", "ResourceClaimTemplate"
POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
"""The annotation with the name of the claim in the spec of the pod."""
_STRATEGIC = "application/strategic-merge-patch+json"


class DeviceClaimController:
    """Makes and frees claims on devices.

    Args:
        session: the API server.
        informers: the informers of Pod, ResourceClaim and ResourceClaimTemplate.
    """

    def __init__(self, session: ApiSession, informers: Informers) -> None:
        self._session, self._informers = session, informers
        self._events = EventRecorder(session, "resource-claim-controller")
        self._told: dict[str, str] = {}
        self._created: dict[tuple[str, str], Object] = {}

    async def run(self) -> None:
        """Make and free claims after each change, forever."""
        await self._informers.after_each_change(self._reconcile)

    async def _reconcile(self) -> None:
        pods = {uid_of(pod): pod for pod in self._informers["Pod"]}
        self._told = {uid: text for uid, text in self._told.items() if uid in pods}
        self._created = {key: claim for key, claim in self._created.items() if key[0] in pods}
        made: dict[str, dict[str, Object]] = {}
        for claim in self._informers[CLAIM]:
            name = (claim["metadata"].get("annotations") or {}).get(POD_CLAIM)
            for owner in claim["metadata"].get("ownerReferences") or ():
                made.setdefault(owner["uid"], {})[name or ""] = claim
        for uid, pod in pods.items():
            if not _is_done(pod) and not is_deleted(pod) and pod["spec"].get("resourceClaims"):
                await self._make(pod, made.get(uid, {}))
        for claim in self._informers[CLAIM]:
            await self._free(claim, pods)

    async def _make(self, pod: Object, made: dict[str, Object]) -> None:
        """Make the claims of a pod that come from templates, and name them in its status."""
        named = list((pod.get("status") or {}).get("resourceClaimStatuses") or ())
        known, new = {one["name"] for one in named}, list[Object]()
        for one in pod["spec"]["resourceClaims"]:
            if (template := one.get("resourceClaimTemplateName")) and one["name"] not in known:
                before = made.get(one["name"]) or self._created.get((uid_of(pod), one["name"]))
                claim = before or await self._create(pod, one["name"], template)
                if claim is None:
                    return
                new.append({"name": one["name"], "resourceClaimName": name_of(claim)})
        if new:
            body = {"metadata": {"uid": uid_of(pod)}, "status": {"resourceClaimStatuses": [*named, *new]}}
            await attempt(self._session.patch(pod_path(pod, "status"), body, content_type=_STRATEGIC))

    async def _create(self, pod: Object, name: str, template: str) -> Object | None:
        """Create a claim for a pod; None if that is not possible now."""
        namespace = namespace_of(pod)
        found = self._informers[TEMPLATE].get(namespace, template)
        if found is None:
            self._tell(pod, name, f'resource claim template "{template}": resourceclaimtemplate not found')
            return None
        made = found["spec"].get("metadata") or {}
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": name_of(pod),
            "uid": uid_of(pod),
            "controller": True,
            "blockOwnerDeletion": True,
        }
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": CLAIM,
            "metadata": {
                "generateName": f"{name_of(pod)}-{name}-",
                "namespace": namespace,
                "labels": made.get("labels") or {},
                "annotations": {**(made.get("annotations") or {}), POD_CLAIM: name},
                "ownerReferences": [owner],
            },
            "spec": found["spec"]["spec"],
        }
        try:
            claim = await self._session.post(collection_of(CLAIM, namespace), body)
        except EdlError as error:
            self._tell(pod, name, str(error))
            return None
        self._created[uid_of(pod), name] = claim
        return claim

    def _tell(self, pod: Object, name: str, problem: str) -> None:
        text = f"PodResourceClaim {name}: {problem}"
        if self._told.get(uid_of(pod)) != text:
            self._told[uid_of(pod)] = text
            self._events.emit(pod, WARNING, "FailedResourceClaimCreation", text)

    async def _free(self, claim: Object, pods: dict[str, Object]) -> None:
        """Remove ended pods from a claim's users.

        Without users it loses its devices, and is deleted if a pod owned it.
        """
        users = (claim.get("status") or {}).get("reservedFor") or []
        kept = [one for one in users if await self._is_used(claim, one, pods)]
        version = claim["metadata"]["resourceVersion"]
        if len(kept) < len(users):
            freed: Object = {"reservedFor": kept or None, **({} if kept else {"allocation": None})}
            body: Object = {"metadata": {"resourceVersion": version}, "status": freed}
            await attempt(self._session.patch(f"{path_of(claim, CLAIM)}/status", body))
            return
        finalizers = claim["metadata"].get("finalizers") or []
        if not users and FINALIZER in finalizers and not (claim.get("status") or {}).get("allocation"):
            left = [one for one in finalizers if one != FINALIZER]
            body = {"metadata": {"finalizers": left or None, "resourceVersion": version}}
            await attempt(self._session.patch(path_of(claim, CLAIM), body))
        owners = [pods[one["uid"]] for one in claim["metadata"].get("ownerReferences") or () if one["uid"] in pods]
        if not users and owners and not is_deleted(claim) and all(map(_is_done, owners)):
            await delete(self._session, CLAIM, claim)  # if the pod is gone, the garbage collector does it

    async def _is_used(self, claim: Object, user: Object, pods: dict[str, Object]) -> bool:
        """True if a pod for which the claim is reserved exists and may run; a new pod may not be known yet."""
        pod = pods.get(user["uid"])
        if pod is None and user.get("resource") == "pods":
            pod = await read(self._session, f"/api/v1/namespaces/{namespace_of(claim)}/pods/{user['name']}")
        return pod is not None and uid_of(pod) == user["uid"] and not _is_done(pod)


def _is_done(pod: Object) -> bool:
    """True if a pod will not run any more."""
    return is_finished(pod) or (is_deleted(pod) and not pod["spec"].get("nodeName"))
