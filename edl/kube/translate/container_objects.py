"""Containers as the API server sends them: ports, resource requests, and the states that the kubelet reports.

Every field can be absent or null; see `objects`.
"""

from __future__ import annotations

import msgspec

from edl.kube.translate.scalars import ApiStruct, Scalar


class ResourceAmounts(ApiStruct):
    """Requests and limits as quantities."""

    requests: dict[str, Scalar] | None = None
    limits: dict[str, Scalar] | None = None


class ContainerPort(ApiStruct):
    """A port of a container. The protocol defaults to TCP; without hostIP the port is taken on every address."""

    container_port: int | None = None
    host_port: int | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class ResizePolicy(ApiStruct):
    """What a change of one resource does to a container: NotRequired or RestartContainer."""

    resource_name: str | None = None
    restart_policy: str | None = None


class ContainerObject(ApiStruct):
    """A container; an init container with restartPolicy Always is a native sidecar."""

    name: str | None = None
    resources: ResourceAmounts | None = None
    resize_policy: list[ResizePolicy] | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None


class RunningState(ApiStruct):
    """The state of a running container."""

    started_at: str | None = None


class TerminatedState(ApiStruct):
    """The state of a container that has ended."""

    exit_code: int | None = None
    reason: str | None = None
    started_at: str | None = None
    message: str | None = None


class WaitingState(ApiStruct):
    """The state of a container that has not started."""

    reason: str | None = None
    message: str | None = None


class ContainerState(ApiStruct):
    """The state of a container; at most one field is set."""

    waiting: WaitingState | None = None
    running: RunningState | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(ApiStruct):
    """The status of one container; `resources` are those that the kubelet has granted."""

    name: str | None = None
    image: str | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    resources: ResourceAmounts | None = None
    allocated_resources: dict[str, Scalar] | None = None
    restart_count: int | None = None
