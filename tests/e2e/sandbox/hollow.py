"""Hollow nodes: a client of the API server that keeps nodes ready and plays the life of their pods.

It does for the sandbox what kwok does on the real control plane, by the same annotations: a pod is ready after
`edl.test/start-s`, or its containers wait for the reason `edl.test/waiting`; it ends or crashes with
`edl.test/exit-code` after `edl.test/exit-after-s`, and is gone some time after its deletion. A changed request is
granted, unless `edl.test/resize` says Deferred, Infeasible or Never. A node that was cut off is left alone with its
pods, as if its machine had died.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from edl.errors import EdlError
from edl.kube.client.api_errors import NotFoundError
from edl.kube.client.session import ApiSession
from edl.sandbox.informer import Informer, Wakeup
from edl.sandbox.objects import is_deleted, is_true, micro_text, name_of, pod_path, uid_of
from tests.e2e.control_plane.nodes import MANAGED_LABEL, MANAGED_VALUE
from tests.e2e.sandbox import hollow_status

Object = dict[str, Any]
_STRATEGIC = "application/strategic-merge-patch+json"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_LONGEST_S = 1.0
_RETRY_S = 0.5
_AT_ONCE = 32


class Stage(Enum):
    """What happens next to a pod."""

    READY = auto()
    WAIT = auto()
    EXIT = auto()
    CRASH = auto()
    RECOVER = auto()
    RESIZE = auto()
    TERMINATE = auto()


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take, in seconds.

    Attributes:
        pod_delete_s: from the deletion of a pod until it is gone, whatever its grace period, unless its annotation
            says otherwise.
        pod_ready_s: from the binding of a pod until it is ready, unless its annotation says otherwise.
        node_grace_s: how long a silent node stays ready; leases are renewed in two fifths of it.
    """

    pod_delete_s: float
    pod_ready_s: float
    node_grace_s: float


@dataclass(slots=True)
class _Plan:
    """The next stage of a pod, when it is due, and what the pod's containers are to have."""

    stage: Stage
    delay_s: float
    resources: list[Object]
    due_s: float
    is_started: bool = False


def next_stage(pod: Object, pace: Pace) -> tuple[Stage, float] | None:
    """What happens next to a pod on a hollow node, and how long after it could; None if nothing does."""
    phase = (pod.get("status") or {}).get("phase") or "Pending"
    if is_deleted(pod):
        return Stage.TERMINATE, float(hollow_status.annotation(pod, "stop-s") or pace.pod_delete_s)
    if phase == "Pending":
        return _next_start(pod, float(hollow_status.annotation(pod, "start-s") or pace.pod_ready_s))
    if phase != "Running":
        return None
    is_refused = hollow_status.is_refused(pod)
    is_tried_again = is_refused and hollow_status.annotation(pod, "resize") is None
    is_changed = is_tried_again or hollow_status.is_resized(pod) != is_refused
    return (Stage.RESIZE, 0.0) if is_changed else _next_end(pod)


def _next_start(pod: Object, after_s: float) -> tuple[Stage, float] | None:
    """How a pod starts, or begins to wait, and how long after it was bound."""
    if hollow_status.annotation(pod, "waiting") is None:
        return Stage.READY, after_s
    return None if hollow_status.container_statuses(pod) else (Stage.WAIT, after_s)


def _next_end(pod: Object) -> tuple[Stage, float] | None:
    """How a pod that runs ends, crashes or recovers, and how long after its start."""
    code = hollow_status.annotation(pod, "exit-code")
    states = hollow_status.container_statuses(pod)
    if code is None:
        is_crashing = any("waiting" in one["state"] for one in states)
        return (Stage.RECOVER, 0.0) if is_crashing else None
    after_s = float(hollow_status.annotation(pod, "exit-after-s") or 0)
    policy = pod["spec"].get("restartPolicy")
    if policy == "Never" or (policy == "OnFailure" and code == "0"):
        return Stage.EXIT, after_s
    return (Stage.CRASH, after_s) if all(one["ready"] for one in states) else None


