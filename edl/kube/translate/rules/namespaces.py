"""Decides which namespaces a selector chooses, even if the labels of a namespace are not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edl.model.resources import Requirement
from edl.model.units import listed
from edl.planner.eligibility import holds

NAME_LABEL = "kubernetes.io/metadata.name"
"""The API server gives it to each namespace, with its name."""

NAMED = 3
"""The most namespaces that are named."""

NamespaceLabels = Mapping[str, Mapping[str, str]]
"""The labels of each namespace that is known."""


def chooses(selector: tuple[Requirement, ...], namespace: str, known: NamespaceLabels) -> bool | None:
    """Return True if a selector chooses a namespace; None if that depends on labels that are not known."""
    labels = known.get(namespace)
    if labels is not None:
        return all(holds(one, labels) for one in selector)
    named = [one for one in selector if one.key == NAME_LABEL]
    if not all(holds(one, {NAME_LABEL: namespace}) for one in named):
        return False
    return True if len(named) == len(selector) else None


def unknown_labels(namespaces: Iterable[str]) -> str:
    """Name the namespaces whose labels are not known, as the end of a sentence; empty if there are none."""
    names = sorted(namespaces)
    if not names:
        return ""
    what = f"namespace{'' if len(names) == 1 else 's'}"
    most = names if len(names) <= NAMED else [*names[:NAMED], f"{len(names) - NAMED} more"]
    return f" (the labels of {what} {listed(most)} are not known)"
