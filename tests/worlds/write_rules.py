"""What holds for the writes of one controller, whatever changes while they are under way.

Every write begins with the lease held. No pod of a job is created while others of it are being deleted, no two
statuses of a job are under way, no pod is created or deleted twice at once, and no capacity of a node is used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from edl.model.actions import Action, CreatePod, DeletePod, MarkPod, PatchStatus
from tests.worlds.simulated_cluster import World


@dataclass
class WriteRules:
    """Judges each write when it begins.

    Args:
        world: the cluster.
        holds_lease: whether the controller may write now.

    Attributes:
        broken: a line for each write that broke a rule.
    """

    world: World
    holds_lease: Callable[[], bool]
    broken: list[str] = field(default_factory=list)
    _under_way: list[Action] = field(default_factory=list)

    @contextmanager
    def writing(self, action: Action) -> Iterator[None]:
        """Judge a write at its beginning, and know until its end that it is under way."""
        self.broken += [f"{type(action).__name__} of {action.job} {rule}" for rule in self._wrong(action)]
        self._under_way.append(action)
        try:
            yield
        finally:
            self._under_way = [one for one in self._under_way if one is not action]

    def _wrong(self, action: Action) -> Iterator[str]:
        if not self.holds_lease():
            yield "begins without the lease"
        mine = [one for one in self._under_way if one.job_uid == action.job_uid]
        if isinstance(action, CreatePod):
            if ends := [one for one in mine if isinstance(one, DeletePod | MarkPod)]:
                yield f"begins while {len(ends)} pods of its job are being deleted"
            if any(isinstance(one, CreatePod) and one.pod_name == action.pod_name for one in mine):
                yield "begins while the same pod is being created"
            if self._is_used(action):
                yield f"uses capacity of node {action.node} that is used already"
        if isinstance(action, DeletePod) and any(
            isinstance(one, DeletePod) and one.pod_uid == action.pod_uid for one in mine
        ):
            yield "begins while the same pod is being deleted"
        if isinstance(action, PatchStatus) and any(isinstance(one, PatchStatus) for one in mine):
            yield "begins while a status of its job is under way"

    def _is_used(self, action: CreatePod) -> bool:
        """True if the pods that edl has put on the node, with those under way, leave no capacity for this one."""
        node = self.world.nodes.get(action.node or "")
        if node is None or action.job not in self.world.jobs:
            return False
        there = [owned.pod for owned in self.world.pods.values()]
        held = node.reserved
        for pod in there:
            if pod.planned == node.name and pod.node in {"", node.name} and not pod.is_finished:
                held = held + pod.shape.request
        for one in (*self._under_way, action):
            if isinstance(one, CreatePod) and one.node == node.name and one.job in self.world.jobs:
                job = self.world.jobs[one.job].job
                shape = next((fixed.shape for fixed in job.fixed if fixed.role is one.role), job.trainer)
                held = held + shape.request
        return not held.fits(node.allocatable)
