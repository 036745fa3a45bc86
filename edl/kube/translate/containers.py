"""What the containers of a pod say: which one cannot start, which one ended and how, since when the main one runs.

The main container is found by name, because a webhook may put another one before it: in a pod of edl it has the name
of the role. All others count as well: a pod does not start without its init containers and sidecars, and it fails if
a helper fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from edl.kube.translate.container_objects import (
    ContainerObject,
    ContainerState,
    ContainerStatus,
    TerminatedState,
    WaitingState,
)
from edl.kube.translate.objects import PodSpec, PodStatus
from edl.model.pods import PodPhase
from edl.model.times import seconds_of
from edl.printable import printable, shortened

REMEDY = "to change the spec, suspend the job first"
_PULLS = ("ErrImagePull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed")
_NOT_PULLED = (
    "image {image} cannot be pulled{why}; check the image name and tag, imagePullSecrets and the registry",
    re.compile(rf'^Back-off pulling image "[^"]*"(: )?(({"|".join(_PULLS)}): )?'),
)
_NOT_CREATED = ("the container runtime cannot create its container{why}", re.compile(""))
_CANNOT_START = {
    **dict.fromkeys((*_PULLS, "ImagePullBackOff"), _NOT_PULLED),
    "ErrImageNeverPull": ("image {image} is not on the node, and imagePullPolicy is Never", re.compile(".*")),
    "InvalidImageName": ("image name {image} is not valid{why}", re.compile("")),
    "CreateContainerConfigError": (
        "it refers to a Secret, ConfigMap or user that does not exist or is not valid{why}",
        re.compile(""),
    ),
    **dict.fromkeys(("CreateContainerError", "PreCreateHookError", "PreStartHookError"), _NOT_CREATED),
}
"""The reason of a container that waits and never starts -> what it means, what of the kubelet's text is left out.

The kubelet puts `Back-off` before its text and takes it away again: the message must not change each time. It ends a
container that it could not start, or whose postStart hook failed, so that is read as an end.

Source: k8s.io/kubernetes/pkg/kubelet/images/types.go, pkg/kubelet/kuberuntime, k8s.io/cri-api/pkg/errors (v1.36.3).
"""
_MOST_OF_KUBELET = 200
_ENDS_AGAIN = "CrashLoopBackOff"
_OUT_OF_MEMORY = "OOMKilled: it used more memory than its limit; raise limits.memory of its role, or use less memory"
_NOT_FOUND = "ContainerStatusUnknown: its kubelet found no container any more, for example because the node restarted"
_OUT_OF_TIME = "DeadlineExceeded: it ran longer than its activeDeadlineSeconds"
_OVER_ITS_LIMIT = re.compile(
    r"(container \S+ exceeded its local ephemeral storage limit|pod ephemeral local storage usage exceeds the total"
    r" limit of containers|usage of EmptyDir volume \S+ exceeds the limit).*",
    re.IGNORECASE | re.DOTALL,
)
"""Begins what a kubelet says of a pod that it evicts because the pod writes more than its own limits allow.

Kubernetes gives such a pod no condition DisruptionTarget: the pod is the cause, and its successor does the same.