class HollowNodes:
    """Keeps the nodes with the test label, and plays the life of their pods.

    Args:
        session: the API server.
        pace: how long things take.
    """

    def __init__(self, session: ApiSession, pace: Pace) -> None:
        self._session, self._pace = session, pace
        self._wakeup = Wakeup(0.01)
        self._nodes = Informer(
            session,
            "Node",
            "/api/v1/nodes",
            self._wakeup.set,
            label_selector=f"{MANAGED_LABEL}={MANAGED_VALUE}",
        )
        self._pods = Informer(session, "Pod", "/api/v1/pods", self._wakeup.set)
        self._plans: dict[str, _Plan] = {}
        self._addresses: dict[str, str] = {}
        self._renewed_s: dict[str, float] = {}
        self._lost: set[str] = set()
        self._doing: dict[asyncio.Task[None], str] = {}
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> None:
        """Play forever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            group.create_task(self._pods.run())
            group.create_task(self._loop())

    async def lose(self, name: str) -> None:
        """Cut a node off; at the end nothing that was under way touches it or its pods any more."""
        self._lost.add(name)
        while doing := [task for task, node in self._doing.items() if node == name]:
            await asyncio.wait(doing)

    def recover(self, name: str) -> None:
        """Bring a node back, with the pods that are still bound to it."""
        self._lost.discard(name)
        self._renewed_s.pop(name, None)
        self._wakeup.set()

    async def _loop(self) -> None:
        await asyncio.gather(self._nodes.wait_until_synced(), self._pods.wait_until_synced())
        while True:
            now_s = time.monotonic()
            nodes = {name_of(node): node for node in self._nodes if name_of(node) not in self._lost}
            for node in nodes.values():
                self._tend(node, now_s)
            due_s = self._play_due(nodes, now_s)
            await self._wakeup.wait(max(0.0, min(due_s - time.monotonic(), _LONGEST_S)))

    def _tend(self, node: Object, now_s: float) -> None:
        """Renew a node's Lease when it is time, and report it ready where it is not."""
        name = name_of(node)
        if now_s - self._renewed_s.get(name, float("-inf")) < self._pace.node_grace_s * 0.4:
            return
        self._renewed_s[name] = now_s
        self._start(name, self._renew(node))

    async def _renew(self, node: Object) -> None:
        name = name_of(node)
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": int(self._pace.node_grace_s),
            "renewTime": micro_text(),
        }
        try:
            await self._session.patch(f"{_LEASES}/{name}", {"spec": spec})
        except NotFoundError:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid_of(node)}
            metadata = {"name": name, "namespace": "kube-node-lease", "ownerReferences": [owner]}
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            await self._session.post(_LEASES, body)
        if not is_true(node, "Ready"):
            path = f"/api/v1/nodes/{name}/status"
            await self._session.patch(path, {"status": hollow_status.node_status()}, content_type=_STRATEGIC)

    def _play_due(self, nodes: dict[str, Object], now_s: float) -> float:
        """Start each stage that is due; returns when the next one is, in monotonic seconds."""
        soonest_s, seen = float("inf"), set()
        for pod in self._pods:
            uid = uid_of(pod)
            seen.add(uid)
            node = nodes.get(pod["spec"].get("nodeName") or "")
            plan = self._planned(pod, next_stage(pod, self._pace) if node is not None else None, now_s)
            if plan is None or plan.is_started or node is None:
                continue
            if plan.due_s <= now_s:
                plan.is_started = True
                self._start(name_of(node), self._play(pod, node, plan))
            else:
                soonest_s = min(soonest_s, plan.due_s)
        for uid in (self._plans.keys() | self._addresses.keys()) - seen:
            self._plans.pop(uid, None)
            self._addresses.pop(uid, None)
        return soonest_s

    def _planned(self, pod: Object, wanted: tuple[Stage, float] | None, now_s: float) -> _Plan | None:
        """The plan of a pod; one that is the same as before keeps its time.

        A second resize may follow the first one so soon that no pod between them is seen: it is another plan.
        """
        uid, resources = uid_of(pod), [one.get("resources") or {} for one in pod["spec"]["containers"]]
        if wanted is None:
            self._plans.pop(uid, None)
            return None
        plan = self._plans.get(uid)
        if plan is None or (plan.stage, plan.delay_s, plan.resources) != (*wanted, resources):
            plan = self._plans[uid] = _Plan(*wanted, resources, now_s + wanted[1])
        return plan

    async def _play(self, pod: Object, node: Object, plan: _Plan) -> None:
        try:
            await self._act(pod, node, plan.stage)
        except NotFoundError:
            return
        except EdlError:
            plan.is_started, plan.due_s = False, time.monotonic() + _RETRY_S
            raise

    async def _act(self, pod: Object, node: Object, stage: Stage) -> None:
        code = int(hollow_status.annotation(pod, "exit-code") or 0)
        match stage:
            case Stage.READY:
                status = hollow_status.started(pod, self._address(pod, node), _host_ip(node))
            case Stage.WAIT:
                status = hollow_status.waiting(pod)
            case Stage.EXIT:
                status = hollow_status.ended(pod, code, asked=False)
            case Stage.CRASH:
                status = hollow_status.crashed(pod, code)
            case Stage.RECOVER:
                status = hollow_status.recovered(pod)
            case Stage.RESIZE:
                status = hollow_status.resized(pod)
            case Stage.TERMINATE:
                await self._terminate(pod)
                return
        await self._write(pod, status)

    async def _terminate(self, pod: Object) -> None:
        """End the containers of a deleted pod, as a kubelet reports it, then remove the pod."""
        if (pod.get("status") or {}).get("phase") == "Running":
            code = int(hollow_status.annotation(pod, "term-exit-code") or 143)
            await self._write(pod, hollow_status.ended(pod, code, asked=True))
        await self._session.delete(pod_path(pod), uid=uid_of(pod), grace_s=0)

    async def _write(self, pod: Object, status: Object) -> None:
        body = {"metadata": {"uid": uid_of(pod)}, "status": status}
        await self._session.patch(pod_path(pod, "status"), body, content_type=_STRATEGIC)

    def _address(self, pod: Object, node: Object) -> str:
        """An address of the node's range that no other pod has."""
        uid = uid_of(pod)
        if uid not in self._addresses:
            used = set(self._addresses.values())
            hosts = ipaddress.ip_network(node["spec"]["podCIDR"]).hosts()
            self._addresses[uid] = next(str(one) for one in hosts if str(one) not in used)
        return self._addresses[uid]

    def _start(self, node: str, work: Coroutine[Any, Any, None]) -> None:
        """Do some work for a node; a failed call of the API is repeated by a later round."""
        task = asyncio.create_task(self._guarded(work))
        self._doing[task] = node
        task.add_done_callback(self._finished)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        async with self._room:
            try:
                await work
            except EdlError:
                self._wakeup.set()

    def _finished(self, task: asyncio.Task[None]) -> None:
        del self._doing[task]
        if not task.cancelled():
            task.result()


def _host_ip(node: Object) -> str:
    return next(str(one["address"]) for one in node["status"]["addresses"] if one["type"] == "InternalIP")
