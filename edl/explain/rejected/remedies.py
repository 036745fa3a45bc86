"""What helps against a rule or a volume that keeps pods from nodes."""

from __future__ import annotations

from collections.abc import Iterable

from edl.model.resources import BY_HAND, ONE_POD, RULE_PREFIX, TAKES_NO_MORE, NodeRule
from edl.model.topology import SEATS
from edl.model.units import listed

ALLOWED = "change the rule or the volume that the line names, or add a node that it allows"
_FULL_DOMAIN = (
    "free capacity {}, keep its trainers from there by a node affinity, or raise maxSkew or set whenUnsatisfiable to"
    " ScheduleAnyway in the rule"
)
_ONE_POD = (
    "end the other pod that uses the claim, or give its pods a claim that several may use, or an ephemeral volume"
    " each: a node more does not help"
)
_MAKE_MORE = "make more such volumes, or name a StorageClass that makes them"
_OF_NODES = "{} {}, or give its pods a volume that other nodes reach: a node more does not help"
_WHOLE_SLICE = "free capacity for a whole slice in one of the domains that the line names, or add nodes to one"
_NODE_LABELS = frozenset({"kubernetes.io/hostname", "metadata.name"})


def against_names(names: Iterable[str]) -> list[str]:
    """Say what helps if resources that stand for rules between pods are full."""
    return [*dict.fromkeys(_against(name) for name in names)]


def _against(name: str) -> str:
    if f" {TAKES_NO_MORE} " in name:
        _, _, where = name.partition(f" {TAKES_NO_MORE} ")[0].rpartition(", and ")
        return _FULL_DOMAIN.format(f"{'on' if where.startswith('node ') else 'in'} {where}")
    if name.startswith(SEATS):
        return _WHOLE_SLICE
    if ONE_POD in name:
        return _ONE_POD
    return _MAKE_MORE if name.startswith(f"{RULE_PREFIX}{BY_HAND} ") else ALLOWED


def on_nodes_of_volumes(rules: Iterable[NodeRule], what: str = "free capacity on") -> list[str]:
    """Say what helps pods that must run where their volume is; nothing if no volume binds them to nodes.

    Args:
        rules: of the pods.
        what: is to be done with the nodes.
    """
    for rule in rules:
        terms = [*rule.terms]
        each = [one for term in terms for one in (*term.expressions, *term.fields)]
        is_volume = rule.why.startswith("volume") and not rule.why.startswith(RULE_PREFIX)
        if is_volume and each and all(one.key in _NODE_LABELS and one.operator == "In" for one in each):
            names = sorted({value for one in each for value in one.values})
            return [_OF_NODES.format(what, f"node {names[0]}" if len(names) == 1 else f"nodes {listed(names)}")]
    return []
