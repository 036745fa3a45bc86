"""Nodes in words: the pools they belong to, and which resource is full on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from edl.model.cluster import Node
from edl.model.units import amount, listed, plain
from edl.planner.findings.pools import pool_of
from edl.planner.findings.scarcity import Shortage, open_nodes
from edl.planner.trial_packing import TrialPacking

NAMED_POOLS = 3
NAMED_RESOURCES = 2
UNPROVED = "another arrangement of the pods that start may have a slot, but none was found"


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
        """Which resource is full, or short, on which nodes: a short form, and one with what is free there.

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
        short = f"{plain(found[0].resource)} is {state} on {self.where(found[0].nodes, nodes)}"
        parts: list[str] = []
        for one in found[:NAMED_RESOURCES]:
            requested = int(packing.problem.request[shape, packing.problem.names.index(one.resource)])
            free = (
                f" (at most {amount(one.resource, one.most_free)} free on a node;"
                f" a trainer requests {amount(one.resource, requested)})"
                if one.most_free
                else ""
            )
            verb = f"is {state} on" if not parts else "on"
            parts.append(f"{plain(one.resource)} {verb} {self.where(one.nodes, nodes)}{free}")
        full = ", ".join(parts)
        return short, full if is_proved else f"{full}; {UNPROVED}"


def state_of(*, is_proved: bool) -> str:
    """What a resource is of which one more trainer finds too little: `full` only if no arrangement has a slot."""
    return "full" if is_proved else "short"
