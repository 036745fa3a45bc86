"""The loop of the scheduler: binds each pod to its best node, or preempts, or reports why it cannot.

An ordinary client of an API server. It takes care of pods whose schedulerName is `default-scheduler`, one by one, the
most important and then the oldest first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from edl.errors import ConflictError, EdlError
from edl.kube.client.api_errors import NotFoundError
from edl.kube.client.session import ApiSession
from edl.sandbox.events import NORMAL, WARNING, EventRecorder
from edl.sandbox.informer import Informer, Wakeup
from edl.sandbox.objects import (
    condition,
    is_deleted,
    is_finished,
    is_true,
    name_of,
    namespace_of,
    now_text,
    pod_path,
    uid_of,
    version_of,
)
from edl.sandbox.scheduler.claims import ClaimWriter
from edl.sandbox.scheduler.devices import DEALLOCATED, STILL_NOT, Asked, ClaimProblemError, Devices
from edl.sandbox.scheduler.filters import explain, refusal_for_good, shortages
from edl.sandbox.scheduler.neighbours import refusal_between
from edl.sandbox.scheduler.preemption import NO_CLAIMS, Preemption, find_preemption, may_preempt, refusal_note
from edl.sandbox.scheduler.scores import Packing, best_node
from edl.sandbox.scheduler.view import NodeView, PodView, PodViews, node_views
from edl.sandbox.scheduler.volumes import claims_of, refusal_by_volumes, volume_rules

Object = dict[str, Any]
NAME = "default-scheduler"
_LONGEST_S = 5.0
_LOOK_S = 0.1
"""The greatest age of the scheduler's view of nodes and pods, apart from its own writes."""
_DEVICES = "/apis/resource.k8s.io/v1"
_STRATEGIC = "application/strategic-merge-patch+json"


