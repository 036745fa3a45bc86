"""Decides which nodes the rules leave to one pod, in a cluster in which every other pod stays.

For a plan, `apply` does this for all waiting pods at once; here one answer of kube-scheduler is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from edl.kube.translate.rules.apply import RuledSnapshots
from edl.kube.translate.rules.facts import RuleFacts
from edl.kube.translate.rules.terms import PodRules
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.pods import Pod
from edl.model.resources import Placement, Resources
from edl.planner.eligibility import is_selected


class RuleKind(StrEnum):
    """The kinds of rules: between pods, by volumes, by devices."""

    BETWEEN_PODS = "rules between pods"
    VOLUMES = "volumes"
    CLAIMS = "claims"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rules say about one pod.

    Attributes:
        blocked: why no node takes it; empty if one may.
        placement: what they require of its node.
        request: what it requests of the resources that stand for rules.
        more: what nodes have of resources beyond their own, by name.
    """

    blocked: str
    placement: Placement
    request: Resources
    more: Mapping[str, Resources]

    def allows(self, node: Node) -> bool:
        """Return True if the rules let the pod run on a node."""
        has = self.more.get(node.name, Resources())
        return not self.blocked and self.request.fits(has) and is_selected(node, self.placement)


def verdict_on(pod: Pod, snapshot: ClusterSnapshot, facts: RuleFacts, rules_of: Callable[[Pod], PodRules]) -> Verdict:
    """Judge a pod that has no node by the rules.

    Args:
        pod: the pod.
        snapshot: the nodes, and the other pods as foreign ones, each on its node.
        facts: volumes, classes, attach limits, namespaces and devices.
        rules_of: the rules and labels of a pod; equal ones must be one object.
    """
    ruled = RuledSnapshots().apply(
        replace(snapshot, pods=(*snapshot.pods, pod)), facts, rules_of, lambda _job, _role: PodRules("")
    )
    found = ruled.pods[-1]
    nodes = zip(snapshot.nodes, ruled.nodes, strict=True)
    return Verdict(
        blocked=found.blocked,
        placement=replace(Placement(), rules=found.shape.placement.rules),
        request=found.shape.request - pod.shape.request,
        more={plain.name: node.allocatable - plain.allocatable for plain, node in nodes if node is not plain},
    )


def only(kind: RuleKind, rules: PodRules) -> PodRules:
    """Return the rules of a pod that are of one kind; its labels, by which others avoid it, go with the first."""
    match kind:
        case RuleKind.BETWEEN_PODS:
            return replace(rules, claims=(), devices=())
        case RuleKind.VOLUMES:
            return PodRules(rules.namespace, claims=rules.claims)
        case RuleKind.CLAIMS:
            return PodRules(rules.namespace, devices=rules.devices)
