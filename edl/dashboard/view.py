"""What the page shows of one moment, as JSON values: nodes with their pods in blocks, jobs, and the whole cluster.

Equal pods of a node are one block with a number, so that a cluster of 1,000 nodes stays small. Texts that users wrote
are shortened here and never interpreted: the page writes them as text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from edl.model.cluster import ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.names import Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod
from edl.model.resources import EPHEMERAL_STORAGE, PODS, Resources, is_amount
from edl.model.units import rank_of

Body = dict[str, Any]

MAX_NODES = 2_000
MAX_JOBS = 1_000
MAX_BLOCKS = 60
MAX_PODS_OF_A_NODE = 500
MAX_WAITING = 100
MAX_TEXT = 2_000
_NAMED_VICTIMS = 12
_MAX_RESOURCES = 6
_SYSTEM_NAMESPACE = "kube-system"
_SYSTEM_PRIORITY = 2_000_000_000


@dataclass(frozen=True, slots=True)
class View:
    """What the page shows: one JSON value for each node (by name), each job (by `namespace/name`) and the cluster."""

    nodes: dict[str, Body] = field(default_factory=dict)
    jobs: dict[str, Body] = field(default_factory=dict)
    cluster: Body = field(default_factory=dict)


def view_of(snapshot: ClusterSnapshot, plan: ScalePlan | None) -> View:
    """Build the view of a snapshot and of the newest plan, which may be slightly older than the snapshot.

    Args:
        snapshot: the cluster.
        plan: None if there is none yet; then each job shows what its status says.
    """
    on_node = _by_node(snapshot, {node.name for node in islice(snapshot.nodes, MAX_NODES)})
    decisions = {d.job: d for d in plan.decisions} if plan is not None else {}
    nodes = {n.name: _node(n, on_node.get(n.name, [])) for n in islice(snapshot.nodes, MAX_NODES)}
    jobs = {str(job.key): _job(job, decisions.get(job.key)) for job in islice(snapshot.jobs, MAX_JOBS)}
    return View(nodes, jobs, _cluster(snapshot, plan))


def pods_of_node(snapshot: ClusterSnapshot, name: str) -> list[Body]:
    """List the pods of one node, sorted by namespace and name; at most `MAX_PODS_OF_A_NODE`."""
    pods = sorted(_by_node(snapshot, {name}).get(name, []), key=lambda p: (p.namespace, p.name))
    return [
        {
            "namespace": p.namespace,
            "name": p.name,
            "kind": kind_of(p),
            "job": str(p.job) if p.job is not None else "",
            "phase": "Terminating" if p.terminating else p.phase.value,
            "each": shown(p.shape.request),
        }
        for p in pods[:MAX_PODS_OF_A_NODE]
    ]


def kind_of(pod: Pod) -> str:
    """The purpose of a pod: trainer, pserver, master, serving or other (DaemonSets, system, priority below 0)."""
    if pod.job is not None and pod.role is not None:
        return pod.role.value
    is_system = pod.namespace == _SYSTEM_NAMESPACE or pod.priority >= _SYSTEM_PRIORITY
    return "other" if pod.daemon or pod.priority < 0 or is_system else "serving"


def is_running_serving(pod: Pod) -> bool:
    """True for a serving pod on a node that is not being deleted."""
    return bool(pod.node) and pod.is_live and kind_of(pod) == "serving"


def short(value: str) -> str:
    """Shorten a text of a user or of a plan to the length that the page shows."""
    return value if len(value) <= MAX_TEXT else f"{value[: MAX_TEXT - 3]}..."


def decision_body(decision: ScaleDecision) -> Body:
    """Return what a plan decided for one job, with its reason and victims, as a JSON object."""
    return {
        "target": decision.target,
        "admitted": decision.admitted,
        "reason": decision.reason.value,
        "message": short(decision.message),
        "account": short(decision.account),
        "victims": list(decision.victims[:_NAMED_VICTIMS]),
        "victimCount": len(decision.victims),
        "shrinkReason": decision.shrink_reason,
        "nodes": dict(decision.nodes[:_NAMED_VICTIMS]),
        "moves": list(decision.moves[:_NAMED_VICTIMS]),
    }


def certificate_body(plan: ScalePlan) -> Body:
    """How good the plan is, as a JSON object: the achieved objective, and the bound that no plan can exceed."""
    proof = plan.certificate
    return {"objective": proof.objective, "achieved": proof.achieved, "bound": proof.bound, "gap": proof.gap}


def _by_node(snapshot: ClusterSnapshot, names: Container[str]) -> dict[str, list[Pod]]:
    """The pods that occupy some nodes, by the name of the node."""
    found: dict[str, list[Pod]] = {}
    for pod in _all_pods(snapshot):
        if pod.node in names and not pod.is_finished:
            found.setdefault(pod.node, []).append(pod)
    return found


def _all_pods(snapshot: ClusterSnapshot) -> Iterator[Pod]:
    yield from snapshot.pods
    for job in snapshot.jobs:
        yield from job.pods


def _node(node: Node, pods: list[Pod]) -> Body:
    used = node.reserved.as_dict()
    for pod in pods:
        for name, amount in pod.requested.amounts:
            used[name] = used.get(name, 0) + amount
    has = shown(node.allocatable)
    state = "not ready" if not node.ready else "cordoned" if node.cordoned else "ready"
    return {
        "state": state,
        "has": has,
        "free": {name: amount - used.get(name, 0) for name, amount in has.items()},
        "blocks": _blocks(pods),
        "pods": len(pods),
    }


def _blocks(pods: list[Pod]) -> list[Body]:
    """Summarise equal pods as one block: kind, job, number of pods, request of each, and whether they are deleted."""
    groups = Counter(
        (_ORDER[kind_of(p)], kind_of(p), str(p.job) if p.job is not None else "", p.terminating, p.shape.request)
        for p in pods
    )
    ordered = sorted(groups.items(), key=lambda item: (item[0][:4], item[0][4].amounts))
    blocks: list[Body] = []
    for (_, kind, job, leaving, request), number in ordered[:MAX_BLOCKS]:
        block: Body = {"kind": kind, "n": number, "each": shown(request)}
        blocks.append({**block, **({"job": job} if job else {}), **({"leaving": True} if leaving else {})})
    return blocks


_ORDER = {"serving": 0, "master": 1, "pserver": 2, "trainer": 3, "other": 4}


def shown(amounts: Resources) -> dict[str, int]:
    """The amounts that the page draws: cpu (millicores), memory (bytes) and devices (pieces)."""
    hidden = {PODS, EPHEMERAL_STORAGE}
    names = [name for name in amounts if name not in hidden and is_amount(name)]
    return {name: amounts[name] for name in sorted(names, key=rank_of)[:_MAX_RESOURCES]}


def _job(job: Job, decision: ScaleDecision | None) -> Body:
    live = Counter(p.role for p in job.pods if p.is_live)
    status = job.status
    return {
        "min": job.min_trainers,
        "max": job.max_trainers,
        "trainers": live[Role.TRAINER],
        "ready": sum(1 for p in job.live_trainers if p.ready),
        "masters": live[Role.MASTER],
        "pservers": live[Role.PSERVER],
        "phase": status.phase.value if status is not None else "Pending",
        "queue": short(job.queue),
        "problem": short(job.problem),
        "each": shown(job.trainer.request),
        "decision": decision_body(decision) if decision is not None else _decision_of_status(job),
    }


def _decision_of_status(job: Job) -> Body | None:
    """Read the decision about a job from its status; None if the status has none."""
    status = job.status
    if status is None or not status.reason:
        return None
    admitted = status.condition("Admitted")
    return {
        "target": status.trainer.desired,
        "admitted": admitted is not None and admitted.status == "True",
        "reason": short(status.reason),
        "message": short(status.explanation),
        "account": short(admitted.message if admitted is not None else status.explanation),
        "victims": [],
        "victimCount": 0,
        "shrinkReason": "",
        "nodes": {},
        "moves": [],
    }


def _cluster(snapshot: ClusterSnapshot, plan: ScalePlan | None) -> Body:
    total: Counter[str] = Counter()
    for node in snapshot.nodes:
        total.update(shown(node.allocatable))
    body: Body = {
        "nodes": len(snapshot.nodes),
        "readyNodes": sum(1 for n in snapshot.nodes if n.ready and not n.cordoned),
        "jobs": len(snapshot.jobs),
        "hiddenNodes": max(0, len(snapshot.nodes) - MAX_NODES),
        "hiddenJobs": max(0, len(snapshot.jobs) - MAX_JOBS),
        "resources": sorted(total, key=rank_of)[:_MAX_RESOURCES],
        "serving": {
            "running": sum(1 for p in snapshot.pods if is_running_serving(p)),
            "waiting": len(snapshot.waiting_serving),
        },
        "waitingPods": [_waiting(pod) for pod in islice(snapshot.waiting_serving, MAX_WAITING)],
    }
    return body | (_quality(plan) if plan is not None else {"certificate": None})


def _waiting(pod: Pod) -> Body:
    """Describe a serving pod without a node, and why it has none, as a JSON object."""
    why = pod.blocked or pod.unscheduled or ("" if pod.tried else "its scheduler has not tried it yet")
    return {
        "name": f"{pod.namespace}/{pod.name}",
        "since": round(pod.created_s, 1),
        "each": shown(pod.shape.request),
        "why": short(why),
    }


def _quality(plan: ScalePlan) -> Body:
    return {
        "certificate": certificate_body(plan),
        "policy": plan.policy,
        "short": plan.serving.short,
        "fallback": plan.fallback.value if plan.fallback is not None else "",
    }
