"""Namespaces of saved files that are being deleted: the API server creates nothing in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from edl.kube.translate.admission.new_pods import NewPod, owners
from edl.kube.translate.storage_objects import NamespaceObject


def leaving_namespaces(sources: Iterable[NamespaceObject], pods: Sequence[NewPod]) -> Iterator[str]:
    """Yield a line for each namespace that is being deleted and in which there are to be pods.

    Args:
        sources: every namespace.
        pods: those that do not exist yet.
    """
    for source in sources:
        name = source.metadata.name if source.metadata is not None and source.metadata.deletion_timestamp else None
        if name and (here := [pod for pod in pods if pod.namespace == name]):
            yield f"namespace {name} is being deleted, so the API server refuses {owners(here)}; use another one"
