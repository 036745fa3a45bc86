"""What a cluster does by itself: kubelets, kube-scheduler, garbage collection, and the owner of `batch/v1` Jobs.

All of it happens in `step`, which is called several times a second. Which pods start, and how their containers end,
is decided by the troubles of the hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from edl.sandbox.apiserver.quotas import refresh_quotas
from edl.sandbox.objects import condition, is_deleted, is_finished, name_of, namespace_of, uid_of
from edl.sandbox.scheduler.filters import explain, refusal_for_good, shortages
from edl.sandbox.scheduler.preemption import find_preemption, may_preempt
from edl.sandbox.scheduler.scores import best_node
from edl.sandbox.scheduler.view import NodeView, PodView, node_views, pod_view
from tests.worlds.storms.batch_owner import BatchOwner
from tests.worlds.storms.local_server import JOBS, TRAINING_JOBS, LocalServer, Object

STARTS_S = 2.0
"""From its node to the start of a container, in seconds."""
ENDS_S = 1.5
"""How long a container takes to end after SIGTERM."""
BACKS_OFF_S = 12.0
"""When a kubelet says ImagePullBackOff instead of ErrImagePull."""
RETRY_S = 10.0
"""kube-scheduler tries a pod again after this time, if nothing changed."""


@dataclass(frozen=True, slots=True)
class Course:
    """What becomes of the containers of a pod.

    Attributes:
        rejected: the kubelet refuses the pod: reason and message; None if it takes it.
        waiting: the container does not start: reason and message; None if it starts.
        in_init: it is an init container that does not start.
        runs_s: how long it runs before it ends by itself; None for ever.
        exit_code: its end.
    """

    rejected: tuple[str, str] | None = None
    waiting: tuple[str, str] | None = None
    in_init: bool = False
    runs_s: float | None = None
    exit_code: int = 0


class Fate(Protocol):
    """Decides what becomes of pods."""

    def course(self, pod: Object, now_s: float) -> Course:
        """The course of a pod at that time."""


@dataclass
class _Life:
    """What a kubelet remembers of a pod."""

    bound_s: float
    started_s: float | None = None
    leaves_s: float | None = None


@dataclass
class ClusterLife:
    """The parts of a cluster that are not edl.

    Attributes:
        owner_s, scheduler_s: how often the controller of `batch/v1` Jobs and kube-scheduler look; 0 for each step.
        ran: UIDs of the pods whose containers have run, and since when.
        preempted_s: when kube-scheduler preempted pods, in seconds of the loop.
    """

    server: LocalServer
    fate: Fate
    owner_s: float = 0.0
    scheduler_s: float = 0.0
    ran: dict[str, float] = field(default_factory=dict)
    preempted_s: list[float] = field(default_factory=list)
    _lives: dict[str, _Life] = field(default_factory=dict)
    _tried: tuple[int, float] = (0, 0.0)
    _owner_due_s: float = 0.0
    _scheduler_due_s: float = 0.0

    def __post_init__(self) -> None:
        self.batch = BatchOwner(self.server)

    def step(self) -> None:
        """Do what can be done now."""
        now_s = asyncio.get_running_loop().time()
        before = self.server.cluster.store.version
        self._collect()
        if now_s >= self._owner_due_s:
            self._owner_due_s = now_s + self.owner_s
            self.batch.step(now_s)
        if now_s >= self._scheduler_due_s:
            self._scheduler_due_s = now_s + self.scheduler_s
            self._schedule(now_s)
        for key in self.server.cluster.store.keys("pods"):
            if (entry := self.server.cluster.store.get("pods", key)) is not None:
                self._keep(entry.value, now_s)
        if self.server.cluster.store.version != before:
            for namespace in ("red", "blue"):
                refresh_quotas(self.server.cluster, namespace)

    # --- Garbage collection

    def _collect(self) -> None:
        owners = {uid_of(job) for kind in (TRAINING_JOBS, JOBS) for job in self.server.objects(kind)}
        for pod in self.server.objects("pods"):
            references = pod["metadata"].get("ownerReferences") or ()
            if references and not is_deleted(pod) and not any(one["uid"] in owners for one in references):
                self.delete(pod)

    def delete(self, pod: Object) -> None:
        """Delete a pod, not through edl."""
        path = f"/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}"
        self.server.must("DELETE", path, {"preconditions": {"uid": uid_of(pod)}})

    # --- kube-scheduler

    def _schedule(self, now_s: float) -> None:
        version = self.server.cluster.store.version
        if version == self._tried[0] and now_s - self._tried[1] < RETRY_S:
            return
        pods = self.server.objects("pods")
        waiting = [pod_view(p) for p in pods if not (p["spec"].get("nodeName") or is_deleted(p) or is_finished(p))]
        nodes = {n.name: n for n in node_views(self.server.objects("nodes"), pods, {}, pod_view)}
        nominees = {pod.uid: pod for pod in waiting if pod.nominated}
        for pod in sorted(waiting, key=lambda one: (-one.priority, one.created, one.key)):
            self._place(pod, nodes, nominees)
        self._tried = (self.server.cluster.store.version, now_s)

    def _place(self, pod: PodView, nodes: dict[str, NodeView], nominees: dict[str, PodView]) -> None:
        """Bind a pod, or preempt others for it.

        Args:
            pod: that waits.
            nodes: by name; a pod that gets its node is added.
            nominees: the pods that wait for those they preempted, by UID, kept up to date. Their room is theirs
                unless the pod is more important.
        """
        nominees.pop(pod.uid, None)
        seen = [_with_nominees(node, pod, nominees.values()) for node in nodes.values()]
        reasons = {n.name: [why] if (why := refusal_for_good(pod, n)) else shortages(pod, n) for n in seen}
        fitting = [node for node in seen if not reasons[node.name]]
        if fitting:
            chosen = next((n for n in fitting if n.name == pod.nominated), None) or best_node(pod, fitting)
            nodes[chosen.name] = nodes[chosen.name].with_pods([*nodes[chosen.name].pods, pod])
            bound = _with_condition(pod.body, _condition("PodScheduled", "True", "", "", self._stamp()))
            self.server.put("pods", {**bound, "spec": {**bound["spec"], "nodeName": chosen.name}})
            return
        if nominated := self._preempt(pod, seen):
            nominees[pod.uid] = replace(pod, nominated=nominated)
        message = explain(len(nodes), [text for texts in reasons.values() for text in texts])
        known = condition(pod.body, "PodScheduled")
        if known is None or known.get("message") != message:
            said = _condition("PodScheduled", "False", "Unschedulable", message, self._stamp())
            current = self.server.cluster.store.get("pods", pod.key)
            self.server.put("pods", _with_condition(pod.body if current is None else current.value, said))

    def _preempt(self, pod: PodView, nodes: list[NodeView]) -> str:
        """Preempt pods for one; returns the node for which it waits now, empty if preemption does not help."""
        if not may_preempt(pod, nodes):
            return pod.nominated
        found = find_preemption(pod, nodes)
        nominated = found.node if found else ""
        if nominated != pod.nominated:
            status = {**(pod.body.get("status") or {}), "nominatedNodeName": nominated}
            self.server.put("pods", {**pod.body, "status": status})
        for victim in found.victims if found else ():
            if is_deleted(victim.body):
                continue
            said = _condition("DisruptionTarget", "True", "PreemptionByScheduler", "preempted", self._stamp())
            self.server.put("pods", _with_condition(victim.body, said))
            self.delete(victim.body)
            self.preempted_s.append(asyncio.get_running_loop().time())
        return nominated

    # --- Kubelets

    def _keep(self, pod: Object, now_s: float) -> None:
        if not pod["spec"].get("nodeName"):
            if is_deleted(pod):
                self.server.cluster.store.remove("pods", (namespace_of(pod), name_of(pod)))
            return
        life = self._lives.setdefault(uid_of(pod), _Life(now_s))
        if is_deleted(pod):
            self._end(pod, life, now_s)
        elif not is_finished(pod):
            self._run(pod, life, self.fate.course(pod, now_s), now_s)

    def _end(self, pod: Object, life: _Life, now_s: float) -> None:
        if life.leaves_s is None:
            has_ended = is_finished(pod) or life.started_s is None
            life.leaves_s = now_s if has_ended else now_s + ENDS_S
        if now_s >= life.leaves_s:
            self.server.cluster.store.remove("pods", (namespace_of(pod), name_of(pod)))

    def _run(self, pod: Object, life: _Life, course: Course, now_s: float) -> None:
        waited_s = now_s - life.bound_s
        if life.started_s is not None:
            if course.runs_s is not None and now_s - life.started_s >= course.runs_s:
                self._finish(pod, course.exit_code)
        elif course.rejected is not None:
            reason, message = course.rejected
            status = {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}"}
            self._set(pod, {**(pod.get("status") or {}), **status, "startTime": self._stamp()})
        elif course.waiting is not None:
            self._wait(pod, course, waited_s)
        elif waited_s >= STARTS_S:
            life.started_s = now_s
            self.ran[uid_of(pod)] = now_s
            self._set(pod, self._running(pod))
        else:
            self._say(pod, "ContainerCreating", "", in_init=False)

    def _wait(self, pod: Object, course: Course, waited_s: float) -> None:
        assert course.waiting is not None
        reason, message = course.waiting
        if waited_s < STARTS_S:
            reason, message = "ContainerCreating", ""
        elif reason == "ErrImagePull" and waited_s >= BACKS_OFF_S:
            reason, message = "ImagePullBackOff", f"Back-off pulling image: {message}"
        self._say(pod, reason, message, in_init=course.in_init)

    def _say(self, pod: Object, reason: str, message: str, *, in_init: bool) -> None:
        state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        kept = {"waiting": {"reason": "PodInitializing"}}
        before = pod.get("status") or {}
        inits = [_container(one, state) for one in pod["spec"].get("initContainers") or ()]
        mains = [_container(one, kept if in_init and inits else state) for one in pod["spec"]["containers"]]
        if (before.get("initContainerStatuses") or [], before.get("containerStatuses")) == (inits, mains):
            return
        self._set(
            pod,
            {
                **before,
                "phase": "Pending",
                "startTime": before.get("startTime") or self._stamp(),
                "initContainerStatuses": inits,
                "containerStatuses": mains,
                "conditions": list(self._conditions(pod, is_ready=False)),
            },
        )

    def _running(self, pod: Object) -> Object:
        started = {"running": {"startedAt": self._stamp()}}
        done = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": self._stamp()}}
        before = pod.get("status") or {}
        return {
            **before,
            "phase": "Running",
            "startTime": before.get("startTime") or self._stamp(),
            "initContainerStatuses": [_container(one, done) for one in pod["spec"].get("initContainers") or ()],
            "containerStatuses": [_container(one, started, ready=True) for one in pod["spec"]["containers"]],
            "conditions": list(self._conditions(pod, is_ready=True)),
        }

    def _finish(self, pod: Object, exit_code: int) -> None:
        reason = "Completed" if exit_code == 0 else "Error"
        state = {"terminated": {"exitCode": exit_code, "reason": reason, "finishedAt": self._stamp()}}
        before = pod.get("status") or {}
        self._set(
            pod,
            {
                **before,
                "phase": "Succeeded" if exit_code == 0 else "Failed",
                "containerStatuses": [_container(one, state) for one in pod["spec"]["containers"]],
                "conditions": list(self._conditions(pod, is_ready=False)),
            },
        )

    def _conditions(self, pod: Object, *, is_ready: bool) -> Iterator[Object]:
        yield from (c for c in (pod.get("status") or {}).get("conditions") or () if c["type"] in _KEPT)
        for kind in ("ContainersReady", "Ready"):
            old = condition(pod, kind) or {}
            status = "True" if is_ready else "False"
            since = old.get("lastTransitionTime") if old.get("status") == status else None
            yield _condition(kind, status, "", "", since or self._stamp())

    def _set(self, pod: Object, status: Object) -> None:
        if pod.get("status") != status:
            self.server.put("pods", {**pod, "status": status})

    def _stamp(self) -> str:
        return self.server.cluster.timestamp()


_KEPT = ("PodScheduled", "DisruptionTarget")


def _container(spec: Object, state: Object, *, ready: bool = False) -> Object:
    return {"name": spec["name"], "state": state, "ready": ready, "restartCount": 0, "image": spec.get("image", "")}


def _condition(kind: str, status: str, reason: str, message: str, stamp: str) -> Object:
    more = {key: text for key, text in (("reason", reason), ("message", message)) if text}
    return {"type": kind, "status": status, **more, "lastTransitionTime": stamp}


def _with_condition(pod: Object, said: Object) -> Object:
    status: dict[str, Any] = pod.get("status") or {}
    others = [one for one in status.get("conditions") or () if one["type"] != said["type"]]
    return {**pod, "status": {**status, "conditions": [*others, said]}}


def _with_nominees(node: NodeView, pod: PodView, nominees: Iterable[PodView]) -> NodeView:
    """The node with those that wait for it and are no less important than the pod."""
    own = [one for one in nominees if one.nominated == node.name and one.priority >= pod.priority]
    return node.with_pods([*node.pods, *own]) if own else node
