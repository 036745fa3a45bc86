"""The allotment of one job: what the last plan grants it, and for how long that stays valid.

An allotment is bound to the UID and the generation of its job and to the UIDs of the pods that it ends. So a job that
was suspended, edited or created anew gets nothing of an old plan, and no pod ends because a former one had its name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from edl.lifecycle.trials.ending import nominated_in_vain
from edl.model.actions import CreatePod, ResizePod
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.plan import VOLUNTARY_SHRINKS, ScaleDecision
from edl.model.resources import Resources
from edl.model.sizes import at_most
from edl.model.status import Reason

_besides_sentences = attrgetter(*({one.name for one in fields(ScaleDecision)} - {"message", "details"}))

Slot = tuple[Role, str]
"""Free capacity for one pod: its role, and the name of the node."""

BY_ITSELF = frozenset({Reason.AT_MAX.value, Reason.PINNED.value})
"""The reasons of deletions that only take a job down to its own maximum, or to the count that somebody has set."""

FOR_OTHER_JOBS = VOLUNTARY_SHRINKS | {Reason.ADMITTED}
"""The reasons of deletions whose capacity goes to another job."""


@dataclass(frozen=True, slots=True)
class Allotment:
    """The trainers, places and victims that the last plan, or an eviction ahead of the next plan, grants one job.

    Attributes:
        decision: as the plan made it.
        uid: the UID of the job.
        pods: name -> UID of the pods that end, as the plan saw them.
        slots: what may be created now; a slot that is used is counted elsewhere (`allotments.Allotments.used`).
        awaited: UIDs of the serving pods that the victims end for; empty if they end for something else.
        requests: the changed CPU requests of running trainers.
    """

    decision: ScaleDecision
    uid: str
    pods: Mapping[str, str]
    slots: tuple[Slot, ...] = ()
    awaited: frozenset[str] = frozenset()
    requests: tuple[ResizePod, ...] = ()

    def is_for(self, job: Job) -> bool:
        """True if the job is still the one that the plan saw: the same object with the same spec."""
        return (self.uid, self.decision.generation) == (job.uid, job.generation)

    def decision_for(self, job: Job) -> ScaleDecision | None:
        """The decision, with only those victims and moves that are still the same pods; None for another job.

        Others may have ended since the plan was made. So no more end than leave the job its minimum, or what the plan
        leaves it if that is less; and of a job that only shrinks, and for nobody else, no more than it still has too
        many. A job that may not have more trainers now, whatever the plan knew, does not grow; what it has asked for
        it takes back.

        Args:
            job: as it will be once the writes under way have succeeded.
        """
        if not self.is_for(job):
            return None
        if not self.pods:
            return _as_accepted(self.decision, job)
        here = {pod.name: pod.uid for pod in job.pods}
        victims, moves = (
            tuple(name for name in names if name in here and here[name] == self.pods.get(name))
            for names in (self.decision.victims, self.decision.moves)
        )
        victims = self._able(victims, job)
        decision = _as_accepted(self.decision, job)
        if (victims, moves) == (decision.victims, decision.moves):
            return decision
        return replace(decision, victims=victims, moves=moves)

    def _able(self, victims: tuple[str, ...], job: Job) -> tuple[str, ...]:
        """The victims that may end now, with those that end already; a gang ends as a whole."""
        d, live = self.decision, {pod.name for pod in job.live_trainers}
        here = [name for name in victims if name in live]
        if d.shrink_reason in BY_ITSELF and not d.nodes:
            return tuple(here[: max(0, len(live) - d.target)])
        if not job.fault_tolerant:
            return victims
        least = min(job.min_trainers, d.current - len(d.victims))  # some may start again elsewhere
        spared = here[max(0, len(live) - least) :]
        return tuple(name for name in victims if name not in spared)

    def explained(self, decision: ScaleDecision) -> Allotment:
        """Return the allotment with the sentences of a decision, if the decision differs in nothing else."""
        mine = self.decision
        if mine is decision or (mine.message, mine.details) == (decision.message, decision.details):
            return self
        return replace(self, decision=decision) if _besides_sentences(mine) == _besides_sentences(decision) else self

    @property
    def is_bare(self) -> bool:
        """Return True if the allotment permits no write: no pod is created, deleted or moved, no request changes."""
        return not (self.slots or self.requests or self.pods or self.decision.victims or self.decision.moves)

    @property
    def ends_for_other_jobs(self) -> bool:
        """True if trainers of an admitted job end so that other jobs get their capacity."""
        d = self.decision
        return bool(d.victims) and d.admitted and d.shrink_reason in FOR_OTHER_JOBS

    @property
    def ends_for_serving(self) -> bool:
        """True if trainers end so that serving pods fit."""
        return bool(self.decision.victims) and self.decision.shrink_reason == Reason.SERVING_NEEDS_ROOM

    @property
    def grows(self) -> bool:
        """True if the job gets more trainers than the plan saw."""
        return self.decision.target > self.decision.current


@dataclass(frozen=True, slots=True)
class Usable:
    """The part of a job's allotment that the job has not used yet.

    Attributes:
        decision: what its allotment says; None if it has none that counts.
        slots: the free capacity that it may use.
        requests: the changed CPU requests of its trainers.
        may_request_nodes: node requests may be made and withdrawn as the decision says.
    """

    decision: ScaleDecision | None = None
    slots: Sequence[Slot] = ()
    requests: Sequence[ResizePod] = ()
    may_request_nodes: bool = False


class Start(NamedTuple):
    """A pod of a plan whose node has free capacity for it.

    Attributes:
        job: the job of the pod.
        role: the role of the pod.
        node: the name of the node.
    """

    job: JobKey
    role: Role
    node: str


def serving_needing_capacity(snapshot: ClusterSnapshot) -> frozenset[str]:
    """UIDs of the serving pods that wait for capacity, nominated ones whose node does not become free included."""
    vain = (replace(pod, nominated="") for pod in nominated_in_vain(snapshot))
    return frozenset(pod.uid for pod in chain(snapshot.waiting_serving, vain) if pod.needs_capacity)


def allotment_of(
    decision: ScaleDecision,
    job: Job,
    awaited: frozenset[str],
    slots: Iterable[Slot] = (),
    requests: Iterable[ResizePod] = (),
) -> Allotment:
    """Bind a decision to the job that it was made for.

    Args:
        decision: for the job.
        job: as the plan saw it.
        awaited: UIDs of the serving pods that waited then.
        slots: what may be created now.
        requests: the changed CPU requests of its trainers.
    """
    ends = {*decision.victims, *decision.moves}
    pods = {pod.name: pod.uid for pod in job.pods if pod.name in ends} if ends else {}
    found = Allotment(decision, job.uid, pods, tuple(slots), frozenset(), tuple(requests))
    return replace(found, awaited=awaited) if found.ends_for_serving else found


def without_taken(
    starts: Sequence[Start], sent: Iterable[CreatePod], jobs: Mapping[JobKey, Job]
) -> tuple[Start, ...]:
    """Return the starts whose capacity pods created since the plan's snapshot have not taken.

    A pod that the plan would create on the same node for the same job uses that start. Any other pod uses capacity
    that the plan may have granted to somebody else on its node: as many starts there are dropped, the last ones
    first, as request what the pod requests.

    Args:
        starts: the starts of the new plan.
        sent: the pods that were created after the snapshot of the plan.
        jobs: as the plan saw them.
    """
    sent = list(sent)
    if not sent:
        return tuple(starts)
    gone: set[int] = set()
    places: dict[Start, deque[int]] = {}
    on_node: dict[str, list[int]] = {}
    for place, start in enumerate(starts):
        places.setdefault(start, deque()).append(place)
        on_node.setdefault(start.node, []).append(place)
    for pod in sent:
        same = places.get(Start(pod.job, pod.role, pod.node or ""))
        while same and same[0] in gone:
            same.popleft()
        if same:
            gone.add(same.popleft())
            continue
        job = jobs.get(pod.job)
        missing = _request(job, pod.role) if job is not None else Resources()
        here = on_node.get(pod.node, []) if pod.node is not None else []
        while here and any(amount > 0 for _, amount in missing.amounts):
            if (place := here.pop()) not in gone:
                gone.add(place)
                missing = missing - _request(jobs[starts[place].job], starts[place].role)
    return tuple(start for place, start in enumerate(starts) if place not in gone)


def within(decision: ScaleDecision, most: int) -> ScaleDecision:
    """Return a decision limited to `most` trainers."""
    target = max(decision.current, most)
    return replace(decision, target=target) if decision.target > target else decision


def _as_accepted(decision: ScaleDecision, job: Job) -> ScaleDecision:
    """Return a decision without the growth that the changed job may not have, with the reason."""
    refusal = job.refusal
    if refusal is None:
        return decision
    found = within(decision, at_most(job.sizes, refusal.allowed))
    if found is decision:
        return decision
    return replace(found, reason=refusal.reason, message=refusal.message, details=refusal.details)


def _request(job: Job, role: Role) -> Resources:
    return next((fixed.shape for fixed in job.fixed if fixed.role is role), job.trainer).request
