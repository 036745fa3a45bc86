"""Which nodes a plan asks an autoscaler for.

The plan is made first, without these nodes. Then a job that may ask, and lacks nothing but capacity, gets request
pods for nodes of the cheapest group that holds its pods. A second plan with the expected nodes proves that they
help: it keeps every rule of an ordinary plan, so a quota or an older job in front is seen before a node is paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from edl.errors import PlanError
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.node_groups import NodeAsk, NodeGroup, NoNode, ScaleUp
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.resources import PodShape, Resources
from edl.model.status import Reason
from edl.planner.nodes.bins import expected_node, fill_nodes
from edl.planner.nodes.requests import holding, requests_by_job

Replan = Callable[[ClusterSnapshot], ScalePlan]
"""Makes the plan for another snapshot; raises PlanError if there is none in time."""

MOST_GROUPS = 3
"""The most node groups that are tried for one job in one decision, because each costs a plan."""

_LACKS_MINIMUM = frozenset({Reason.MIN_UNSATISFIED, Reason.UNSCHEDULABLE, Reason.SERVING_NEEDS_ROOM})
_LACKS_ROOM = frozenset({Reason.INSUFFICIENT_CAPACITY, Reason.SERVING_NEEDS_ROOM})
_MAY_STILL_LACK = _LACKS_ROOM | {Reason.COOLDOWN, Reason.RESIZE_NOT_WORTH_IT}


@dataclass(frozen=True, slots=True)
class _Offer:
    """Nodes of one group for one job: what the pods on each would request."""

    group: NodeGroup
    nodes: tuple[Resources, ...]

    @property
    def price(self) -> float:
        return self.group.price_per_hour * len(self.nodes)


def with_asks(snapshot: ClusterSnapshot, plan: ScalePlan, limits: Limits, replan: Replan) -> ScalePlan:
    """Add to the plan the nodes that each job asks an autoscaler for; the same object if no job may ask.

    One job at a time asks for new nodes, the oldest of the highest tier first. Asks of earlier plans stay as long as
    the job waits and the group does not rest.

    Args:
        snapshot: what the plan was made for.
        plan: the ordinary plan.
        limits: with the groups.
        replan: makes the plan that proves the gain.
    """
    asking = [job for job in snapshot.jobs if job.scale_up is not ScaleUp.NEVER and job.is_schedulable]
    if not (limits.nodes.expected and asking):
        return plan
    decisions = {decision.job: decision for decision in plan.decisions}
    asks: dict[JobKey, NodeAsk] = {}
    for job in asking:
        if (ask := _kept(job, decisions[job.key], snapshot, limits)) is not None:
            asks[job.key] = ask
    for job in sorted(asking, key=lambda job: job.turn):
        pods = _lacking(job, decisions[job.key])
        if job.key in asks or not pods:
            continue
        asks[job.key] = ask = _Asker(snapshot, plan, limits, replan).ask(job, pods)
        if ask.nodes:
            break
    found = (replace(d, asks=asks.get(d.job)) for d in plan.decisions)
    return replace(plan, decisions=tuple(found)) if asks else plan


def _kept(job: Job, decision: ScaleDecision, snapshot: ClusterSnapshot, limits: Limits) -> NodeAsk | None:
    """What an earlier plan has asked for, as far as the job still needs it."""
    if not _still_lacks(job, decision):
        return None
    groups = {group.name: group for group in limits.nodes.expected}
    resting, held = dict(snapshot.resting_groups), {request.pod.uid for request in holding(snapshot)}
    stays = [
        request
        for request in requests_by_job(snapshot).get(job.key, ())
        if (request.is_open or request.pod.uid in held) and request.group in groups and request.group not in resting
    ]
    if not any(request.is_open for request in stays):
        return None
    name = stays[0].group
    kept = tuple(request.pod.name for request in stays if request.group == name)
    gain = 0 if decision.admitted else job.bounds.min_trainers
    return NodeAsk(name, kept=kept, price_per_hour=groups[name].price_per_hour * len(kept), gain=gain)


def _still_lacks(job: Job, decision: ScaleDecision) -> bool:
    if not decision.admitted:
        return decision.reason in _LACKS_MINIMUM
    is_short = decision.target < job.bounds.max_trainers and decision.reason in _MAY_STILL_LACK
    return _asks_for_more(job) and is_short


def _asks_for_more(job: Job) -> bool:
    """Return True if the job may ask for nodes beyond its minimum.

    A best-effort job may not, as each node costs money.
    """
    return job.scale_up is ScaleUp.FULL and not job.is_best_effort


def _lacking(job: Job, decision: ScaleDecision) -> list[PodShape]:
    """The pods for which the job lacks capacity, of those that it may ask nodes for."""
    low, high = job.bounds
    if not decision.admitted:
        fixed = [each.shape for each in job.fixed for _ in range(each.count)]
        return [*fixed, *[job.trainer] * low] if decision.reason in _LACKS_MINIMUM else []
    may_ask = _asks_for_more(job) and decision.reason in _LACKS_ROOM
    return [job.trainer] * (high - decision.target) if may_ask else []


class _Asker:
    """Finds the nodes that one job asks for."""

    def __init__(self, snapshot: ClusterSnapshot, plan: ScalePlan, limits: Limits, replan: Replan) -> None:
        self._snapshot, self._plan, self._limits, self._replan = snapshot, plan, limits, replan
        self._coming = [request.group for request in snapshot.node_requests if request.is_open]

    def ask(self, job: Job, pods: Sequence[PodShape]) -> NodeAsk:
        """Ask for nodes of the cheapest group that helps; if none helps, return an ask for no node that says why."""
        resting = dict(self._snapshot.resting_groups)
        offers, obstacle = [], NoNode.DOES_NOT_FIT
        for group in self._limits.nodes.expected:
            if not (nodes := fill_nodes(pods, group, group.limit)):
                continue
            free = self._left(group)
            if group.name in resting or free <= 0:
                obstacle = NoNode.RESTS if group.name in resting else NoNode.LIMIT
                continue
            offers.append(_Offer(group, nodes[:free]))
        for offer in sorted(offers, key=lambda offer: (offer.price, offer.group.name))[:MOST_GROUPS]:
            obstacle = NoNode.NO_GAIN
            try:
                count, gain = self._least(job, offer)
            except PlanError:  # without an ask the plan is good
                return NodeAsk("", obstacle=NoNode.NO_TIME)
            if gain > 0:
                new = offer.nodes[:count]
                price = offer.group.price_per_hour * count
                return NodeAsk(offer.group.name, new=new, price_per_hour=price, gain=gain)
        return NodeAsk("", obstacle=obstacle)

    def _left(self, group: NodeGroup) -> int:
        """Return how many more nodes a group may have beside those that it has and those that it was asked for."""
        there = sum(group.has(dict(node.labels)) for node in self._snapshot.nodes)
        return group.limit - there - self._coming.count(group.name)

    def _least(self, job: Job, offer: _Offer) -> tuple[int, int]:
        """Return the fewest nodes of an offer that gain a job as much as all of them, and that gain.

        (0, 0) if it gains nothing.

        A job that waits for its minimum gains it with the fewest nodes that admit it.
        """
        most = self._gain(job, offer.group, len(offer.nodes))
        waits = not self._decision(self._plan, job).admitted
        enough = 1 if waits else most
        low, high = 1, len(offer.nodes)
        while most > 0 and low < high:
            middle = (low + high) // 2
            if self._gain(job, offer.group, middle) >= enough:
                high = middle
            else:
                low = middle + 1
        return (high, job.bounds.min_trainers if waits else most) if most > 0 else (0, 0)

    def _gain(self, job: Job, group: NodeGroup, count: int) -> int:
        """How many more trainers the job has in a plan with so many further nodes."""
        groups = {each.name: each for each in self._limits.nodes.expected}
        coming = [groups[name] for name in self._coming if name in groups]
        after = self._replan(_extended(self._snapshot, [*coming, *[group] * count]))
        return self._decision(after, job).target - self._decision(self._plan, job).target

    @staticmethod
    def _decision(plan: ScalePlan, job: Job) -> ScaleDecision:
        return next(decision for decision in plan.decisions if decision.job == job.key)


def _extended(snapshot: ClusterSnapshot, groups: Iterable[NodeGroup]) -> ClusterSnapshot:
    """Return the cluster as it will be when one more node of each group has come, without request pods."""
    new = (expected_node(group, number) for number, group in enumerate(groups))
    nodes = tuple(sorted((*snapshot.nodes, *new), key=lambda node: node.name))
    return replace(snapshot, nodes=nodes, node_requests=())
