"""The request and the placement of a pod or a pod template, computed as kube-scheduler computes them.

The request of a pod is max(all containers and native sidecars, each init container with the sidecars started before
it) + overhead. Pod-level requests replace the sum. A limit without a request is also the request. While a container
or a pod is resized in place, the larger of its spec and its granted resources counts. The request includes `pods: 1`
and every host port. The original project counted main containers only, and overcommitted every node with sidecars.

Source: k8s.io/component-helpers/resource, func PodRequests; k8s.io/kubernetes/pkg/scheduler/util, func GetHostPorts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from edl.kube.translate.container_objects import ContainerObject, ContainerStatus, ResourceAmounts
from edl.kube.translate.objects import PodSpec, PodStatus, TolerationObject
from edl.kube.translate.rule_objects import ExpressionObject, NodeSelectorObject, NodeTermObject
from edl.kube.translate.scalars import Scalar, text
from edl.model.quantity import parse_quantity
from edl.model.resources import (
    CPU,
    GPU,
    HOST_PORT_PREFIX,
    MEMORY,
    PODS,
    NodeTerm,
    Placement,
    PodShape,
    Preference,
    QosClass,
    Requirement,
    Resources,
    Toleration,
    port_at_every_address,
)

OLD_GPU = "alpha.kubernetes.io/nvidia-gpu"
"""The resource name of GPUs before device plugins; read as `nvidia.com/gpu`."""

ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # a value of a pod's hostIP; no socket is bound to it
"""The hostIP that kube-scheduler reads as every address of the node; it does not read `::` so."""

_HUGE_PAGES = "hugepages-"
_OF_EVERY_POD = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""What the API server lets every pod tolerate for a time; such nodes have a second taint that keeps pods away."""
_LONG_S = 300
"""The time of these. Who has less soon leaves the node, and the next pod of its owner would end trainers again."""

Amounts = dict[str, int]


def shape_of(spec: PodSpec, status: PodStatus | None = None, *, pinned_to: str = "") -> PodShape:
    """Return the shape of a pod, or of the pods of a template.

    Args:
        spec: the spec of the pod or the template.
        status: the status of the pod; None for a template.
        pinned_to: the node that edl pinned the pod to. The shape leaves it out, or every pod would have its
            own shape.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
    placement = placement_of(spec)
    if pinned_to:
        placement = replace(placement, required=_unpinned(placement.required, pinned_to))
    return PodShape(Resources.of(_request(spec, status, infeasible=_is_resize_infeasible(status))), placement)


def granted_of(spec: PodSpec, status: PodStatus | None) -> Resources:
    """Return what the kubelet has granted a running pod, with its host ports and its place among the pods.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
    return Resources.of(_request(spec, status, infeasible=True))


def limits_of(spec: PodSpec) -> Resources:
    """Return the resource limits of a pod, summed as its requests are; what has no limit is left out.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
    total = _sum(spec, lambda container: parse_amounts(container.resources.limits if container.resources else None))
    if spec.resources is not None:
        total.update(parse_amounts(spec.resources.limits))
    _add(total, {name: n for name, n in parse_amounts(spec.overhead).items() if name in total})
    return Resources.of(total)


def qos_of(spec: PodSpec) -> QosClass:
    """Return the QoS class that Kubernetes gives a pod.

    Requests and limits at the level of the pod count instead of those of its containers.

    Raises:
        ConfigError: a quantity cannot be parsed.

    Source: k8s.io/kubernetes/pkg/apis/core/v1/helper/qos, func ComputePodQOS.
    """
    parts = [c.resources for c in (*(spec.containers or ()), *(spec.init_containers or ()))]
    if spec.resources is not None and (spec.resources.requests or spec.resources.limits):
        parts = [spec.resources]
    asked = [_cpu_and_memory(part.requests if part else None) for part in parts]
    most = [_cpu_and_memory(part.limits if part else None) for part in parts]
    if not any(asked) and not any(most):
        return QosClass.BEST_EFFORT
    is_fixed = all(
        limit.keys() == {CPU, MEMORY} and {**limit, **request} == limit
        for request, limit in zip(asked, most, strict=True)
    )
    return QosClass.GUARANTEED if is_fixed else QosClass.BURSTABLE


def _cpu_and_memory(quantities: Mapping[str, Scalar] | None) -> Amounts:
    return {name: n for name, n in parse_amounts(quantities).items() if name in {CPU, MEMORY} and n}


def parse_amounts(quantities: Mapping[str, Scalar] | None) -> Amounts:
    """Parse quantities into integers in base units (millicores, bytes, pieces), by the resource's present name.

    Null quantities are left out.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
    amounts: Amounts = {}
    for name, quantity in (quantities or {}).items():
        if quantity is not None:
            known = GPU if name == OLD_GPU else name
            amounts[known] = max(amounts.get(known, 0), _amount(quantity, known))
    return amounts


