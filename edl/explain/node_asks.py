"""Sentences about nodes that a plan asks an autoscaler for or empties, added to the lines of the jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edl.model.cluster import ClusterSnapshot
from edl.model.node_groups import NodeAsk, NoNode
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.status import Reason
from edl.model.units import count, listed

_OBSTACLES = {
    NoNode.DOES_NOT_FIT: "no expected group has nodes that its pods fit on",
    NoNode.LIMIT: "the expected groups that fit have as many nodes as they may have",
    NoNode.NO_GAIN: "a further node of an expected group would give it no trainer",
    NoNode.NO_TIME: "this decision had no time left to find a node to ask for",
}


def with_node_sentences(plan: ScalePlan, snapshot: ClusterSnapshot) -> ScalePlan:
    """Return the plan with sentences about requested and emptied nodes; the same object if there are none."""
    is_quiet = all(d.asks is None and d.shrink_reason != Reason.NODE_IDLE for d in plan.decisions)
    return plan if is_quiet else replace(plan, decisions=tuple(_worded(d, snapshot) for d in plan.decisions))


def asks_dict(asks: NodeAsk | None) -> dict[str, Any] | None:
    """The nodes that a job asks an autoscaler for, as JSON; None if it may not ask or lacks no capacity."""
    if asks is None:
        return None
    return {
        "group": asks.group,
        "nodes": asks.nodes,
        "pricePerHour": asks.price_per_hour,
        "gain": asks.gain,
        "obstacle": asks.obstacle.value if asks.obstacle is not None else None,
    }


def _worded(decision: ScaleDecision, snapshot: ClusterSnapshot) -> ScaleDecision:
    short, full = _ask(decision.asks, snapshot) if decision.asks is not None else ("", "")
    if decision.shrink_reason == Reason.NODE_IDLE:
        given = count(len(decision.victims), "trainer")
        full = f"gives up {given} above its minimum, so that {listed(snapshot.idle_nodes)} can leave the cluster"
    message = f"{decision.message}; {short}" if short else decision.message
    account = f"{decision.account}; {full}" if full else decision.details
    return replace(decision, message=message, details=account)


def _ask(asks: NodeAsk, snapshot: ClusterSnapshot) -> tuple[str, str]:
    """The short form and the account; the short form does not change while an ask lasts."""
    if asks.obstacle is NoNode.RESTS:
        names = [name for name, _ in snapshot.resting_groups]
        word = "group" if len(names) == 1 else "groups"
        said = f"{word} {listed(names)} brought no node in time, and edl asks again later"
        return said, said
    if asks.obstacle is not None:
        return "", _OBSTACLES[asks.obstacle]
    short = f"asks for {count(asks.nodes, 'node')} of group {asks.group}"
    price = f" at {asks.price_per_hour:g} an hour"
    if not asks.gain:
        return short, short + price
    each = asks.price_per_hour / asks.gain
    return short, f"{short}{price}, which is {each:.3g} an hour for each of {count(asks.gain, 'trainer')}"
