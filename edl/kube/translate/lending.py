"""Pods of trainers that lend CPU: an annotation has what they declare, and their spec requests less.

The planner counts what a trainer declares, and kube-scheduler what its spec requests. An annotation that claims more
than the CPU limit of the container is ignored: a user who may write pods could otherwise fill a node on paper.
"""

from __future__ import annotations

import msgspec

from edl.errors import ConfigError
from edl.kube.translate.container_objects import ContainerObject, ContainerStatus, ResourceAmounts
from edl.kube.translate.objects import PodObject, PodSpec, PodStatus
from edl.kube.translate.scalars import Scalar, text
from edl.kube.translate.shapes import parse_amounts
from edl.model.lending import RunningRequest
from edl.model.names import Role
from edl.model.quantity import parse_quantity
from edl.model.resources import CPU


def declared_spec(source: PodObject) -> PodSpec:
    """The spec of a pod with the CPU request that its trainer container declares; as stored if it lends nothing.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
    spec = source.spec or PodSpec()
    declared = _annotated(source)
    if not declared:
        return spec
    containers = [
        msgspec.structs.replace(one, resources=_declared(one.resources, declared))
        if one.name == Role.TRAINER.value and one.resources is not None
        else one
        for one in spec.containers or ()
    ]
    return msgspec.structs.replace(spec, containers=containers)


def lends(source: PodObject) -> bool:
    """True for a trainer that was created to lend CPU: its request is below that of its job's template."""
    return bool(_annotated(source))


def running_request(source: PodObject) -> RunningRequest | None:
    """The CPU request of a trainer that runs; None if its kubelet cannot change it without a restart.

    A kubelet without the feature reports no granted resources. A pod of another QoS class than Burstable would have
    to change its class, which the API server rejects.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
    spec, status = source.spec or PodSpec(), source.status or PodStatus()
    container = next((one for one in spec.containers or () if one.name == Role.TRAINER.value), None)
    reported = next((one for one in status.container_statuses or () if one.name == Role.TRAINER.value), None)
    if container is None or container.resources is None or reported is None or reported.resources is None:
        return None
    if status.qos_class != "Burstable" or not _may_change(spec, container) or not _runs(reported):
        return None
    requested = parse_amounts(container.resources.requests).get(CPU, 0)
    declares = _declared(container.resources, _annotated(source))
    declared = parse_amounts(declares.requests).get(CPU, 0)
    if not requested or declared > parse_amounts(container.resources.limits).get(CPU, 0):
        return None
    granted = parse_amounts(reported.resources.requests).get(CPU, 0)
    allocated = parse_amounts(reported.allocated_resources).get(CPU, 0)
    return RunningRequest(declared, requested, max(granted, allocated), _refusal(status))


def _annotated(source: PodObject) -> str:
    annotations = source.metadata.annotations if source.metadata else None
    return text(annotations.declared_cpu) if annotations else ""


def _declared(resources: ResourceAmounts, declared: str) -> ResourceAmounts:
    requests: dict[str, Scalar] = dict(resources.requests or {})
    limit = parse_amounts(resources.limits).get(CPU, 0)
    try:
        is_believed = parse_amounts(requests).get(CPU, 0) <= parse_quantity(declared, CPU) <= limit
    except ConfigError:
        is_believed = False
    return msgspec.structs.replace(resources, requests={**requests, CPU: declared}) if is_believed else resources


def _may_change(spec: PodSpec, container: ContainerObject) -> bool:
    """True if the CPU request of the container can be changed in place, without a restart of the container."""
    whole = spec.resources or ResourceAmounts()
    if CPU in {**(whole.requests or {}), **(whole.limits or {})}:
        return False
    policies = container.resize_policy or ()
    return not any(one.resource_name == CPU and one.restart_policy != "NotRequired" for one in policies)


def _runs(reported: ContainerStatus) -> bool:
    return reported.state is not None and reported.state.running is not None


def _refusal(status: PodStatus) -> str:
    """Why the kubelet has not granted a change."""
    pending = (one for one in status.conditions or () if one.type == "PodResizePending" and one.status == "True")
    return next((one.reason or "Unknown" for one in pending), "")
