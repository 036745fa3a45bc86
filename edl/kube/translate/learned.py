"""The shape of a job's pods as admission makes them: with injected sidecars, defaults, overhead, other nodes.

A plan counts what kube-scheduler counts. A webhook or a policy may change requests or add a container, a LimitRange
a default request, and a RuntimeClass an overhead, so a live pod can be larger or smaller than its manifest. A
RuntimeClass, a namespace or the API server itself may add labels that its node must have, or taints that it tolerates
(as ExtendedResourceToleration does for GPUs). What becomes of it is read from the pods that exist, and before the
first one from the answer to a dry run.
"""

from __future__ import annotations

from dataclasses import replace

from edl.kube.translate.container_objects import ContainerObject
from edl.kube.translate.objects import PodSpec
from edl.kube.translate.shapes import parse_amounts, placement_of, shape_of
from edl.model.pods import Pod
from edl.model.resources import Placement, PodShape


def learned_shape(
    manifest: PodSpec, planned: PodShape, pod: PodSpec, *, is_of_manifest: bool, shows_nodes: bool = True
) -> PodShape | None:
    """The shape of new pods, judged by one that exists.

    Args:
        manifest: the spec that edl would create now.
        planned: the shape of the manifest.
        pod: the spec of the pod, as stored.
        is_of_manifest: the pod was made from such a manifest. False if that is not known: then it was if its
            containers still request what the manifest asks for.
        shows_nodes: it has the node labels and tolerations of such a manifest and what admission added, no others.

    Returns:
        The request of the pod, with the placement of the manifest and what admission added to it; None if the pod was
        made from another spec.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
    stored = {container.name: container for container in pod.containers or ()}
    for container in manifest.containers or ():
        found = stored.get(container.name)
        if found is None or not (is_of_manifest or _requests(container).items() <= _requests(found).items()):
            return None
    placement = learned_placement(manifest, placement_of(pod)) if shows_nodes else planned.placement
    return PodShape(shape_of(pod).request, placement)


def learned_placement(manifest: PodSpec, pod: Placement) -> Placement:
    """The placement of new pods: that of the manifest, with the node labels and tolerations that admission adds.

    What admission takes away or replaces is not read. Nor is node affinity: edl adds some to its pods itself.
    """
    own = placement_of(manifest)
    is_added = {*own.node_selector} <= {*pod.node_selector} and {*own.tolerations} <= {*pod.tolerations}
    return replace(own, node_selector=pod.node_selector, tolerations=pod.tolerations) if is_added else own


def _requests(container: ContainerObject) -> dict[str, int]:
    resources = container.resources
    if resources is None:
        return {}
    return {**parse_amounts(resources.limits), **parse_amounts(resources.requests)}


def differs(pod: PodShape, usual: PodShape, *, shows_nodes: bool) -> bool:
    """True if a pod may teach something; node affinity does not, because edl adds some to its pods itself."""
    one, other = pod.placement, usual.placement
    is_elsewhere = (one.node_selector, one.tolerations) != (other.node_selector, other.tolerations)
    return pod.request != usual.request or (shows_nodes and is_elsewhere)


def tells_more(pod: Pod, other: Pod) -> bool:
    """True if a pod shows more than another one of its role does: it lends no CPU, or is newer."""
    return (not pod.lent_cpu_milli, pod.created_s) > (not other.lent_cpu_milli, other.created_s)