Source: k8s.io/kubernetes/pkg/kubelet/eviction, helpers.go and func localStorageEviction.
"""
_WRITE_LESS = "raise that limit, or write less to the disk of the node"


@dataclass(frozen=True, slots=True)
class Containers:
    """The state of a pod's containers.

    Attributes:
        message: why one of them cannot start, else the message of the end that counts; empty if there is neither.
        exit_code: the exit code of the end that counts, the current or the previous one; None if there is none.
        ended_in: which container that end was of, such as `init container fetch`; empty for the main container.
        started_s: when the main container started, in seconds since the epoch; None if it has not.
        begun: the main container has started at some time.
        any_ran: some container has.
    """

    message: str = ""
    exit_code: int | None = None
    ended_in: str = ""
    started_s: float | None = None
    begun: bool = False
    any_ran: bool = False


def read_containers(spec: PodSpec, status: PodStatus, main: str) -> Containers:
    """Read the statuses of all containers of a pod.

    Args:
        spec: the spec of the pod.
        status: the status of the pod.
        main: the name of its main container; the first one counts if it has none of that name.
    """
    main = main_container([one.name or "" for one in spec.containers or ()], main)
    own = next((one for one in status.container_statuses or () if one.name == main), None)
    others = [(_which(spec, one), one) for one in _all(status) if one is not own]
    stuck = _why_not_started(own) if own is not None else ""
    for which, one in () if stuck else others:
        if why := _why_not_started(one):
            stuck = f"{which}: {why}"
            break
        if status.phase != PodPhase.RUNNING and (again := _why_again(one)):
            stuck = f"{which} {again}"
            break
    ended_in, end = _end(own, others, is_failed=status.phase == PodPhase.FAILED.value)
    state = (own.state.running or own.state.terminated) if own is not None and own.state else None
    return Containers(
        message=stuck or _message_of_end(status, end),
        exit_code=None if end is None or _why_not_started(own) else end.exit_code,
        ended_in=ended_in,
        started_s=seconds_of(state.started_at) if state else None,
        begun=state is not None or (own is not None and any(s.terminated for s in _states(own))),
        any_ran=any(s.running or s.terminated for one in _all(status) for s in _states(one)),
    )


def main_container(names: list[str], wanted: str) -> str:
    """The name of the main container of a pod: the preferred name if it exists, else the first container."""
    return wanted if wanted in names else (names[0] if names else "")


def is_over_its_limit(status: PodStatus) -> bool:
    """True if the kubelet evicted the pod because it wrote more than its own limits allow, and not for its node."""
    return status.reason == "Evicted" and _OVER_ITS_LIMIT.match(status.message or "") is not None


def _all(status: PodStatus) -> Iterator[ContainerStatus]:
    """Yield the statuses of all containers of a pod: those of the init containers first, since they run first."""
    yield from status.init_container_statuses or ()
    yield from status.container_statuses or ()


def _which(spec: PodSpec, status: ContainerStatus) -> str:
    """Describe a container by its kind and name."""
    first: ContainerObject | None = next((c for c in spec.init_containers or () if c.name == status.name), None)
    kind = "container" if first is None else "sidecar" if first.restart_policy == "Always" else "init container"
    return f"{kind} {printable(status.name or '')}"


def _end(
    own: ContainerStatus | None, others: list[tuple[str, ContainerStatus]], *, is_failed: bool
) -> tuple[str, TerminatedState | None]:
    """Return the container that explains the end of a pod, empty for its main one, and how that container ended."""
    end = next((s.terminated for s in _states(own) if s.terminated), None) if own is not None else None
    if is_failed and (end is None or not end.exit_code):
        for which, other in sorted(others, key=lambda one: not one[0].startswith("container ")):
            if other.state and other.state.terminated and other.state.terminated.exit_code:
                return which, other.state.terminated
    return "", end


def _states(container: ContainerStatus) -> Iterator[ContainerState]:
    yield from (state for state in (container.state, container.last_state) if state)


def _why_not_started(container: ContainerStatus | None) -> str:
    """Why a container never starts, with the kubelet's text on one line; empty if it may still start."""
    waits = [s.waiting for s in _states(container) if s.waiting] if container is not None else []
    waiting = next((one for one in waits if one.reason in _CANNOT_START), None)
    if container is None or waiting is None:
        return ""
    meaning, left_out = _CANNOT_START[waiting.reason or ""]
    said = _one_line(left_out.sub("", _said(waiting)))
    why = f" ({said})" if said else ""
    return f"{meaning.format(image=printable(container.image or 'of the container'), why=why)}; {REMEDY}"


def _why_again(container: ContainerStatus) -> str:
    """Explain why a container ends again and again; empty if it does not."""
    waiting = container.state.waiting if container.state else None
    if waiting is None or waiting.reason != _ENDS_AGAIN:
        return ""
    last = container.last_state.terminated if container.last_state else None
    said = _one_line((_termination_message(last).strip().splitlines() or [""])[-1]) if last is not None else ""
    code = f" with code {last.exit_code}" if last is not None and last.exit_code is not None else ""
    return f"exits{code} again and again{f' ({said})' if said else ''}; {REMEDY}"


def _said(waiting: WaitingState) -> str:
    return printable((waiting.message or "").replace("\r", "\n"))


def _one_line(words: str) -> str:
    return shortened(" ".join(words.split()), _MOST_OF_KUBELET)


def _message_of_end(status: PodStatus, end: TerminatedState | None) -> str:
    if status.phase == PodPhase.FAILED and status.reason == "DeadlineExceeded":
        return _OUT_OF_TIME
    if status.phase == PodPhase.FAILED and is_over_its_limit(status):
        said = _one_line(printable((status.message or "").replace("\r", "\n")))
        return f"Evicted: {said.rstrip('. ')}; {_WRITE_LESS}"
    return _termination_message(end) if end is not None else ""


def _termination_message(ended: TerminatedState) -> str:
    """The termination message; if the container reached its memory limit, a line about that follows."""
    if ended.reason == "ContainerStatusUnknown":  # the exit code, 137, is the kubelet's own
        return _NOT_FOUND
    message = printable((ended.message or "").replace("\r", "\n"))  # a progress bar is many lines, the last counts
    if ended.reason != "OOMKilled":
        return message
    return f"{message.rstrip()}\n{_OUT_OF_MEMORY}" if message.strip() else _OUT_OF_MEMORY
