"""A pod, as far as a decision needs it.

Frozen: a snapshot is taken once and every later step reads the same values. Raw Kubernetes objects become pods in
`edl.kube.translate`; this module parses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edl.model.names import JobKey, Role
from edl.model.resources import PodShape


class PodPhase(StrEnum):
    """`status.phase` of a pod; Unknown is read as Running, because its containers may still run."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, ours or foreign, as far as a decision needs it.

    Attributes:
        node: the node it is bound to, empty while unbound.
        nominated: `status.nominatedNodeName`: kube-scheduler is freeing room for it there.
        planned: our own plan for it (annotation), empty for foreign pods.
        pinned: it may go to that node only, by our own demand; see `pins`.
        priority: the resolved priority; 0 where the cluster gave none.
        gated: it has scheduling gates and cannot be scheduled yet.
        tried: kube-scheduler has tried and failed to place it (PodScheduled is False, Unschedulable).
        answered_s: when kube-scheduler last found a node for it, or none; None where it has not come to it yet.
        terminating: it has a deletion timestamp; it holds its room until it is gone.
        daemon: a DaemonSet owns it.
        job: the TrainingJob it belongs to; None for a foreign pod.
        index: its number within its role.
        exit_code: of its main container once finished, where known.
        intent: why we are deleting it, stated on the pod before the deletion; empty where we are not.
        unplaceable: kube-scheduler leaves room unused that it could have by all that we know: it waits and is short,
            and nobody dies for it; see `unplaceable`.
        ip: its address, empty while it has none.
        said: what its main container, or the one before it, said last of why it ended, or why the kubelet cannot
            start it; empty where nothing is said.
        safe_to_evict: whether it may be ended for mere tidiness, as its owner says; None where nothing is said.
        journal: of a master: where we put its journal, `claim` or `emptyDir`; empty for every other pod.
        disruption: reason of its DisruptionTarget condition (PreemptionByScheduler, EvictionByEvictionAPI,
            DeletionByTaintManager, DeletionByPodGC, TerminationByKubelet), empty where there is none.
    """

    namespace: str
    name: str
    uid: str
    shape: PodShape
    phase: PodPhase = PodPhase.PENDING
    node: str = ""
    nominated: str = ""
    planned: str = ""
    pinned: bool = False
    priority: int = 0
    created_s: float = 0.0
    started_s: float | None = None
    ready: bool = False
    gated: bool = False
    tried: bool = False
    answered_s: float | None = None
    terminating: bool = False
    daemon: bool = False
    job: JobKey | None = None
    role: Role | None = None
    index: int | None = None
    exit_code: int | None = None
    intent: str = ""
    disruption: str = ""
    unplaceable: bool = False
    ip: str = ""
    said: str = ""
    journal: str = ""
    safe_to_evict: bool | None = None

    @property
    def is_finished(self) -> bool:
        """True where it holds no room any more, whether it succeeded or failed."""
        return self.phase is PodPhase.SUCCEEDED or self.phase is PodPhase.FAILED

    @property
    def is_live(self) -> bool:
        """True where it counts towards its job: not terminating and not finished."""
        return not self.terminating and self.phase is not PodPhase.SUCCEEDED and self.phase is not PodPhase.FAILED

    @property
    def is_waiting_serving(self) -> bool:
        """True for a foreign pod that still needs a node and has none promised: what `serving` counts."""
        return (
            self.job is None
            and not self.node
            and self.is_live
            and not self.gated
            and not self.nominated
            and self.priority >= 0
            and not self.daemon
        )

    @property
    def needs_room(self) -> bool:
        """True for a waiting serving pod that a plan makes room for."""
        return self.is_waiting_serving and not self.unplaceable