def placement_of(spec: PodSpec) -> Placement:
    """Return the node selector, the required node affinity and the tolerations, in one canonical order.

    A toleration with a time limit is left out: kube-scheduler lets the pod onto the node, where it is evicted after
    that time, and a trainer would come and go there for ever. The API server adds two of them to every pod (not-ready
    and unreachable); the pod must keep the shape of its manifest.
    """
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return Placement(
        node_selector=tuple(sorted((key, text(value)) for key, value in (spec.node_selector or {}).items())),
        required=read_terms(affinity.required) if affinity and affinity.required else (),
        tolerations=tuple(sorted({toleration_of(t) for t in spec.tolerations or () if t.toleration_seconds is None})),
    )


def with_timed_tolerations(shape: PodShape, spec: PodSpec) -> PodShape:
    """Return the shape of a pod of no job, with the tolerations of a long time limit: kube-scheduler goes by them.

    Args:
        shape: without them.
        spec: the spec of the pod.
    """
    timed = {
        toleration_of(one)
        for one in spec.tolerations or ()
        if isinstance(time_s := one.toleration_seconds, int) and time_s >= _LONG_S and one.key not in _OF_EVERY_POD
    }
    if not timed:
        return shape
    tolerations = tuple(sorted({*shape.placement.tolerations, *timed}))
    return PodShape(shape.request, replace(shape.placement, tolerations=tolerations))


def preferences_of(spec: PodSpec) -> tuple[Preference, ...]:
    """Return the preferred node affinity of a template, in one canonical order.

    Existing pods are not read: each pod that edl creates also prefers its own planned node.
    """
    affinity = spec.affinity.node_affinity if spec.affinity else None
    preferences = [
        Preference(entry.weight, _term(entry.preference))
        for entry in (affinity.preferred if affinity else None) or ()
        if entry.weight and entry.preference
    ]
    return tuple(sorted(preferences))


@lru_cache(maxsize=65536, typed=True)
def _amount(quantity: str | float, name: str) -> int:
    return parse_quantity(quantity, name)


def _request(spec: PodSpec, status: PodStatus | None, *, infeasible: bool) -> Amounts:
    granted = _granted(status)
    total = _sum(spec, lambda container: _of_container(container, granted, infeasible=infeasible))
    if spec.resources is not None:
        _set_pod_level(total, spec.resources, status, infeasible=infeasible)
    _add(total, parse_amounts(spec.overhead))
    ports = set(_host_ports(spec))
    total.update({port: 1 for port in ports if port == port_at_every_address(port)})
    total.update({port: 1 for port in ports if port_at_every_address(port) not in ports})
    total[PODS] = 1
    return total


