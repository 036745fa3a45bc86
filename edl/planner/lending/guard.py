"""The rules about lent CPU that no plan may break: not to use it twice, nor to slow trainers for too long.

Like `planner.guard`, it recomputes both from the snapshot and the plan alone, in plain Python, so that an error in
the packing reaches no pod. Where it cannot know, it takes what allows more: a plan that is right is never refused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod
from edl.model.resources import CPU
from edl.planner.lending.clearing import slowed_since_s
from edl.planner.waits import cooldown_left_s

Pairs = Sequence[tuple[Job, ScaleDecision]]


def check_lent_capacity(snapshot: ClusterSnapshot, plan: ScalePlan, limits: Limits) -> tuple[str, ...]:
    """Check that a plan uses no lent CPU twice.

    Args:
        snapshot: what the plan was made for.
        plan: the plan; one that has passed `planner.guard.check`.
        limits: what the operator allows.

    Returns:
        One sentence for each broken rule; empty if nothing is lent, or the plan may be carried out.
    """
    if plan.fallback is not None or not any(pod.lent_cpu_milli for job in snapshot.jobs for pod in job.pods):
        return ()
    decisions = {decision.job: decision for decision in plan.decisions}
    pairs = [(job, decisions[job.key]) for job in snapshot.jobs if job.key in decisions]
    return (*_check_served(snapshot, plan, pairs), *_check_cleared(snapshot, pairs, limits))


def _check_served(snapshot: ClusterSnapshot, plan: ScalePlan, pairs: Pairs) -> Iterable[str]:
    """Check that the plan places serving pods only on CPU that no remaining pod requests."""
    wanted = sorted(
        pod.requested[CPU] for pod in snapshot.waiting_serving if pod.needs_capacity and pod.requested[CPU]
    )
    others = sum(pod.needs_capacity for pod in snapshot.waiting_serving) - len(wanted)
    placed = plan.serving.placed - others
    if placed <= 0 or not wanted:
        return
    capacities = _requests_leave(snapshot, pairs)
    by_count = sum(capacity // wanted[0] for capacity in capacities)
    by_amount = sum(total <= sum(capacities) for total in accumulate(wanted))
    most = min(by_count, by_amount)
    if placed > most:
        yield (
            f"serving: {placed} waiting pods are placed, but by requests there is CPU for {most};"
            " capacity that trainers lend counts once"
        )


def _requests_leave(snapshot: ClusterSnapshot, pairs: Pairs) -> list[int]:
    """(nodes,) CPU that no pod requests once the victims are gone and the new pods are there, in millicores."""
    used: Counter[str] = Counter()
    for pod in _present(snapshot):
        used[pod.node or pod.nominated] += pod.requested[CPU]
    for job, decision in pairs:
        for pod in _staying(job, decision):
            used[pod.node or pod.nominated] += pod.requested[CPU]
        for node, count in decision.nodes:
            used[node] += count * job.trainer.request[CPU]
        shapes = {fixed.role: fixed.shape for fixed in job.fixed}
        for role, node in decision.fixed_nodes:
            used[node] += shapes[role].request[CPU] if role in shapes else 0
    return [max(0, node.allocatable[CPU] - used[node.name]) for node in snapshot.nodes]


def _check_cleared(snapshot: ClusterSnapshot, pairs: Pairs, limits: Limits) -> Iterable[str]:
    """Check that no trainer stays slowed for longer than the operator allows, if its job may lose it."""
    if not limits.lending.clear_after_s:
        return
    here: dict[str, list[Pod]] = defaultdict(list)
    lenders: dict[str, list[Pod]] = defaultdict(list)
    for job, decision in pairs:
        for pod in _staying(job, decision):
            here[pod.node].append(pod)
        for pod in _may_go(job, decision, snapshot.observed_at_s):
            lenders[pod.node].append(pod)
    serving: dict[str, list[Pod]] = defaultdict(list)
    for pod in _present(snapshot):
        serving[pod.node].append(pod)
    nodes: Mapping[str, Node] = {node.name: node for node in snapshot.nodes}
    for name in sorted(lenders.keys() & nodes.keys()):
        declared = sum(pod.shape.request[CPU] for pod in here[name])
        since_s = slowed_since_s(nodes[name].allocatable[CPU], declared, serving[name])
        if since_s is not None and snapshot.observed_at_s - since_s >= limits.lending.clear_after_s:
            yield (
                f"node {name}: serving has used lent CPU for {snapshot.observed_at_s - since_s:.0f} s,"
                f" and trainer {min(pod.name for pod in lenders[name])} stays there"
            )


def _may_go(job: Job, decision: ScaleDecision, now_s: float) -> Iterable[Pod]:
    """The trainers that lend and stay although a clearing may delete them."""
    staying = [pod for pod in _staying(job, decision) if pod.role is Role.TRAINER and pod.node]
    has_new = any(now_s - pod.created_s < job.cooldown_s for pod in job.live_trainers)
    if has_new or cooldown_left_s(job, now_s) > 0 or len(staying) <= max(job.bounds.min_trainers, job.min_trainers):
        return ()
    return (pod for pod in staying if pod.lent_cpu_milli)


def _present(snapshot: ClusterSnapshot) -> Iterable[Pod]:
    """The foreign pods that use a node and stay."""
    pods = chain(snapshot.pods, snapshot.pods_left_alone)
    return (pod for pod in pods if (pod.node or pod.nominated) and pod.is_live)


def _staying(job: Job, decision: ScaleDecision) -> list[Pod]:
    """The live pods that the plan keeps."""
    gone = {*decision.victims, *decision.moves}
    return [pod for pod in job.pods if pod.is_live and pod.name not in gone] if decision.admitted else []
