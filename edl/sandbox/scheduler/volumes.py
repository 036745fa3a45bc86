"""Finds nodes on which a pod's volumes may be used, with kube-scheduler's messages (VolumeBinding, VolumeZone).

What a volume requires is read as edl's planner reads it (`edl/kube/translate/rules/volumes.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from edl.kube.translate.decoders import VOLUME_CLAIMS, VOLUMES, Quarantined
from edl.kube.translate.rules.facts import RuleFacts, RuleObjects, read_facts
from edl.kube.translate.rules.volumes import rules_of_claim
from edl.model.resources import NodeRule
from edl.planner.eligibility import is_met
from edl.sandbox.objects import namespace_of
from edl.sandbox.scheduler.view import NodeView

Object = dict[str, Any]
ELSEWHERE = "node(s) didn't match PersistentVolume's node affinity"
NO_ZONE = "node(s) had no available volume zone"


@dataclass(frozen=True, slots=True)
class VolumeRule:
    """What a volume requires of the nodes of its pods, and the message about nodes that do not match."""

    rule: NodeRule
    words: str


def claims_of(pod: Object) -> Iterator[str]:
    """The names of the volume claims of a pod."""
    for volume in pod["spec"].get("volumes") or ():
        if source := volume.get("persistentVolumeClaim"):
            yield source["claimName"]


def volume_rules(pod: Object, claims: Iterable[Object], volumes: Iterable[Object]) -> list[VolumeRule]:
    """Read what the bound claims of a pod require of its node.

    Args:
        pod: the pod.
        claims: the PersistentVolumeClaims.
        volumes: the PersistentVolumes.
    """
    names = list(claims_of(pod))
    if not names:
        return []
    facts = _facts(claims, volumes)
    found = []
    for name in names:
        for rule in rules_of_claim((namespace_of(pod), name), facts):
            words = ELSEWHERE if _has_affinity((namespace_of(pod), name), facts) else NO_ZONE
            found.append(VolumeRule(rule, words))
    return found


def refusal_by_volumes(rules: Iterable[VolumeRule], node: NodeView) -> str:
    """Why a node could not take a pod with such volumes even without other pods; empty if it could."""
    fields = {"metadata.name": node.name}
    for one in rules:
        if not any(is_met(term, node.labels, fields) for term in one.rule.terms):
            return one.words
    return ""


def _facts(claims: Iterable[Object], volumes: Iterable[Object]) -> RuleFacts:
    read_claims = (VOLUME_CLAIMS.from_dict(claim) for claim in claims)
    read_volumes = (VOLUMES.from_dict(volume) for volume in volumes)
    return read_facts(
        RuleObjects(
            claims=[one for one in read_claims if not isinstance(one, Quarantined)],
            volumes=[one for one in read_volumes if not isinstance(one, Quarantined)],
        )
    )


def _has_affinity(claim: tuple[str, str], facts: RuleFacts) -> bool:
    spec = facts.claims[claim].spec
    volume = facts.volumes.get(spec.volume_name or "") if spec else None
    return volume is not None and volume.spec is not None and volume.spec.node_affinity is not None