def _sum(spec: PodSpec, amounts_of: Callable[[ContainerObject], Amounts]) -> Amounts:
    """Return the larger of what all containers need together, and each init container with the sidecars before it."""
    total: Amounts = {}
    for container in spec.containers or ():
        _add(total, amounts_of(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers or ():
        amounts = amounts_of(container)
        if _is_sidecar(container):
            _add(sidecars, amounts)
        else:
            _add(amounts, sidecars)
            _raise_to(peak, amounts)
    _add(total, sidecars)
    _raise_to(total, peak)
    return total


def _of_container(container: ContainerObject, granted: Mapping[str, Amounts], *, infeasible: bool) -> Amounts:
    """Return the request of a container: the larger of spec and granted; the granted if a resize is infeasible."""
    current = granted.get(container.name or "")
    if current is None:
        return _requested(container.resources)
    if infeasible:
        return dict(current)
    amounts = _requested(container.resources)
    _raise_to(amounts, current)
    return amounts


def _requested(resources: ResourceAmounts | None) -> Amounts:
    if resources is None:
        return {}
    amounts = parse_amounts(resources.limits)
    amounts.update(parse_amounts(resources.requests))
    return amounts


def _granted(status: PodStatus | None) -> dict[str, Amounts]:
    """Return the resources that the kubelet has granted, by container; they differ from the spec during a resize."""
    if status is None:
        return {}
    statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    return {one.name: _granted_to(one) for one in statuses if one.name and one.resources}


def _granted_to(status: ContainerStatus | PodStatus) -> Amounts:
    granted = parse_amounts(status.resources.requests if status.resources else None)
    _raise_to(granted, parse_amounts(status.allocated_resources))
    return granted


def _is_resize_infeasible(status: PodStatus | None) -> bool:
    conditions = status.conditions if status else None
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in conditions or ())


def _set_pod_level(total: Amounts, resources: ResourceAmounts, status: PodStatus | None, *, infeasible: bool) -> None:
    """Replace the sum by pod-level cpu, memory and huge pages.

    A limit counts if nothing requests the resource. One of huge pages always does: these are not overcommitted.
    """
    granted = _granted_to(status) if status is not None and status.resources is not None else {}
    for name, amount in parse_amounts(resources.limits).items():
        if _is_pod_level(name):
            total[name] = amount if name.startswith(_HUGE_PAGES) else total.get(name, amount)
    for name, amount in parse_amounts(resources.requests).items():
        if _is_pod_level(name):
            total[name] = granted.get(name, amount) if infeasible else max(amount, granted.get(name, 0))


def _is_pod_level(name: str) -> bool:
    return name in {CPU, MEMORY} or name.startswith(_HUGE_PAGES)


def _is_sidecar(container: ContainerObject) -> bool:
    return container.restart_policy == "Always"


def _host_ports(spec: PodSpec) -> Iterable[str]:
    """Yield the host ports of containers and sidecars; with hostNetwork every container port is one.

    The address is part of the name, unless it means every address.
    """
    for container in (*(spec.containers or ()), *filter(_is_sidecar, spec.init_containers or ())):
        for port in container.ports or ():
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                address = "" if port.host_ip in {None, "", ANY_ADDRESS} else f"/{port.host_ip}"
                yield f"{HOST_PORT_PREFIX}{port.protocol or 'TCP'}/{number}{address}"


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Amounts, level: Mapping[str, int]) -> None:
    for name, amount in level.items():
        if amount > total.get(name, 0):
            total[name] = amount


def read_terms(selector: NodeSelectorObject) -> tuple[NodeTerm, ...]:
    """Return the terms; a selector without terms matches no node, and so does an empty term."""
    return tuple(_term(term) for term in selector.node_selector_terms or ()) or (NodeTerm(),)


def _term(term: NodeTermObject) -> NodeTerm:
    return NodeTerm(_requirements(term.match_expressions), _requirements(term.match_fields))


def _unpinned(terms: tuple[NodeTerm, ...], node: str) -> tuple[NodeTerm, ...]:
    """Return the terms of the template: edl adds its pin as the last field requirement of each."""
    pin = (Requirement("metadata.name", "In", (node,)),)
    rest = tuple(term._replace(fields=term.fields[:-1]) if term.fields[-1:] == pin else term for term in terms)
    return () if rest == (NodeTerm(),) else rest


def _requirements(expressions: list[ExpressionObject] | None) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(e.key or "", e.operator or "", tuple(text(value) for value in e.values or ()))
        for e in expressions or ()
    )


def toleration_of(toleration: TolerationObject) -> Toleration:
    """Return a toleration as kube-scheduler reads it."""
    return Toleration(
        toleration.key or "", toleration.operator or "Equal", text(toleration.value), toleration.effect or ""
    )
