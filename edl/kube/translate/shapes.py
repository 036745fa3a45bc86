"""What a pod needs and where it may go, by the arithmetic of kube-scheduler; the same for pods and pod templates.

The request of a pod = max(its containers and native sidecars together, each init container and the sidecars started
before it) + overhead. Pod-level requests replace the sum; a limit implies the request where none is given; while a
container is being resized in place, the larger of the wish and what it really has counts. `pods: 1` and every host
port are in it. The original counted main containers only, and overcommitted every node with sidecars.

Source: k8s.io/component-helpers/resource, func PodRequests; k8s.io/kubernetes/pkg/scheduler/util, func GetHostPorts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from edl.kube.translate.objects import (
    Container,
    ExpressionObject,
    NodeSelectorObject,
    NodeTermObject,
    PodSpec,
    PodStatus,
    ResourceAmounts,
    Scalar,
    TolerationObject,
    text,
)
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
    Requirement,
    Resources,
    Toleration,
    port_at_every_address,
)

OLD_GPU = "alpha.kubernetes.io/nvidia-gpu"
"""The name that GPUs had before device plugins; read as `nvidia.com/gpu`."""

ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # the word of a pod's hostIP; nothing is bound to it here
"""The host address that kube-scheduler reads as every address of the node; `::` is not read so."""

Amounts = dict[str, int]


def shape_of(spec: PodSpec, status: PodStatus | None = None, *, pinned_to: str = "") -> PodShape:
    """The shape of a pod, or of the pods of a template.

    Args:
        spec: of the pod or the template.
        status: of the pod.
        pinned_to: the node that a pod of ours may go to by our own demand, which is no part of the shape: else every
            pod would have a shape of its own.

    Raises:
        ConfigError: a quantity cannot be read.
    """
    placement = placement_of(spec)
    if pinned_to:
        placement = replace(placement, required=_unpinned(placement.required, pinned_to))
    return PodShape(Resources.of(_request(spec, status)), placement)


def parse_amounts(quantities: Mapping[str, Scalar] | None) -> Amounts:
    """Quantities as integers under the names of today; null quantities are left out.

    Raises:
        ConfigError: a quantity cannot be read.
    """
    amounts: Amounts = {}
    for name, quantity in (quantities or {}).items():
        if quantity is not None:
            known = GPU if name == OLD_GPU else name
            amounts[known] = max(amounts.get(known, 0), _amount(quantity, known))
    return amounts


def placement_of(spec: PodSpec) -> Placement:
    """Where a pod may go: node selector, required node affinity and tolerations, in one canonical order.

    A toleration for some seconds only delays an eviction: no node becomes a place to go by it. The API server adds
    two of them to every pod (not-ready and unreachable), which must not make a pod another shape than its manifest's.
    """
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return Placement(
        node_selector=tuple(sorted((key, text(value)) for key, value in (spec.node_selector or {}).items())),
        required=_terms(affinity.required) if affinity and affinity.required else (),
        tolerations=tuple(sorted({_toleration(t) for t in spec.tolerations or () if t.toleration_seconds is None})),
    )


def preferences_of(spec: PodSpec) -> tuple[Preference, ...]:
    """The preferred node affinity of the pods of a template, in one canonical order.

    Pods that exist are not asked: ours carry a preference for the very node that the plan meant, each its own.
    """
    affinity = spec.affinity.node_affinity if spec.affinity else None
    wishes = [
        Preference(wish.weight, _term(wish.preference))
        for wish in (affinity.preferred if affinity else None) or ()
        if wish.weight and wish.preference
    ]
    return tuple(sorted(wishes))


@lru_cache(maxsize=65536, typed=True)
def _amount(quantity: str | float, name: str) -> int:
    return parse_quantity(quantity, name)


def _request(spec: PodSpec, status: PodStatus | None) -> Amounts:
    given, refused = _given(status), _is_resize_refused(status)
    total: Amounts = {}
    for container in spec.containers or ():
        _add(total, _of_container(container, given, refused=refused))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers or ():
        amounts = _of_container(container, given, refused=refused)
        if _is_sidecar(container):
            _add(sidecars, amounts)
        else:
            _add(amounts, sidecars)
            _raise_to(peak, amounts)
    _add(total, sidecars)
    _raise_to(total, peak)
    if spec.resources is not None:
        _set_pod_level(total, spec.resources)
    _add(total, parse_amounts(spec.overhead))
    ports = set(_host_ports(spec))
    total.update({port: 1 for port in ports if port == port_at_every_address(port)})
    total.update({port: 1 for port in ports if port_at_every_address(port) not in ports})
    total[PODS] = 1
    return total


def _of_container(container: Container, given: Mapping[str, Amounts], *, refused: bool) -> Amounts:
    """What one container asks for; while it is resized in place, the most it may have; what it has if refused."""
    really = given.get(container.name or "")
    if really is None:
        return _requested(container.resources)
    if refused:
        return dict(really)
    amounts = _requested(container.resources)
    _raise_to(amounts, really)
    return amounts


def _requested(resources: ResourceAmounts | None) -> Amounts:
    if resources is None:
        return {}
    amounts = parse_amounts(resources.limits)
    amounts.update(parse_amounts(resources.requests))
    return amounts


def _given(status: PodStatus | None) -> dict[str, Amounts]:
    """By container name, what the kubelet has given it: in a resize in place it differs from the spec."""
    if status is None:
        return {}
    given: dict[str, Amounts] = {}
    for container in (*(status.container_statuses or ()), *(status.init_container_statuses or ())):
        if container.name and container.resources:
            given[container.name] = parse_amounts(container.resources.requests)
            _raise_to(given[container.name], parse_amounts(container.allocated_resources))
    return given


def _is_resize_refused(status: PodStatus | None) -> bool:
    conditions = status.conditions if status else None
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in conditions or ())


def _set_pod_level(total: Amounts, resources: ResourceAmounts) -> None:
    """Let pod-level cpu, memory and huge pages replace the sum; a limit there stands in where nothing is asked."""
    for name, amount in parse_amounts(resources.limits).items():
        if _is_pod_level(name):
            total.setdefault(name, amount)
    for name, amount in parse_amounts(resources.requests).items():
        if _is_pod_level(name):
            total[name] = amount


def _is_pod_level(name: str) -> bool:
    return name in {CPU, MEMORY} or name.startswith("hugepages-")


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _host_ports(spec: PodSpec) -> Iterable[str]:
    """The host ports of everything that runs on; in the host's network a container port is one.

    An address is part of the name, unless it stands for all of them.
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


def _terms(selector: NodeSelectorObject) -> tuple[NodeTerm, ...]:
    """The terms; a selector without any matches no node, which the empty term says."""
    return tuple(_term(term) for term in selector.node_selector_terms or ()) or (NodeTerm(),)


def _term(term: NodeTermObject) -> NodeTerm:
    return NodeTerm(_requirements(term.match_expressions), _requirements(term.match_fields))


def _unpinned(terms: tuple[NodeTerm, ...], node: str) -> tuple[NodeTerm, ...]:
    """The alternatives as the template has them: our demand for the node comes last in each."""
    demand = (Requirement("metadata.name", "In", (node,)),)
    rest = tuple(term._replace(fields=term.fields[:-1]) if term.fields[-1:] == demand else term for term in terms)
    return () if rest == (NodeTerm(),) else rest


def _requirements(expressions: list[ExpressionObject] | None) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(e.key or "", e.operator or "", tuple(text(value) for value in e.values or ()))
        for e in expressions or ()
    )


def _toleration(toleration: TolerationObject) -> Toleration:
    return Toleration(
        toleration.key or "", toleration.operator or "Equal", text(toleration.value), toleration.effect or ""
    )
