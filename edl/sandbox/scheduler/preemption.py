"""Chooses pods of lower priority to delete so that a pod fits.

On each node all pods of lower priority are taken away in thought; if the pod then fits, the most important ones come
back first as long as it still fits. Of the nodes, the one whose most important victim is least important wins, then
the one with the smaller sum of priorities, then with fewer victims, then whose most important victim started last.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/, and
k8s.io/kubernetes/pkg/scheduler/framework/preemption.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from edl.sandbox.objects import is_deleted
from edl.sandbox.scheduler.filters import refusal_for_good, shortages
from edl.sandbox.scheduler.neighbours import refusal_between
from edl.sandbox.scheduler.view import NodeView, PodView

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_CLAIMS = "no new claims to deallocate"
"""The message of kube-scheduler's plugin for a pod without ResourceClaims; tools compare the whole text."""
_OFFSET = 2**31  # priorities become positive, so that more victims are a larger sum


@dataclass(frozen=True, slots=True)
class Preemption:
    """A node, and the pods to delete on it."""

    node: str
    victims: tuple[PodView, ...]


def may_preempt(pod: PodView, nodes: Sequence[NodeView]) -> bool:
    """Whether a pod may preempt now: its policy allows it, and victims of an earlier preemption for it are gone."""
    if not pod.may_preempt:
        return False
    waiting_for = next((node for node in nodes if node.name == pod.nominated), None)
    if waiting_for is None:
        return True
    return not any(is_deleted(other.body) and other.priority < pod.priority for other in waiting_for.pods)


def find_preemption(
    pod: PodView, nodes: Sequence[NodeView], closed: Container[str] = frozenset()
) -> Preemption | None:
    """Choose the best node for a preemption; None if it helps on no node.

    Args:
        pod: that no node can take.
        nodes: all of them.
        closed: the names of those on which its volumes or devices cannot be used.
    """
    choices = [
        Preemption(node.name, victims)
        for node in nodes
        if node.name not in closed and not refusal_for_good(pod, node) and (victims := _victims(pod, node, nodes))
    ]
    return min(choices, key=_cost, default=None)


def refusal_note(
    pod: PodView, nodes: Sequence[NodeView], closed: Container[str] = frozenset(), claims: str = NO_CLAIMS
) -> str:
    """The part of kube-scheduler's message that says why preemption found no node; see `find_preemption`.

    Args:
        pod: that no node can take.
        nodes: all of them.
        closed: the names of those on which its volumes or devices cannot be used.
        claims: what was done for its claims on devices.
    """
    if not pod.may_preempt:
        return f"{claims}, preemption: not eligible due to preemptionPolicy=Never."
    helpless = sum(
        node.name in closed or bool(refusal_for_good(pod, node)) or _is_too_large(pod, node) for node in nodes
    )
    counts = {NO_VICTIMS: len(nodes) - helpless, NOT_HELPFUL: helpless}
    parts = sorted(f"{count} {reason}" for reason, count in counts.items() if count)
    found = f"0/{len(nodes)} nodes are available: {', '.join(parts)}."
    return f"{claims}, preemption: {found}" if parts else ""


def _is_too_large(pod: PodView, node: NodeView) -> bool:
    """Whether a node could not take a pod even if it were empty."""
    return any(amount > node.allocatable.get(resource, 0) for resource, amount in pod.request.items())


def _victims(pod: PodView, node: NodeView, nodes: Sequence[NodeView]) -> tuple[PodView, ...]:
    """Choose the pods to delete on a node; empty if that does not help."""

    def lacks(beside: Sequence[PodView]) -> bool:
        left = node.with_pods(beside)
        return bool(shortages(pod, left) or refusal_between(pod, left, nodes))

    lower = sorted(
        (other for other in node.pods if other.priority < pod.priority),
        key=lambda other: (-other.priority, other.created, other.key),
    )
    kept = [other for other in node.pods if other.priority >= pod.priority]
    if lacks(kept):
        return ()
    victims = []
    for other in lower:
        if lacks([*kept, other]):
            victims.append(other)
        else:
            kept.append(other)
    return tuple(victims)


def _cost(choice: Preemption) -> tuple[int, int, int, tuple[int, ...], str]:
    highest = max(one.priority for one in choice.victims)
    latest = max(one.created for one in choice.victims if one.priority == highest)
    youth = tuple(-ord(letter) for letter in latest)
    total = sum(one.priority + _OFFSET for one in choice.victims)
    return highest, total, len(choice.victims), youth, choice.node
