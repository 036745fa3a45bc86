"""Pods of jobs whose own containers have all ended, while a container that admission added runs on.

A proxy that a webhook adds as an ordinary container runs until somebody ends it. Kubernetes then never ends the pod,
and a job that went by the phase would neither end nor start again what failed (kubernetes 25908, istio 11045). Such a
pod has ended, and keeps its node until it is deleted. Every container of the template of the job is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from edl.kube.translate.objects import PodObject, PodSpec, PodStatus
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.printable import printable


def as_ended(pod: Pod, source_of: Callable[[Pod], PodObject], manifests: Mapping[Role, PodObject]) -> Pod:
    """Return a pod as one that has ended, if all containers that edl gave it have; else the pod itself.

    Args:
        pod: of a TrainingJob.
        source_of: the object of a pod.
        manifests: what edl would create for each role.
    """
    # The kubelet starts containers of a master again, and those of other roles never.
    role = pod.role
    if role is None or role is Role.MASTER or pod.phase is not PodPhase.RUNNING or pod.exit_code is None:
        return pod
    containers = (manifests.get(role, PodObject()).spec or PodSpec()).containers or ()
    if any(one.restart_policy for one in containers):  # of its own, by which its kubelet may start it again
        return pod
    own, status = {one.name for one in containers}, source_of(pod).status or PodStatus()
    ended = {
        one.name: one.state.terminated.exit_code or 0
        for one in status.container_statuses or ()
        if one.name in own and one.state and one.state.terminated
    }
    others = (one for one in status.container_statuses or () if one.name not in own)
    # A kubelet may show for a moment that all containers have ended before it shows that the pod has.
    if not own or ended.keys() != own or all(one.state is None or one.state.terminated for one in others):
        return pod
    failed = next((name for name, code in ended.items() if code), None)
    if failed is None:
        return replace(pod, phase=PodPhase.SUCCEEDED, outlived=True)
    if pod.exit_code:
        return replace(pod, phase=PodPhase.FAILED, outlived=True)
    helper = f"container {printable(failed)}"
    return replace(pod, phase=PodPhase.FAILED, exit_code=ended[failed], ended_in=helper, outlived=True)
