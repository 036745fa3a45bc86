"""Collects the trainers that plans would evict, and the serving pods that would get their capacity.

Nothing is evicted, so each plan wants the same again. A wish begins with the first plan that has a trainer among its
victims, and counts once, however many plans repeat it. A plan does not say which victim is for which pod; the waiting
pods are placed here, in the order of the snapshot, on what is free and what the victims would leave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.plan import ScalePlan
from edl.model.pods import Pod
from edl.model.resources import PodShape, Resources
from edl.model.status import Reason
from edl.model.times import seconds_of, text_of
from edl.planner.eligibility import takes
from edl.shadow.document import Eviction, Evictions, ServedPod

MOST = 2000


@dataclass(slots=True)
class Wishes:
    """Collects evictions.

    Attributes:
        now_s: seconds since the epoch.
        evictions: what was collected so far.
    """

    now_s: Callable[[], float]
    evictions: Evictions = field(default_factory=Evictions)
    _by_uid: dict[str, Eviction] = field(default_factory=dict)
    _served: dict[str, ServedPod] = field(default_factory=dict)
    _wanted: set[str] = field(default_factory=set)  # UIDs of trainers that are counted
    _awaited: set[str] = field(default_factory=set)  # UIDs of serving pods that are counted

    def __post_init__(self) -> None:
        """Continue the counts of an earlier run."""
        self._by_uid = {one.uid: one for one in self.evictions.evictions}
        self._served = {one.uid: one for one in self.evictions.served}
        self._wanted, self._awaited = set(self._by_uid), set(self._served)

    def planned(self, view: ClusterSnapshot, plan: ScalePlan) -> None:
        """Take a plan and the snapshot that it was made from."""
        victims = _victims(view, plan)
        if not victims:
            return
        at = text_of(self.now_s())
        served = _placed(view, [pod for pod, reason in victims if reason == Reason.SERVING_NEEDS_ROOM])
        for pod, reason in victims:
            names = [_name(waiting) for waiting, (_, gone) in served.items() if pod in gone]
            self._want(pod, reason, names, at)
        for waiting, (node, gone) in served.items():
            self._serve(waiting, node, [_name(pod) for pod in gone], at)

    def ended(self, uid: str, is_bound: bool) -> None:
        """Note that a serving pod waits no more: it is bound, or gone."""
        found = self._served.get(uid)
        if found is None or found.outcome != "waits":
            return
        found.outcome = "bound" if is_bound else "gone"
        found.waited_s = round(max(0.0, self.now_s() - (seconds_of(found.wanted) or 0.0)), 1)
        self.evictions.bound_anyway += is_bound

    def _want(self, pod: Pod, reason: str, serving: list[str], at: str) -> None:
        if (known := self._by_uid.get(pod.uid)) is not None:
            known.plans, known.last = known.plans + 1, at
            known.serving = list(dict.fromkeys([*known.serving, *serving]))
            return
        if pod.uid in self._wanted:
            return
        self._wanted.add(pod.uid)
        self.evictions.trainers += 1
        self.evictions.for_serving += reason == Reason.SERVING_NEEDS_ROOM
        if len(self._by_uid) >= MOST:
            self.evictions.left_off += 1
            return
        self._by_uid[pod.uid] = wish = Eviction(
            first=at,
            last=at,
            plans=1,
            job=str(pod.job),
            trainer=pod.name,
            uid=pod.uid,
            node=pod.node,
            reason=reason,
            serving=serving,
        )
        self.evictions.evictions.append(wish)

    def _serve(self, pod: Pod, node: str, trainers: list[str], at: str) -> None:
        known = self._served.get(pod.uid)
        if (
            known is not None and node and not known.fits and known.outcome == "waits"
        ):  # a later plan makes the capacity
            known.node, known.fits, known.trainers = node, True, trainers
            self.evictions.fits += 1
        if pod.uid in self._awaited:
            return
        self._awaited.add(pod.uid)
        self.evictions.serving_pods += 1
        self.evictions.fits += bool(node)
        if len(self._served) >= MOST:
            self.evictions.left_off += 1
            return
        self._served[pod.uid] = served = ServedPod(
            pod=_name(pod), uid=pod.uid, node=node, fits=bool(node), wanted=at, trainers=trainers
        )
        self.evictions.served.append(served)


def _victims(view: ClusterSnapshot, plan: ScalePlan) -> list[tuple[Pod, str]]:
    """The victims of a plan, each with the reason for its eviction."""
    pods = {(pod.namespace, pod.name): pod for job in view.jobs for pod in job.pods}
    found = (
        (pods.get((decision.job.namespace, name)), decision.shrink_reason)
        for decision in plan.decisions
        for name in decision.victims
    )
    return [(pod, reason) for pod, reason in found if pod is not None]


def _placed(view: ClusterSnapshot, victims: list[Pod]) -> dict[Pod, tuple[str, list[Pod]]]:
    """The waiting pods that get the capacity of victims: on which node, and of which victims.

    A pod that fits without a victim is left to kube-scheduler. One that fits nowhere gets no node and no victims.
    """
    if not victims:
        return {}
    free = _free(view)
    left: dict[str, list[Pod]] = {}
    for pod in victims:
        left.setdefault(pod.node, []).append(pod)
    nodes = {node.name: node for node in view.nodes}
    found: dict[Pod, tuple[str, list[Pod]]] = {}
    nowhere: set[PodShape] = set()  # shapes that fit on no node but, by now, on one that victims have left
    emptied: dict[str, Node] = {}
    for pod in view.waiting_serving:
        if not pod.needs_capacity:
            continue
        if (node := _fitting(pod, emptied if pod.shape in nowhere else nodes, free)) is not None:
            free[node] -= pod.requested
            continue
        nowhere.add(pod.shape)
        name, gone = _with_freed_capacity(pod, nodes, free, left)
        found[pod] = (name, gone)
        if name:
            free[name] = sum((one.requested for one in gone), free[name]) - pod.requested
            left[name] = left[name][len(gone) :]
            emptied[name] = nodes[name]
    return found


def _with_freed_capacity(
    pod: Pod, nodes: dict[str, Node], free: dict[str, Resources], left: dict[str, list[Pod]]
) -> tuple[str, list[Pod]]:
    """The node where the fewest victims free capacity for a pod, and these; no node if there is none."""
    best: tuple[str, list[Pod]] = ("", [])
    for name, candidates in left.items():
        if name not in nodes or not takes(nodes[name], pod.shape.placement):
            continue
        capacity = free[name]
        for count, victim in enumerate(candidates, start=1):
            capacity += victim.requested
            if pod.requested.fits(capacity):
                if not best[0] or count < len(best[1]):
                    best = (name, candidates[:count])
                break
    return best


def _fitting(pod: Pod, nodes: dict[str, Node], free: dict[str, Resources]) -> str | None:
    return next(
        (name for name, node in nodes.items() if pod.requested.fits(free[name]) and takes(node, pod.shape.placement)),
        None,
    )


def _free(view: ClusterSnapshot) -> dict[str, Resources]:
    """The free capacity of each node; terminating pods count as gone, as in a plan."""
    free = {node.name: node.allocatable - node.reserved for node in view.nodes}
    pods = (*view.pods, *(pod for job in view.jobs for pod in job.pods))
    for pod in pods:
        if pod.node in free and pod.is_live:
            free[pod.node] -= pod.requested
    return free


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"
