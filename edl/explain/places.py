"""Describes nodes in words: their pools, which resource is full on them, and which of them a job avoids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from edl.model.cluster import AvoidedNode, ClusterSnapshot, Node
from edl.model.jobs import Job
from edl.model.resources import RULE_PREFIX, Placement
from edl.model.times import text_of
from edl.model.units import amount, count, listed, plain
from edl.planner.eligibility import Eligibility
from edl.planner.findings.pools import pool_of
from edl.planner.findings.reasons import Cause
from edl.planner.findings.scarcity import Shortage, open_nodes
from edl.planner.trial_packing import TrialPacking

NAMED_POOLS = 3
NAMED_RESOURCES = 2
NAMED_RULES = 2
NAMED_NODES = 3
MORE_LATER = "once its new trainers run, the rule may allow more"
UNPROVED = "another arrangement of the pods that start may have a slot, but none was found"

_OF_CAPACITY = frozenset({Cause.NO_ROOM, Cause.NEVER_FITS, Cause.LOST_TO_SERVING, Cause.HEAD_OF_QUEUE})
"""The causes of a count against which an avoided node could help."""


class Places:
    """Names for sets of nodes; the pools of a cluster are read once."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Read the pool of each node."""
        self._nodes = nodes
        self._pools = [pool_of(node) for node in nodes]

    def where(self, chosen: Sequence[int], usable: Sequence[int]) -> str:
        """Name nodes by their pools if each has one, else by their number.

        Args:
            chosen: indices of the nodes to name, at least one.
            usable: indices of all that accept the pods in question.
        """
        if len(chosen) == 1:
            return f"node {self._nodes[chosen[0]].name}"
        here, there = (Counter(map(self._pools.__getitem__, some)) for some in (chosen, usable))
        if "" in here:
            if len(chosen) == len(usable):
                return f"all {len(usable)} nodes that accept its trainers"
            return f"{len(chosen)} of the {len(usable)} nodes that accept its trainers"
        parts = [
            pool if here[pool] == there[pool] else f"{here[pool]} of the {there[pool]} nodes of {pool}"
            for pool in sorted(here)
        ]
        if len(parts) > NAMED_POOLS:
            parts = [*parts[: NAMED_POOLS - 1], f"{len(parts) - NAMED_POOLS + 1} more pools"]
        return listed(parts)

    def what_is_full(
        self, packing: TrialPacking, shape: int, found: Sequence[Shortage], *, is_proved: bool
    ) -> tuple[str, str]:
        """Say which resource is full, or short, on which nodes: briefly, and with the amounts that are free.

        Args:
            packing: the finished packing.
            shape: index of the trainer's shape.
            found: the shortages of that shape, the most widespread first; at least one.
            is_proved: no arrangement of the pods that the plan starts has one more slot: the resource is full.

        Returns:
            (`cpu is full on pool a`, the same with `(at most 2 cores free on a node; a trainer requests 3 cores)`).
        """
        nodes = open_nodes(packing, shape)
        state = state_of(is_proved=is_proved)
        short = _full(found[0].resource, state, self.where(found[0].nodes, nodes))
        parts: list[str] = []
        for one in found[:NAMED_RESOURCES]:
            requested = int(packing.problem.request[shape, packing.problem.names.index(one.resource)])
            if one.resource.startswith(RULE_PREFIX):
                parts.append(_full(one.resource, state, self.where(one.nodes, nodes)))
                continue
            free = (
                f" (at most {amount(one.resource, one.most_free)} free on a node;"
                f" a trainer requests {amount(one.resource, requested)})"
                if one.most_free
                else ""
            )
            verb = f"is {state} on" if not parts else "on"
            parts.append(f"{plain(one.resource)} {verb} {self.where(one.nodes, nodes)}{free}")
        full = ", ".join(parts)
        if len(nodes) < len(self._nodes) and (kept := self._kept_by(packing, shape, set(nodes))):
            full += f"; no other node takes its trainers: {kept}"
        return short, full if is_proved else f"{full}; {UNPROVED}"

    def _kept_by(self, packing: TrialPacking, shape: int, usable: set[int]) -> str:
        """Name the rules about pods and volumes that exclude all nodes but `usable`; empty if there are none."""
        judge = Eligibility([node for number, node in enumerate(self._nodes) if number not in usable])
        rules = packing.problem.shapes[shape].placement.rules
        broken = (rule for rule in rules if any(judge.first_broken(Placement(rules=(rule,)))))
        whys = dict.fromkeys(rule.why.removeprefix(RULE_PREFIX) for rule in broken)
        return "; ".join([*whys][:NAMED_RULES])


def _full(resource: str, state: str, where: str) -> str:
    """Name full nodes: `cpu is full on pool a`, `rule: one pod of app=web a node: pool a takes no more`."""
    if resource.startswith(RULE_PREFIX):
        return f"{resource}: no more on {where}"
    return f"{plain(resource)} is {state} on {where}"


def state_of(*, is_proved: bool) -> str:
    """Return `full` if no arrangement of pods has a slot for one more trainer, else `short`."""
    return "full" if is_proved else "short"


def avoided_nodes(job: Job, cause: Cause, snapshot: ClusterSnapshot) -> tuple[str, str]:
    """Name the nodes that a job avoids while it lacks capacity: in short, and with times; empty if there are none.

    Without them `cpu is full on all 2 nodes that accept its trainers` would be false: a third one has capacity, and
    the job's own selectors accept it.
    """
    if cause not in _OF_CAPACITY or not (snapshot.rejecting or snapshot.avoided):
        return "", ""
    rejecting = [node for node in snapshot.rejecting if job.key in node.jobs and _excludes(job, node.name)]
    broken = [node for node in snapshot.avoided if node.is_closed_to(job.key) and _excludes(job, node.name)]
    short = full = ""
    for nodes, why in ((rejecting, "rejected its pods"), (broken, "made trainers fail")):
        if nodes:
            avoids = f"; it avoids {_named(nodes)}"
            short += f"{avoids}, which {why}"
            full += f"{avoids} until {text_of(min(node.until_s for node in nodes))}, which {why}"
    return short, full


def _excludes(job: Job, name: str) -> bool:
    """Return True if the job's required node affinity excludes a node by its name."""
    terms = job.trainer.placement.required
    return bool(terms) and all(any(name in field.values for field in term.fields) for term in terms)


def _named(nodes: Sequence[AvoidedNode]) -> str:
    names = [node.name for node in nodes[:NAMED_NODES]]
    if more := len(nodes) - len(names):
        names.append(count(more, "other node"))
    return f"node {names[0]}" if len(nodes) == 1 else f"nodes {listed(names)}"
