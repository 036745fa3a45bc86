"""Reads from kube-scheduler's message about an unschedulable pod how many nodes each predicate excludes.

A message such as `0/5 nodes are available: 2 Insufficient cpu, 3 node(s) had untolerated taint {a: b}.` has a number
for each reason; a node may have several reasons. What follows `preemption:` is about evictions, not about nodes.

Source: k8s.io/kubernetes/pkg/scheduler/framework, func FitError.Error; the plugins in framework/plugins.
"""

from __future__ import annotations

import re

from edl.shadow.document import Predicate

_REASON = re.compile(r"(\d{1,9}) (.+?)(?=, \d{1,9} |$)")
_MEANINGS = (
    (Predicate.VOLUMES, re.compile(r"persistentvolume|volume|storage class|csidriver|max attach", re.IGNORECASE)),
    (
        Predicate.CLAIMS,
        re.compile(r"resource ?claim|allocate all claims|cannot allocate|resource ?slice", re.IGNORECASE),
    ),
    (Predicate.BETWEEN_PODS, re.compile(r"pod (?:anti-?)?affinity|anti-affinity|topology spread", re.IGNORECASE)),
    (Predicate.SELECTOR, re.compile(r"node affinity|selector|requested node name|NodeAffinity")),
    (Predicate.TAINTS, re.compile(r"taint|unschedulable|not ready|unreachable", re.IGNORECASE)),
    (Predicate.PORTS, re.compile(r"free ports|hostport", re.IGNORECASE)),
    (Predicate.RESOURCES, re.compile(r"^(?:Insufficient |Too many pods)|NodeResourcesFit")),
)


def predicates_of(message: str) -> dict[Predicate, int]:
    """How many nodes a message names for each predicate; a reason without a number counts as 1.

    Args:
        message: the message of the condition PodScheduled.

    Returns:
        At least one predicate: `OTHER` if no reason is known.
    """
    nodes, _, _ = message.partition(" preemption:")
    _, colon, reasons = nodes.partition("nodes are available:")
    found: dict[Predicate, int] = {}
    if colon:
        for number, reason in _REASON.findall(reasons.strip().rstrip(".")):
            predicate = predicate_of(reason)
            found[predicate] = found.get(predicate, 0) + int(number)
    return found or {predicate_of(nodes): 1}


def predicate_of(reason: str) -> Predicate:
    """The predicate that a reason is about."""
    return next((predicate for predicate, words in _MEANINGS if words.search(reason)), Predicate.OTHER)
