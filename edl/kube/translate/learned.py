"""The shape of a job's pods as admission makes them: with injected sidecars, defaults and overhead.

A plan counts what kube-scheduler counts. A webhook or a policy may change requests or add a container, a LimitRange
a default request, and a RuntimeClass an overhead, so a live pod can be larger or smaller than its manifest. What
becomes of it is read from the pods that exist, and before the first one from the answer to a dry run.
"""

from __future__ import annotations

from edl.kube.translate.objects import ContainerObject, PodSpec
from edl.kube.translate.shapes import parse_amounts, shape_of
from edl.model.resources import PodShape


def learned_shape(manifest: PodSpec, planned: PodShape, pod: PodSpec, *, is_of_manifest: bool) -> PodShape | None:
    """The shape of new pods, judged by one that exists.

    Args:
        manifest: the spec that edl would create now.
        planned: the shape of the manifest.
        pod: the spec of the pod, as stored.
        is_of_manifest: the pod was made from such a manifest. False if that is not known: then it was if its
            containers still request what the manifest asks for.

    Returns:
        The request of the pod with the placement of the manifest; None if the pod was made from another spec.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
    stored = {container.name: container for container in pod.containers or ()}
    for container in manifest.containers or ():
        found = stored.get(container.name)
        if found is None or not (is_of_manifest or _requests(container).items() <= _requests(found).items()):
            return None
    return PodShape(shape_of(pod).request, planned.placement)


def _requests(container: ContainerObject) -> dict[str, int]:
    resources = container.resources
    if resources is None:
        return {}
    return {**parse_amounts(resources.limits), **parse_amounts(resources.requests)}
