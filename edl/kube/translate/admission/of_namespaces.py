"""What the namespaces of saved files do to new pods: the API server refuses them, or changes where they may go.

Source: k8s.io/kubernetes plugin/pkg/admission, podnodeselector and podtolerationrestriction; openshift/kubernetes,
openshift-kube-apiserver/admission/scheduler/nodeenv.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from edl.kube.translate.admission.new_pods import NewPod, owners
from edl.kube.translate.scalars import Scalar, text
from edl.kube.translate.storage_objects import NamespaceAnnotations, NamespaceObject
from edl.model.units import listed
from edl.printable import one_line

_LONGEST = 160


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


def unused_annotations(sources: Iterable[NamespaceObject], pods: Sequence[NewPod]) -> Iterator[str]:
    """Yield a line for each namespace whose annotations may change on which nodes new pods run.

    Args:
        sources: every namespace.
        pods: those that do not exist yet.
    """
    for source in sources:
        annotations = source.metadata.annotations if source.metadata is not None else None
        if source.metadata is None or annotations is None:
            continue
        name, here = source.metadata.name, [pod for pod in pods if pod.namespace == source.metadata.name]
        given = list(_given(annotations))
        may = [f"give them {listed(given)}"] if given else []
        may += ["refuse their tolerations"] if _is_list(annotations.allowed_tolerations) else []
        if here and may:
            yield f"namespace {name} is not applied to {owners(here)}: it may {', and '.join(may)}"


def _given(annotations: NamespaceAnnotations) -> Iterator[str]:
    selectors = (text(annotations.node_selector), text(annotations.openshift_node_selector))
    yield from (f"the node selector {one_line(one, _LONGEST)}" for one in dict.fromkeys(selectors) if one)
    if _is_list(annotations.default_tolerations):
        yield "tolerations"


def _is_list(value: Scalar) -> bool:
    """True for a list of tolerations in JSON with any; an empty one gives and refuses nothing."""
    return "".join(text(value).split()) not in {"", "[]", "null"}
