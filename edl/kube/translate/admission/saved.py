"""Tells what a plan from saved files cannot know: what the API server would change or reject in new pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from edl.kube.translate.admission.limits import unused_limit_ranges, unused_quotas
from edl.kube.translate.admission.new_pods import new_pods
from edl.kube.translate.admission.objects import BINDINGS, POLICIES, WEBHOOKS
from edl.kube.translate.admission.of_namespaces import leaving_namespaces, unused_annotations
from edl.kube.translate.admission.runtime_classes import unused_runtime_classes
from edl.kube.translate.admission.unknown_namespaces import unknown_namespaces, unknown_to_queues
from edl.kube.translate.admission.unsaved import unsaved_kinds
from edl.kube.translate.admission.webhooks import Admission
from edl.kube.translate.objects import PodMetadata, PodObject
from edl.kube.translate.rules.facts import labels_of_namespaces
from edl.kube.translate.rules.terms import DEFAULT_NAMESPACE
from edl.kube.translate.workload_reader import WorkloadObject


def not_asked(of: Callable[[str], list[Any]], workloads: Iterable[WorkloadObject]) -> Iterator[str]:
    """Yield a warning for each object in the files that may change or reject new pods, and for what was not saved.

    Args:
        of: gives the objects of a kind.
        workloads: the jobs of other kinds.
    """
    pods, namespaces = list(new_pods(of("TrainingJob"), workloads, of("Pod"))), labels_of_namespaces(of("Namespace"))
    bindings = [(kind, one) for kind in BINDINGS for one in of(kind)]
    sources = ((kind, source) for kind in (*WEBHOOKS, *POLICIES) for source in of(kind))
    yield from Admission(pods, namespaces, bindings).not_asked(sources)
    yield from unused_limit_ranges(of("LimitRange"), pods)
    yield from unused_quotas(of("ResourceQuota"), pods)
    yield from unused_runtime_classes(of("RuntimeClass"), pods)
    yield from leaving_namespaces(of("Namespace"), pods)
    yield from unused_annotations(of("Namespace"), pods)
    known = [
        (f"pod {_namespace(pod)}/{(pod.metadata or PodMetadata()).name}", _namespace(pod), pod) for pod in of("Pod")
    ]
    every = [*known, *((f"{new.kind} {new.name}", new.namespace, new.pod) for new in pods)]
    yield from unknown_namespaces(every, namespaces)
    yield from unknown_to_queues(of, namespaces)
    yield from unsaved_kinds(of, every)


def _namespace(pod: PodObject) -> str:
    return (pod.metadata or PodMetadata()).namespace or DEFAULT_NAMESPACE
