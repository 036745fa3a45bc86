"""Rules between pods, and ClusterQueues, that ask for labels of namespaces which saved files do not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from edl.errors import ConfigError
from edl.kube.translate.kueue.objects import kueue_of
from edl.kube.translate.kueue.trees import read_quotas
from edl.kube.translate.objects import PodObject
from edl.kube.translate.rules.namespaces import NamespaceLabels, unknown_labels
from edl.kube.translate.rules.terms import PodRules, PodTerm, rules_of, selector_words
from edl.kube.translate.rules.view import LabelIndex
from edl.model.units import count

_REMEDY = "save the namespaces, too (kubectl get namespaces)"


def unknown_namespaces(pods: Iterable[tuple[str, str, PodObject]], known: NamespaceLabels) -> Iterator[str]:
    """Yield a warning for each selector of namespaces whose choice the files do not tell.

    Args:
        pods: (name, namespace, pod) of each pod, those that do not exist yet, too.
        known: the labels of the namespaces in the files.
    """
    carriers: dict[PodTerm, dict[str, None]] = {}
    kinds: dict[PodRules, None] = {}
    for name, namespace, pod in pods:
        rules = rules_of(pod, namespace, is_manifest=True)
        kinds[PodRules(namespace, rules.labels)] = None
        for term in (*rules.affinity, *rules.anti):
            if term.namespace_selector:
                carriers.setdefault(term, {})[name] = None
    index = LabelIndex((rules, None) for rules in kinds)
    found: dict[str, tuple[dict[str, None], set[str]]] = {}
    for term, names in carriers.items():
        unknown = {r.namespace for r, _ in index.candidates(term.selector) if term.is_about(r, known) is None}
        if unknown:
            those, namespaces = found.setdefault(selector_words(term.namespace_selector), ({}, set()))
            those.update(names)
            namespaces |= unknown
    for words, (those, namespaces) in found.items():
        first, *others = those
        also = f" and {count(len(others), 'other')}" if others else ""
        yield (
            f"namespaceSelector {words} of {first}{also}:"
            f" edl cannot tell what it chooses{unknown_labels(namespaces)};"
            f" an affinity counts their pods as not chosen, and an anti-affinity as chosen; {_REMEDY}"
        )


def unknown_to_queues(of: Callable[[str], list[Any]], known: NamespaceLabels) -> Iterator[str]:
    """Yield a warning for each ClusterQueue of which the files do not tell whose Workloads it admits.

    Args:
        of: gives the objects of a kind.
        known: the labels of the namespaces in the files.
    """
    try:
        quotas = read_quotas(kueue_of(of), known)
    except ConfigError:
        return  # each job of Kueue says so
    unknown: dict[str, set[str]] = {}
    for (queue, namespace), is_chosen in sorted(quotas.chosen.items()):
        if is_chosen is None:
            unknown.setdefault(queue, set()).add(namespace)
    for queue, namespaces in unknown.items():
        yield (
            f"namespaceSelector of {queue}: edl cannot tell what it chooses{unknown_labels(namespaces)}; what waits"
            f" there counts as if it were chosen; {_REMEDY}"
        )
