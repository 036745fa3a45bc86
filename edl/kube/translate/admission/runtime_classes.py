"""RuntimeClasses that new pods name: the API server gives pods what their class says, and a plan from files does not.

Source: k8s.io/kubernetes plugin/pkg/admission/runtimeclass
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from edl.kube.translate.admission.new_pods import NewPod, owners
from edl.kube.translate.admission.objects import RuntimeClassObject, SchedulingObject
from edl.kube.translate.scalars import text
from edl.model.units import listed


def unused_runtime_classes(sources: Iterable[RuntimeClassObject], pods: Iterable[NewPod]) -> Iterator[str]:
    """Yield a line for each RuntimeClass that new pods name, if it changes what they ask for or is not in the files.

    Args:
        sources: every RuntimeClass.
        pods: those that do not exist yet.
    """
    known = {one.metadata.name or "": one for one in sources if one.metadata is not None}
    users: dict[str, list[NewPod]] = {}
    for pod in pods:
        if pod.spec.runtime_class_name:
            users.setdefault(pod.spec.runtime_class_name, []).append(pod)
    for name, here in sorted(users.items()):
        if not known:
            yield (
                f"the files hold no RuntimeClass, so what RuntimeClass {name} gives {owners(here)} is not counted;"
                " save them, too (kubectl get runtimeclasses)"
            )
        elif name not in known:
            yield f"RuntimeClass {name} does not exist, so the API server refuses {owners(here)}; create it"
        elif given := list(_given(known[name], here)):
            yield f"RuntimeClass {name} is not applied to {owners(here)}: it gives them {listed(given)}"


def _given(source: RuntimeClassObject, pods: Iterable[NewPod]) -> Iterator[str]:
    """Name what a RuntimeClass adds to a pod that lacks it: overhead, node selector and so on."""
    overhead = (source.overhead.pod_fixed if source.overhead is not None else None) or {}
    if overhead and any(not pod.spec.overhead for pod in pods):
        amounts = (f"{text(quantity)} of {resource}" for resource, quantity in sorted(overhead.items()))
        yield f"an overhead of {listed(list(amounts))}"
    scheduling = source.scheduling or SchedulingObject()
    if labels := scheduling.node_selector:
        yield f"the node selector {', '.join(f'{key}={text(value)}' for key, value in sorted(labels.items()))}"
    if scheduling.tolerations:
        yield "tolerations"
