"""A job as a decision sees it: a TrainingJob, or another workload that asks to be resized.

Amounts are integers (millicores, bytes, devices, pods) and times are seconds since the epoch; a suffix of the name
gives the unit. `edl.kube.translate` parses Kubernetes objects into these types; `plan.py` holds the decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from edl.model.job_policies import JobAction, JobEvent, default_action
from edl.model.lending import Lending, may_lend
from edl.model.names import JobKey, Role
from edl.model.node_groups import ScaleUp
from edl.model.pod_limits import excess_of
from edl.model.pods import Pod, PodPhase
from edl.model.quota_trees import KueueState
from edl.model.resources import PodShape, Preference, QosClass, Resources
from edl.model.sizes import Sizes, at_most
from edl.model.status import JobStatus, Reason
from edl.model.topology import TOGETHER, Topology


@dataclass(frozen=True, slots=True)
class FixedPods:
    """The pods of a role that edl does not resize: the job needs all of them to run.

    Attributes:
        preferred: preferred node affinity. It is not part of the shape: it only chooses between nodes that are
            otherwise equal, and pods that differ in nothing else should count as one shape.
        limits: the resource limits of one pod; only a ResourceQuota counts them.
    """

    role: Role
    shape: PodShape
    count: int
    preferred: tuple[Preference, ...] = ()
    limits: Resources = Resources()


class RolePolicy(NamedTuple):
    """The action of the job's policies for one event of a role's pods."""

    role: Role
    event: JobEvent
    action: JobAction


class Bounds(NamedTuple):
    """The minimum and the maximum number of trainers of a job."""

    min_trainers: int
    max_trainers: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the API server rejects of a job's pods; see `edl.lifecycle.allowance`.

    Attributes:
        allowed: the most trainers that the job may have until the API server accepts more.
        is_tried: the last question was answered with yes, so the job may try this many; False while it must not try.
        reason: QuotaReached if a ResourceQuota rejects, else PodsRefused.
        message: who refuses, in a few words.
        details: the answer of the API server.
        bars: the job gets no pods at all, because it may not have its minimum.
    """

    allowed: int
    is_tried: bool
    reason: Reason
    message: str
    details: str
    bars: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A TrainingJob or another workload, with the fields that a decision and its life cycle need.

    Attributes:
        generation: `metadata.generation`, the version of the spec.
        created_s: creation time; admission orders jobs of one tier by it.
        min_trainers, max_trainers: bounds of the trainer count, 1 <= min <= max.
        sizes: the numbers of trainers that it may have; see `edl.model.sizes`. Both bounds are among them, unless the
            job needs fewer than its least size any more.
        pinned: the trainer count of `spec.trainer.instances`; 0 lets the planner decide.
        pin_floor: so many trainers at least if the pinned count does not fit, or may not be tried; 0 while it has to
            fit. Only the view of a job that the planner gets has it.
        trainer: the shape of one trainer, as admission makes it.
        declared: what one trainer requests by the spec, if admission makes something else of it; else None.
        preferred: preferred node affinity of the trainers; see FixedPods.
        limits: the resource limits of one trainer; see FixedPods.
        fixed: master and pservers.
        pods: every existing pod of every role of the job, terminating and finished pods included; sorted by
            (role, index, name).
        tier: `spec.priority`; higher tiers are admitted first.
        queue: the queue whose quota its pods use.
        weight: weight of the job in the objective of the policy, > 0.
        throughput: declared (trainers, samples per second); empty if edl measures it.
        goodput: (trainers, useful samples per second) with the best batch for each count, of a job that may change
            its global batch; empty if that is not known. A useful sample teaches as much as one of the base batch.
        resize_cost_s: declared training time that one resize costs, in seconds; None if edl measures it.
        unsaved_s: training time since the last checkpoint, in seconds, which is lost with the model; 0 if nothing is,
            or if it is not known. Only the planner's view of a job has it.
        speeds_seen_to: the largest count in `throughput` that the job has had, if it has predicted others; 0 if it
            has predicted none. Only the planner's view of a job has it.
        slowed_beyond: with more trainers than this it would be slower, so it gets no more; 0 if that is not known.
            Only the planner's view of a job has it.
        restarts_epoch: `spec.dataset.onLedgerLost`: True restarts the epoch, False fails the job; None if it is not
            set.
        has_dataset: `spec.dataset` is set.
        unkept: why the checkpoints of its trainers are lost with their pods; empty if they are kept, or not known.
        fault_tolerant: True in fault-tolerant mode; False in gang mode.
        gang: the minimum set starts whole or not at all, in either mode.
        policies: the policies of the spec, by role, if they differ from the defaults of the mode.
        finished: the job has ended (phase Succeeded or Failed) and gets no pods.
        deleting: the job has a deletion timestamp.
        orphans_pods: it is deleted so that its pods stay.
        problem: why the spec is invalid, or why edl does not resize a workload; empty if neither is so.
        is_oversized: the object is too large to be read, so each write to it is much work for the API server.
        finishing: the workload's own controller starts no further pod, so edl leaves the others to their end;
            `problem` says why.
        lending: which of its trainers may lend CPU, if the operator's `--surplus-cpu-request` is below 1.
        scale_up: what it may ask for nodes for.
        status: the stored status; None before the first write.
        refusal: the API server rejects pods of the job; None if it does not. Only the planner's view of a job has it.
        owner_count: how many trainers the job's own controller keeps, such as `spec.parallelism` of a `batch/v1` Job;
            None for a TrainingJob, whose pods edl creates and deletes. That controller chooses the victims: always
            the trainer with the highest index.
        topology: which nodes count as near each other for its trainers and pservers; None if that does not matter.
        qos: the QoS class of a trainer.
        kueue: what Kueue has decided about a job that names one of its queues; None for any other job. Kueue decides
            who runs, and edl only how many trainers those have.
        keeps_minimum: a stop would make what runs on the workload fail, so edl shrinks it to its minimum at most.
    """

    key: JobKey
    uid: str
    min_trainers: int
    max_trainers: int
    trainer: PodShape
    preferred: tuple[Preference, ...] = ()
    limits: Resources = Resources()
    fixed: tuple[FixedPods, ...] = ()
    pods: tuple[Pod, ...] = ()
    generation: int = 1
    created_s: float = 0.0
    sizes: Sizes = ()
    pinned: int = 0
    pin_floor: int = 0
    tier: int = 0
    queue: str = "default"
    weight: float = 1.0
    fault_tolerant: bool = True
    gang: bool = False
    policies: tuple[RolePolicy, ...] = ()
    suspended: bool = False
    finished: bool = False
    deleting: bool = False
    orphans_pods: bool = False
    problem: str = ""
    is_oversized: bool = False
    finishing: bool = False
    backoff_limit: int = 6
    active_deadline_s: int | None = None
    ttl_s: int | None = None
    cooldown_s: float = 60.0
    throughput: tuple[tuple[int, float], ...] = ()
    goodput: tuple[tuple[int, float], ...] = ()
    resize_cost_s: float | None = None
    unsaved_s: float = 0.0
    speeds_seen_to: int = 0
    slowed_beyond: int = 0
    restarts_epoch: bool | None = None
    has_dataset: bool = False
    unkept: str = ""
    lending: Lending = Lending.SURPLUS
    status: JobStatus | None = None
    refusal: Refusal | None = None
    owner_count: int | None = None
    scale_up: ScaleUp = ScaleUp.NEVER
    topology: Topology | None = None
    qos: QosClass = QosClass.BURSTABLE
    declared: Resources | None = None
    kueue: KueueState | None = None
    keeps_minimum: bool = False

    @property
    def is_best_effort(self) -> bool:
        """True for a TrainingJob whose trainers request neither cpu nor memory: each counts as one pod.

        Pods that another controller makes are counted by whatever they request.
        """
        return self.qos is QosClass.BEST_EFFORT and self.owner_count is None

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """Sort key of admission before age, the largest first.

        A job that runs and must not be stopped comes first: whoever came before it would wait for capacity that it
        keeps. Then it counts whether the job has requests, and its tier.
        """
        return self._runs_on, not self.is_best_effort, self.tier

    @property
    def turn(self) -> tuple[bool, bool, int, float, JobKey]:
        """Sort key: the order of admission, by rank and then by age."""
        return not self._runs_on, self.is_best_effort, -self.tier, self.created_s, self.key

    @property
    def _runs_on(self) -> bool:
        """True if the job keeps its minimum running, whatever a plan decides."""
        return self.keeps_minimum and self.was_admitted

    @property
    def bounds(self) -> Bounds:
        """How many trainers the job may have: the pinned count, or its minimum to its maximum.

        The maximum counts as far as more trainers do not slow the job, and is one of its sizes.
        """
        if self.pinned:
            return Bounds(self.pin_floor or self.pinned, self.pinned)
        most = min(self.max_trainers, self.slowed_beyond) if self.slowed_beyond else self.max_trainers
        return Bounds(self.min_trainers, max(self.min_trainers, at_most(self.sizes, most)))

    def may_lend(self, index: int) -> bool:
        """True if the trainer with that number may lend CPU."""
        return may_lend(self.lending, is_surplus=index >= self.min_trainers, is_synchronous=not self.fault_tolerant)

    @property
    def lending_price(self) -> float:
        """Cores' worth of training speed that the job loses for each core lent; 1 until it is measured."""
        price = self.status.measured.lending_price if self.status is not None else None
        return 1.0 if price is None else price

    @property
    def companions(self) -> tuple[FixedPods, ...]:
        """The pods that stay in the domain of the trainers, if the job has one: its pservers."""
        return tuple(fixed for fixed in self.fixed if fixed.role in TOGETHER and fixed.count)

    @property
    def excess(self) -> str:
        """Name the limit that the pods of a role exceed, or what keeps them from its sizes, and the remedy.

        Empty if the planner can count them.
        """
        if self.sizes and self.is_best_effort:  # the schema rejects this, so admission has changed the requests
            return (
                "as the API server admits them, the trainers request neither cpu nor memory, so edl cannot keep them"
                " to sizes, a step or slices; change the webhook that takes the requests away, or remove these"
            )
        roles = ((Role.TRAINER, self.trainer, self.preferred), *((f.role, f.shape, f.preferred) for f in self.fixed))
        found = ((role, excess_of(shape, preferred)) for role, shape, preferred in roles)
        return next((f"{role.value}: {excess}" for role, excess in found if excess), "")

    @property
    def live_trainers(self) -> tuple[Pod, ...]:
        """Trainers that count as `current`: not terminating and not finished."""
        trainer, succeeded, failed = Role.TRAINER, PodPhase.SUCCEEDED, PodPhase.FAILED
        return tuple(  # of a list, and no property is asked of each: there are many pods
            [
                p
                for p in self.pods
                if p.role is trainer and not p.terminating and p.phase is not succeeded and p.phase is not failed
            ]
        )

    @property
    def minimum_trainers(self) -> frozenset[str]:
        """The names of the live trainers that count as the job's minimum: protected ones, then those of lowest index.

        A pod keeps the PriorityClass that it was created with, so the number alone does not say who is protected:
        `min-instance` may have been raised since, or the trainers of the lowest numbers may be lost.
        """
        live = self.live_trainers
        if len(live) <= self.min_trainers:
            return frozenset([pod.name for pod in live])
        first = [pod for pod in live if (pod.index or 0) < self.min_trainers]
        if len(first) != self.min_trainers or not all(pod.is_protected for pod in first):
            by_class = sorted(live, key=lambda pod: (not pod.is_protected, pod.index or 0, pod.name))
            first = by_class[: self.min_trainers]
        return frozenset([pod.name for pod in first])

    def action_for(self, role: Role, event: JobEvent) -> JobAction | None:
        """The action of the job for an event of one of its roles; None does nothing."""
        given = next((p.action for p in self.policies if p.role is role and p.event is event), None)
        of_trainers = role is Role.TRAINER
        return given or default_action(event, fault_tolerant=self.fault_tolerant, of_trainers=of_trainers)

    def completed(self, role: Role) -> tuple[Pod, ...]:
        """Pods of a role that exited with code 0; a pod that is being deleted or evicted did not complete."""
        return tuple(
            p
            for p in self.pods
            if p.role is role and p.phase is PodPhase.SUCCEEDED and not (p.terminating or p.intent or p.disruption)
        )

    @property
    def completed_trainers(self) -> int:
        """How many trainers completed in this run; a clean-up may have deleted the pods of some since."""
        return len(self.completed_indexes)

    @property
    def completed_indexes(self) -> frozenset[int]:
        """The indexes of the trainers that completed in this run."""
        stored = self.status.completed if self.status is not None else ()
        return frozenset((*stored, *(p.index for p in self.completed(Role.TRAINER) if p.index is not None)))

    @property
    def has_quota(self) -> bool:
        """True if Kueue has reserved quota for the job."""
        return self.kueue is not None and self.kueue.reserved is not None

    @property
    def is_schedulable(self) -> bool:
        """True if the planner may give the job pods."""
        return not (self.problem or self.suspended or self.finished or self.deleting or self.is_barred)

    @property
    def is_left_alone(self) -> bool:
        """True for a job whose pods stay whatever a plan says.

        It is a workload that edl does not resize, so its own controller keeps them; or a deletion orphans them.
        """
        is_ending = self.suspended or self.finished or self.deleting
        return self.orphans_pods or (self.owner_count is not None and bool(self.problem) and not is_ending)

    def holds(self, pod: Pod) -> bool:
        """True if the workload keeps its pods in any plan, so that their capacity is never free for others.

        One that keeps its minimum gives what is beyond it, so what terminates there comes free.
        """
        return self.is_left_alone and not (self.keeps_minimum and pod.terminating)

    @property
    def kept_by_owner(self) -> tuple[Pod, ...]:
        """The live pods of a workload that keeps them, once any of them has a node; its queue counts them."""
        return tuple([p for p in self.pods if p.is_live]) if self.is_left_alone and self.was_admitted else ()

    @property
    def leaves_pods(self) -> bool:
        """True if edl does not delete the job's pods even if the plan gives it none: their own controller does."""
        return self.is_left_alone or (self.deleting and self.owner_count is not None)

    @property
    def is_barred(self) -> bool:
        """True if the API server rejects the pods that the job needs to run."""
        return self.refusal is not None and self.refusal.bars

    @property
    def was_admitted(self) -> bool:
        """True if condition Admitted is True or, for a job without a status, if any of its pods is bound."""
        if self.status is not None and (admitted := self.status.condition("Admitted")) is not None:
            return admitted.status == "True"
        return any(p.node and p.is_live for p in self.pods)