class Scheduler:
    """Schedules the pods of a cluster.

    Args:
        session: the API server.
        packing: which nodes are better.
    """

    def __init__(self, session: ApiSession, packing: Packing = Packing.LEAST) -> None:
        self._session, self._packing = session, packing
        self._wakeup = Wakeup(0.01)
        self.pods = Informer(session, "Pod", "/api/v1/pods", self._wakeup.set)
        self.nodes = Informer(session, "Node", "/api/v1/nodes", self._wakeup.set)
        self.claims = Informer(session, "PersistentVolumeClaim", "/api/v1/persistentvolumeclaims", self._wakeup.set)
        self.volumes = Informer(session, "PersistentVolume", "/api/v1/persistentvolumes", self._wakeup.set)
        self.device_claims = Informer(session, "ResourceClaim", f"{_DEVICES}/resourceclaims", self._wakeup.set)
        self.slices = Informer(session, "ResourceSlice", f"{_DEVICES}/resourceslices", self._wakeup.set)
        self.classes = Informer(session, "DeviceClass", f"{_DEVICES}/deviceclasses", self._wakeup.set)
        volumes, devices = (self.claims, self.volumes), (self.device_claims, self.slices, self.classes)
        self._informers = (self.pods, self.nodes, *volumes, *devices)
        self._devices, self._written = Devices(), dict[str, Object]()
        self._claim_writer = ClaimWriter(session, lambda *name: self.device_claims.get(*name) is not None)
        self._events = EventRecorder(session, NAME)
        self._assumed: dict[str, str] = {}
        self._published: dict[str, str] = {}
        self._views = PodViews()
        self._nodes: dict[str, NodeView] = {}
        self._nominees: list[PodView] = []
        self._looked_s = 0.0

    async def run(self) -> None:
        """Schedule forever."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())
            group.create_task(self._loop())

    async def _loop(self) -> None:
        await asyncio.gather(*(one.wait_until_synced() for one in self._informers))
        while True:
            await self._round()
            await self._wakeup.wait(_LONGEST_S)

    async def _round(self) -> None:
        """Try every waiting pod once."""
        known = {uid_of(pod): pod for pod in self.pods}
        self._assumed = {
            uid: node
            for uid, node in self._assumed.items()
            if uid in known and not known[uid]["spec"].get("nodeName")
        }
        self._published = {uid: text for uid, text in self._published.items() if uid in known}
        self._views.keep(known)
        waiting = [self._views(pod) for pod in known.values() if self._is_waiting(pod)]
        self._look()
        for pod in sorted(filter(None, waiting), key=lambda one: (-one.priority, one.created, one.key)):
            if time.monotonic() - self._looked_s > _LOOK_S:
                self._look()
            try:
                await self._schedule(pod)
            except (NotFoundError, ConflictError):
                continue
            except EdlError:
                self._wakeup.set()
                await asyncio.sleep(0.2)
                return

    def _look(self) -> None:
        """Read the nodes and nominated pods; between two reads, its own bindings are added."""
        self._nodes = {node.name: node for node in node_views(self.nodes, self.pods, self._assumed, self._views)}
        views = [self._views(pod) for pod in self.pods if self._is_waiting(pod)]
        self._nominees = [one for one in views if one is not None and one.nominated]
        self._devices.look(self._nodes.values(), self.slices, self.classes, self._claims_now())
        self._looked_s = time.monotonic()

    def _claims_now(self) -> dict[tuple[str, str], Object]:
        """The claims on devices, including those that were just written."""
        found = {uid_of(claim): claim for claim in self.device_claims}
        self._written = {
            uid: claim
            for uid, claim in self._written.items()
            if uid in found and version_of(claim) > version_of(found[uid])
        }
        return {(namespace_of(one), name_of(one)): one for one in (found | self._written).values()}

    def _is_waiting(self, pod: Object) -> bool:
        spec = pod["spec"]
        return (
            not spec.get("nodeName")
            and uid_of(pod) not in self._assumed
            and (spec.get("schedulerName") or NAME) == NAME
            and not spec.get("schedulingGates")
            and not is_deleted(pod)
            and not is_finished(pod)
        )

    async def _schedule(self, pod: PodView) -> None:
        nodes = list(self._nodes.values())
        if problem := self._claim_problem(pod):
            await self._refuse(pod, f"0/{len(nodes)} nodes are available: {problem}. not found")
            return
        try:
            asked = self._devices.asked_by(pod)
            seen = [self._devices.without_extended(asked, self._with_nominated(node, pod)) for node in nodes]
            without = {node.name: why for node in seen if asked and (why := self._devices.refusal(pod, asked, node))}
        except ClaimProblemError as error:
            await self._refuse_for_claims(pod, str(error), nodes)
            return
        rules = volume_rules(pod.body, self.claims, self.volumes)
        closed = {node.name: why for node in seen if (why := refusal_by_volumes(rules, node))}
        reasons = refusals(pod, seen, closed, without)
        fitting = [node for node in seen if node.name not in reasons]
        own = next((node for node in fitting if node.name == pod.nominated), None)
        if fitting:
            await self._place(pod, asked, own or best_node(pod, fitting, self._packing))
            return
        texts = [reason for found in reasons.values() for reason in found]
        never = closed | without
        preemption = find_preemption(pod, seen, never) if may_preempt(pod, seen) else None
        if preemption is not None:
            await self._preempt(pod, preemption)
            await self._refuse(pod, explain(len(nodes), texts), nominated=preemption.node)
        else:
            done = await self._deallocate(pod, asked, seen)
            await self._refuse(pod, explain(len(nodes), texts, refusal_note(pod, seen, never, done)))

    async def _refuse_for_claims(self, pod: PodView, problem: str, nodes: list[NodeView]) -> None:
        """Report what is wrong with the claims of a pod; nothing while one of them does not exist yet."""
        if problem:
            note = refusal_note(pod, nodes, {node.name for node in nodes}, STILL_NOT)
            await self._refuse(pod, f"0/{len(nodes)} nodes are available: {problem}. {note}")

    async def _deallocate(self, pod: PodView, asked: Asked, nodes: list[NodeView]) -> str:
        """Release the devices of a claim if they keep its pod from other nodes; returns the message about it."""
        if not asked:
            return NO_CLAIMS
        claim = asked.unused_elsewhere(pod, nodes)
        if claim is None:
            return STILL_NOT
        self._note(await self._claim_writer.deallocate(claim))
        self._looked_s = 0.0
        return DEALLOCATED

    async def _place(self, pod: PodView, asked: Asked, node: NodeView) -> None:
        """Give a pod its devices, and bind it."""
        devices = self._devices.allocation(pod, asked, node) if asked else None
        if devices is not None:
            for claim in await self._claim_writer.reserve(pod, asked, node.name, devices):
                self._note(claim)
        await self._bind(pod, node)

    def _note(self, claim: Object) -> None:
        self._written[uid_of(claim)] = claim
        self._devices.note(claim)

    def _with_nominated(self, node: NodeView, pod: PodView) -> NodeView:
        """Add to a node the other pods nominated to it whose priority is not lower."""
        waiting = [one for one in self._nominees if one.uid != pod.uid and one.priority >= pod.priority]
        own = [one for one in waiting if one.nominated == node.name]
        return node.with_pods([*node.pods, *own]) if own else node

    def _claim_problem(self, pod: PodView) -> str:
        for name in claims_of(pod.body):
            claim = self.claims.get(pod.key[0], name)
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if (claim.get("status") or {}).get("phase") != "Bound":
                return "pod has unbound immediate PersistentVolumeClaims"
        return ""

    async def _bind(self, pod: PodView, node: NodeView) -> None:
        self._assumed[pod.uid] = node.name
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.key[1], "namespace": pod.key[0], "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node.name},
        }
        try:
            await self._session.request("POST", pod_path(pod.body, "binding"), body=body)
        except EdlError:
            del self._assumed[pod.uid]
            raise
        before = self._nodes[node.name]
        self._nodes[node.name] = before.with_pods([*before.pods, pod])
        self._nominees = [one for one in self._nominees if one.uid != pod.uid]
        self._published.pop(pod.uid, None)
        message = f"Successfully assigned {pod.key[0]}/{pod.key[1]} to {node.name}"
        self._events.emit(pod.body, NORMAL, "Scheduled", message)

    async def _preempt(self, pod: PodView, preemption: Preemption) -> None:
        """Nominate the pod, then delete the victims with their grace period."""
        status = {"nominatedNodeName": preemption.node}
        await self._session.patch(pod_path(pod.body, "status"), {"status": status}, content_type=_STRATEGIC)
        for victim in preemption.victims:
            if is_deleted(victim.body):
                continue
            disrupted = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": f"{NAME}: preempting to accommodate a higher priority pod",
                "lastTransitionTime": now_text(),
            }
            try:
                body = {"metadata": {"uid": victim.uid}, "status": {"conditions": [disrupted]}}
                await self._session.patch(pod_path(victim.body, "status"), body, content_type=_STRATEGIC)
                await self._session.delete(pod_path(victim.body), uid=victim.uid)
            except (NotFoundError, ConflictError):
                continue
            message = f"Preempted by pod {pod.uid} on node {preemption.node}"
            self._events.emit(victim.body, NORMAL, "Preempted", message)
        self._looked_s = 0.0

    async def _refuse(self, pod: PodView, message: str, nominated: str = "") -> None:
        """Say in the condition PodScheduled and in an event why a pod waits, once for each reason."""
        if self._published.get(pod.uid) == message and not nominated:
            return
        self._published[pod.uid] = message
        before = condition(pod.body, "PodScheduled")
        if before is None or before.get("message") != message or is_true(pod.body, "PodScheduled"):
            found = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
                "lastTransitionTime": (before or {}).get("lastTransitionTime") or now_text(),
            }
            body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [found]}}
            await self._session.patch(pod_path(pod.body, "status"), body, content_type=_STRATEGIC)
            self._events.emit(pod.body, WARNING, "FailedScheduling", message)


def refusals(
    pod: PodView, nodes: list[NodeView], closed: Mapping[str, str], without: Mapping[str, str]
) -> dict[str, list[str]]:
    """By node, why it cannot take a pod; nodes that can are left out.

    Args:
        pod: the pod.
        nodes: all of them.
        closed: why its volumes cannot be used on some nodes.
        without: why its devices are not on some nodes.
    """
    found: dict[str, list[str]] = {}
    is_free = not pod.rules.has_terms and not any(node.avoiding for node in nodes)
    for node in nodes:
        beside = "" if node.name in closed or is_free else refusal_between(pod, node, nodes)
        if why := refusal_for_good(pod, node):
            found[node.name] = [why]
        elif missing := shortages(pod, node):
            found[node.name] = missing
        elif last := closed.get(node.name) or beside or without.get(node.name):
            found[node.name] = [last]
    return found
