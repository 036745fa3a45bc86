"""Checks required affinity, anti-affinity and topology spread between a pod and the running pods.

The words are those of kube-scheduler's plugins InterPodAffinity and PodTopologySpread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from edl.kube.translate.rules.terms import PodTerm, SpreadTerm
from edl.sandbox.scheduler.filters import is_tolerated, matches_node
from edl.sandbox.scheduler.view import NodeView, PodView

APART = "node(s) didn't match pod anti-affinity rules"
KEPT_AWAY = "node(s) didn't satisfy existing pods anti-affinity rules"
NEAR = "node(s) didn't match pod affinity rules"
SPREAD = "node(s) didn't match pod topology spread constraints"


def refusal_between(pod: PodView, node: NodeView, nodes: Sequence[NodeView]) -> str:
    """Why a node cannot take a pod beside the pods that run; an empty text if it can.

    Args:
        pod: the pod.
        node: the node, with the pods that it would have.
        nodes: all of them; the one of the same name counts as `node`.
    """
    if not pod.rules.has_terms and not any(one.avoiding for one in nodes):
        return ""
    others = [node if one.name == node.name else one for one in nodes]
    if any(_is_beside(node, term, place, other, pod) for place, other, term in _existing_terms(others)):
        return KEPT_AWAY
    if any(_has(term, node, others) for term in pod.rules.anti):
        return APART
    if pod.rules.affinity and not _is_near(pod, node, others):
        return NEAR
    if any(not _is_even(term, pod, node, others) for term in pod.rules.spread):
        return SPREAD
    return ""


def _existing_terms(nodes: Sequence[NodeView]) -> Iterator[tuple[NodeView, PodView, PodTerm]]:
    """The anti-affinity terms of the pods on the nodes."""
    return ((node, pod, term) for node in nodes for pod in node.avoiding for term in pod.rules.anti)


def _is_beside(node: NodeView, term: PodTerm, place: NodeView, other: PodView, pod: PodView) -> bool:
    value = node.labels.get(term.key)
    is_same = value is not None and value == place.labels.get(term.key)
    return is_same and other.uid != pod.uid and term.is_about(pod.rules, {}) is True


def _has(term: PodTerm, node: NodeView, nodes: Sequence[NodeView]) -> bool:
    """True if a pod that the term is about is in the domain of the node."""
    value = node.labels.get(term.key)
    here = [one for one in nodes if value is not None and one.labels.get(term.key) == value]
    return any(term.is_about(pod.rules, {}) for one in here for pod in one.pods)


def _is_near(pod: PodView, node: NodeView, nodes: Sequence[NodeView]) -> bool:
    terms = pod.rules.affinity
    near = [one for one in nodes for other in one.pods if all(term.is_about(other.rules, {}) for term in terms)]
    values = [(term.key, node.labels.get(term.key)) for term in terms]
    if any(value is None for _, value in values):
        return False
    if not near:
        return all(term.is_about(pod.rules, {}) for term in terms)
    return all(any(one.labels.get(key) == value for one in near) for key, value in values)


def _is_even(term: SpreadTerm, pod: PodView, node: NodeView, nodes: Sequence[NodeView]) -> bool:
    value = node.labels.get(term.key)
    if value is None:
        return False
    have: Counter[str] = Counter()
    for one in nodes:
        domain = one.labels.get(term.key)
        if domain is not None and _counts(term, pod, one):
            have[domain] += sum(term.is_about(other.rules) for other in one.pods)
    lowest = min(have.values(), default=0) if len(have) >= term.min_domains else 0
    return have[value] + term.is_about(pod.rules) - lowest <= term.max_skew


def _counts(term: SpreadTerm, pod: PodView, node: NodeView) -> bool:
    """True if the constraint counts the pods of a node."""
    spec = pod.body["spec"]
    if any(node.labels.get(one.key) is None for one in pod.rules.spread):
        return False
    if term.honors_affinity and not matches_node(spec, node.labels):
        return False
    tolerations = spec.get("tolerations") or ()
    return not term.honors_taints or all(is_tolerated(taint, tolerations) for taint in node.taints)
