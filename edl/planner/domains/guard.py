"""Rules of a plan for jobs whose pods stay together: one domain for all, and whole slices, each in one domain."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.plan import ScaleDecision
from edl.model.pods import Pod
from edl.model.topology import SEATS, TOGETHER, Labels, Path, Topology, home_of, path_of, slice_of
from edl.model.units import count

ByNode = Mapping[str, Labels]


def check_topologies(
    snapshot: ClusterSnapshot, pairs: Iterable[tuple[Job, ScaleDecision]], *, is_new: bool
) -> Iterable[str]:
    """Name each rule that a plan breaks.

    Args:
        snapshot: the cluster.
        pairs: each job with its decision.
        is_new: False for the last plan without its growth, in which slices may lack trainers.
    """
    labels = {node.name: node.labels for node in snapshot.nodes}
    for job, decision in pairs:
        topology = job.topology
        if topology is None or not decision.admitted:
            continue
        if topology.is_required:
            yield from _check_domain(job, decision, topology, labels)
        is_drafted = any(name.startswith(SEATS) for name in job.trainer.request)  # not yet the final plan
        if is_new and not is_drafted and (problem := slice_problem(job, decision, labels)):
            yield f"job {job.key}: {problem}"


def _check_domain(job: Job, decision: ScaleDecision, topology: Topology, labels: ByNode) -> Iterable[str]:
    """Check that new trainers and pservers go to one domain: the one of the pods that the job keeps.

    If it keeps trainers, theirs counts: a pserver may be elsewhere from a time before the rule. If a change of labels
    has divided its trainers, new ones may go to the domain of most of them, too, although the plan may delete these.
    """
    keys = topology.keys[: topology.depth]
    places = [name for name, _ in decision.nodes]
    places += [name for role, name in decision.fixed_nodes if role in TOGETHER]
    new = {path_of(labels.get(name, ()), keys) for name in places}
    kept = [pod for pod in _staying(job, decision) if pod.node]
    homes = ({path_of(labels.get(p.node, ()), keys) for p in kept if p.role is role} for role in TOGETHER)
    old = next(filter(None, (home - {()} for home in homes)), set[Path]())
    trainers = [pod for pod in job.live_trainers if pod.node]
    if len({path_of(labels.get(pod.node, ()), keys) for pod in trainers} - {()}) > 1:
        old |= {home_of(trainers, labels, keys)}
    if () in new or len(new) > 1 or (new and old and not new <= old):
        found = ", ".join("/".join(path) or "no domain" for path in sorted(new | old))
        kind = "trainers and pservers" if job.companions else "trainers"
        where = f"label {keys[0]}" if len(keys) == 1 else f"labels {', '.join(keys)}"
        yield f"job {job.key}: its {kind} must be in one domain of {where}, but are in {found}"


def slice_problem(job: Job, decision: ScaleDecision, labels: ByNode) -> str:
    """Say which slices are not whole once a decision is carried out; empty if all are, or if the job has none.

    New trainers first complete the slices of those that stay, each in its domain; the others must be whole slices.
    """
    topology = job.topology
    if topology is None or topology.slices is None or not decision.admitted:
        return ""
    size, keys = topology.slices.size, topology.keys[: topology.slices.depth]
    slices: dict[int, list[Pod]] = defaultdict(list)
    for pod in job.live_trainers:
        if pod.name not in decision.victims:
            slices[slice_of(pod.index, size)].append(pod)
    new = Counter[Path]()
    for name, number in decision.nodes:
        new[path_of(labels.get(name, ()), keys)] += number
    if new[()]:
        return f"{count(new[()], 'new trainer')} would be in no domain of its slices"
    anywhere = []
    for number, pods in sorted(slices.items()):
        lacking, home = size - len(pods), home_of(pods, labels, keys)
        if lacking and not home:
            anywhere.append(lacking)
        elif lacking > new[home]:
            return f"slice {number} would lack {count(lacking - new[home], 'trainer')} in {topology.said(home)}"
        new[home] -= lacking if home else 0
    for lacking in sorted(anywhere, reverse=True):
        home = max(sorted(new), key=lambda path: (new[path] % size == lacking % size, new[path]), default=())
        if new[home] < lacking:
            return f"a slice would lack {count(lacking, 'trainer')}"
        new[home] -= lacking
    part = next((path for path, number in sorted(new.items()) if number % size), None)
    return f"{topology.said(part)} would have a part of a slice of {size}" if part is not None else ""


def _staying(job: Job, decision: ScaleDecision) -> list[Pod]:
    """The live pods that the plan keeps."""
    deleted = {*decision.victims, *decision.moves}
    return [pod for pod in job.pods if pod.is_live and pod.name not in deleted]
