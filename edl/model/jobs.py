"""A TrainingJob, as far as a decision and its life cycle need it.

Amounts are integers (millicores, bytes, devices, pods), times are seconds since the epoch, and units stand in the
names. Strings become values in `edl.kube.translate`; decisions about a job stand in `plan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from edl.model.job_policies import JobAction, JobEvent, default_action
from edl.model.names import JobKey, Role
from edl.model.pods import Pod, PodPhase
from edl.model.resources import PodShape, Preference
from edl.model.status import JobStatus


@dataclass(frozen=True, slots=True)
class FixedPods:
    """The pods of a job that are not resized: a job needs all of them to run.

    Attributes:
        preferred: preferred node affinity; no part of the shape, because it decides only between nodes that are equal
            otherwise, and shapes that differ in it alone would be counted one by one.
    """

    role: Role
    shape: PodShape
    count: int
    preferred: tuple[Preference, ...] = ()


class RolePolicy(NamedTuple):
    """What the job's policies say to an event of the pods of a role."""

    role: Role
    event: JobEvent
    action: JobAction


class Bounds(NamedTuple):
    """The fewest and the most trainers that a job may have."""

    min_trainers: int
    max_trainers: int


@dataclass(frozen=True, slots=True)
class Job:
    """A TrainingJob as far as a decision and its life cycle need it.

    Attributes:
        generation: `metadata.generation`: the version of the wish that a decision answers.
        created_s: creation time; the age that admission goes by.
        min_trainers, max_trainers: bounds of the trainer count, 1 <= min <= max.
        pinned: the count that `spec.trainer.instances` asks for; 0 leaves it to the planner.
        trainer: the shape of one trainer.
        preferred: preferred node affinity of the trainers; see FixedPods.
        fixed: master and pservers.
        pods: every pod of the job that still exists, of every role, terminating and finished ones included; sorted by
            (role, index, name).
        tier: `spec.priority`; higher tiers are admitted first.
        queue: whose quota its pods count to.
        weight: share of the fulfilment, or of the utility, > 0.
        throughput: (trainers, samples per second) as declared; empty where it is left to be measured.
        resize_cost_s: what a change of its trainer count costs it in time; None where it is left to be measured.
        restarts_epoch: what a lost ledger means, as declared: True begins the epoch again, False ends the job; None
            where nothing is said.
        has_dataset: the spec says what the master shards.
        fault_tolerant: True in fault-tolerant mode; False in gang mode.
        gang: the minimum set starts whole or not at all, whatever the mode.
        answers: the policies of the spec, role by role, where they differ from those of the mode.
        finished: the job is over (phase Succeeded or Failed): it gets no pods.
        deleting: the job has a deletion timestamp.
        problem: why the spec is invalid; empty where it is valid.
        status: what the cluster last stored; None before the first write.
    """

    key: JobKey
    uid: str
    min_trainers: int
    max_trainers: int
    trainer: PodShape
    preferred: tuple[Preference, ...] = ()
    fixed: tuple[FixedPods, ...] = ()
    pods: tuple[Pod, ...] = ()
    generation: int = 1
    created_s: float = 0.0
    pinned: int = 0
    tier: int = 0
    queue: str = "default"
    weight: float = 1.0
    fault_tolerant: bool = True
    gang: bool = False
    policies: tuple[RolePolicy, ...] = ()
    suspended: bool = False
    finished: bool = False
    deleting: bool = False
    problem: str = ""
    backoff_limit: int = 6
    active_deadline_s: int | None = None
    ttl_s: int | None = None
    cooldown_s: float = 60.0
    throughput: tuple[tuple[int, float], ...] = ()
    resize_cost_s: float | None = None
    restarts_epoch: bool | None = None
    has_dataset: bool = False
    status: JobStatus | None = None

    @property
    def bounds(self) -> Bounds:
        """How many trainers the job may have: exactly the pinned count, else its minimum to its maximum."""
        if self.pinned:
            return Bounds(self.pinned, self.pinned)
        return Bounds(self.min_trainers, self.max_trainers)

    @property
    def live_trainers(self) -> tuple[Pod, ...]:
        """Trainers that count as `current`: not terminating and not finished."""
        return tuple([p for p in self.pods if p.role is Role.TRAINER and p.is_live])  # lists: jobs are large

    def action_for(self, role: Role, event: JobEvent) -> JobAction | None:
        """What the job does about an event of one of its roles; None does nothing."""
        given = next((p.action for p in self.policies if p.role is role and p.event is event), None)
        of_trainers = role is Role.TRAINER
        return given or default_action(event, fault_tolerant=self.fault_tolerant, of_trainers=of_trainers)

    def completed(self, role: Role) -> tuple[Pod, ...]:
        """Pods of a role that exited 0 on their own; a pod that is being deleted or evicted did not complete."""
        return tuple(
            p
            for p in self.pods
            if p.role is role and p.phase is PodPhase.SUCCEEDED and not (p.terminating or p.intent or p.disruption)
        )

    @property
    def is_schedulable(self) -> bool:
        """True where the planner may give the job anything."""
        return not (self.problem or self.suspended or self.finished or self.deleting)

    @property
    def was_admitted(self) -> bool:
        """True where the job ran before: condition Admitted; with no status, any of its pods is bound."""
        if self.status is not None and (admitted := self.status.condition("Admitted")) is not None:
            return admitted.status == "True"
        return any(p.node and p.is_live for p in self.pods)
