"""The state machine of the controller: computes what to send next, without input or output of its own.

It takes what the cache shows (`seen`), when a plan begins and what it grants (`plan_begins`, `published`), what is
evicted ahead of it (`amended`), and how each write ended (`ended`). It answers with the next write (`take`).

A job's writes are never patched. If the job, its pods or its allotment change, they are computed anew and replace the
old ones, so nothing of an old plan or an old spec is sent. Which job is next is in `due_jobs`. What a plan grants is
in `allotments`, where it says why no capacity is used twice. All that is remembered may be lost at any moment: that
costs time and never correctness.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from edl.clock import Clock
from edl.controller.allotment import Start, serving_needing_capacity
from edl.controller.allotments import Allotments
from edl.controller.assumed import as_if_done, is_foreseen
from edl.controller.backoff import Backoff
from edl.controller.due_jobs import DueJobs, next_end_s
from edl.controller.job_writes import Facts, JobWrites, is_exclusive, node_requests_by_job
from edl.controller.pending_writes import STATUS_EVERY, URGENT, DoneWrites, Lane, PendingWrites, Write, lanes_in_turn
from edl.controller.probes import Probes
from edl.controller.status_pace import StatusPace
from edl.controller.under_way import UnderWay, is_probe
from edl.lifecycle.node_watch import NodeWatch
from edl.model.actions import CreatePod, DeletePod, EmitEvent, Need, Outcome, PatchStatus, ProbePod, ResizePod, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan
from edl.planner.queues.kept_pods import pods_in_the_way
from edl.planner.quota import QuotaNow

SHORTEST_S = 0.01
"""A job is looked at again after this time at the earliest, if only the time changes what it needs."""


class Core:
    """The state machine; see the module.

    Args:
        clock: is only read.
        writes: computes the writes of one job.
        backoff: is told of each outcome.
        retry_s, retry_at_most_s: how long a job backs off after a write failed; doubled each time.

    Attributes:
        allotments: what the last plan grants.
        under_way: the writes that were sent and have not ended.
        snapshot: what the cache shows.
        at_once: no status waits for further changes.
        looked_at: how often a job's writes were computed.
    """

    def __init__(
        self,
        clock: Clock,
        writes: JobWrites,
        backoff: Backoff,
        *,
        retry_s: float = 1.0,
        retry_at_most_s: float = 30.0,
    ) -> None:
        self._clock, self._writes, self._backoff = clock, writes, backoff
        self.allotments, self.under_way = Allotments(), UnderWay()
        self.snapshot, self.looked_at, self.at_once = ClusterSnapshot(0.0), 0, False
        self._facts, self._waits = Facts(), frozenset[str]()
        self._jobs: dict[str, Job] = {}
        self._due = DueJobs(retry_s, retry_at_most_s)
        self._done = DoneWrites()  # those that made no pod
        self._pending, self._probes, self._statuses = PendingWrites(), Probes(backoff), StatusPace()
        self._turns = 0  # counts the writes that were taken, from 0 to STATUS_EVERY
        self._quota: tuple[ClusterSnapshot, QuotaNow] | None = None

    # --- What happens

    def seen(self, snapshot: ClusterSnapshot, unreachable: frozenset[str]) -> None:
        """Take the jobs that the cache shows now; those that have not changed are the same objects.

        Args:
            snapshot: the cluster.
            unreachable: UIDs of pods whose end no kubelet will confirm.
        """
        before_nodes, before, self.snapshot = self.snapshot.kueue.nodes, self._jobs, snapshot
        self._jobs = {job.uid: job for job in snapshot.jobs}
        self._note_facts(unreachable)
        for uid, job in self._jobs.items():
            if (old := before.get(uid)) is not job and old != job:
                self._note_job(old, job)
        if gone := before.keys() - self._jobs.keys():
            by_key = {job.key: job for job in snapshot.jobs}
            for uid in gone:
                self._forget(before[uid], by_key.get(before[uid].key))
        self.look_at(self.allotments.cut)
        if before_nodes != snapshot.kueue.nodes:
            self.look_at(filter(self._pending.has_of, self.allotments.growing()))

    def look_at(self, uids: Iterable[str], *, is_news: bool = False) -> None:
        """Let the writes of these jobs be computed again, because a fact has changed; until then none is sent.

        Args:
            uids: the UIDs of the jobs.
            is_news: something has happened to the jobs themselves: they come before hundreds after a plan.
        """
        for uid in uids:
            if (job := self._jobs.get(uid)) is None:
                continue
            if uid not in self._due:
                self._pending.empty(uid)
            self._due.add(uid, job.key.namespace, is_news=is_news, is_after=self._statuses.is_counted(uid))

    def look_at_all(self) -> None:
        """Let the writes of every job be computed again."""
        self.look_at(self._jobs)

    def watch(self, nodes: NodeWatch) -> None:
        """Take what is known now about nodes on which trainers failed or hung."""
        if nodes != self._facts.watch:
            self._facts = replace(self._facts, watch=nodes)
            self.look_at_all()

    def plan_begins(self, unprobed: frozenset[str] = frozenset()) -> ClusterSnapshot:
        """Note that a plan is begun; return the cluster that the plan should assume, see `assumed`.

        Args:
            unprobed: what `unprobed` has returned.
        """
        snapshot = replace(self.assumed(), observed_at_s=self._clock.now_s())
        self.allotments.begin(snapshot, unprobed)
        return snapshot

    def published(
        self,
        plan: ScalePlan | None,
        starts: Iterable[Start] = (),
        requests: Mapping[JobKey, tuple[ResizePod, ...]] | None = None,
        *,
        awaited: frozenset[str] = frozenset(),
        is_explained: bool = True,
    ) -> None:
        """Replace the allotments by those of a new plan; see `Allotments.publish`."""
        if plan is not None and self.allotments.planning is not None:
            self._statuses.plan_s = plan.seconds
        jobs = self._jobs.values()
        changed = self.allotments.publish(plan, starts, requests or {}, awaited, jobs, is_explained=is_explained)
        self._statuses.unexplained = frozenset() if is_explained else self.allotments.unexplained()
        self.look_at(changed)

    def explained(self, plan: ScalePlan) -> None:
        """Take the sentences of the plan that was published; the statuses that waited for them may be sent."""
        self.look_at(self.allotments.explain(plan, self._statuses.explained()))

    def amended(self, decisions: Sequence[ScaleDecision], view: ClusterSnapshot, awaited: frozenset[str]) -> None:
        """Take the evictions ahead of a plan; see `Allotments.amend`."""
        self.look_at(self.allotments.amend(decisions, view, awaited), is_news=True)

    def ended(self, write: Write, outcomes: Sequence[Outcome]) -> None:
        """Note how a write ended; the cache shows what the API server answered already."""
        now_s, uid = self._clock.monotonic_s(), write.job_uid
        self.under_way.ended(write)
        self._statuses.ended(write, outcomes, now_s)
        for outcome in outcomes:
            if isinstance(outcome.action, CreatePod):
                self._note_creation(outcome.action, outcome)
        if (job := self._jobs.get(uid)) is None:
            self.under_way.forget(uid)
            return
        for outcome in outcomes:
            self._backoff.record(outcome, now_s)
        fails_for_ever = self._backoff.refused_creation(uid, now_s) is not None
        if fails_for_ever:
            self.under_way.forget(uid)  # nothing is planned with pods that cannot be created
        failed = [o for o in outcomes if not o.is_ok and not isinstance(o.action, EmitEvent)]
        if is_probe(write):
            self._note_answers(job, write, outcomes, now_s)
        elif not failed and isinstance(write.actions[0], Need):
            self._writes.sent(write.actions[0], generation=write.generation)
        for outcome in outcomes:
            if outcome.is_ok and isinstance(outcome.action, EmitEvent):
                self._writes.sent(outcome.action, generation=write.generation)
        if not failed and not isinstance(write.actions[0], CreatePod):
            self._done.add(write, now_s)
        pauses = fails_for_ever and not self._backoff.allows(uid, CreatePod, now_s)
        has_own_pauses = (CreatePod, ProbePod, Need) if pauses else ()  # its status must not wait for them
        self._due.back_off(uid, [o for o in failed if not isinstance(o.action, has_own_pauses)], now_s)
        if failed or is_exclusive(write) or not (self.under_way.pods_of(uid) or self._pending.has_of(uid)):
            self.look_at((uid,))

    def try_again(self) -> None:
        """End the backoff of every job after a failure."""
        self._due.end_backoffs()

    def stand_down(self) -> None:
        """Forget all allotments, because the lease is lost and another controller acts now."""
        if self.allotments.by_job or self.allotments.planning is not None:
            self.allotments = Allotments(unknown={job.key for job in self.snapshot.jobs if job.is_schedulable})
            self._due.end_backoffs()
            self._turns = 0
            self._pending.clear()
            self.look_at_all()

    # --- What follows

    def take(self, *, background: bool = True) -> Write | None:
        """Return the next write to send now, which then is under way; None if there is none.

        Args:
            background: also surplus growth and events, which nobody waits for.
        """
        now_s = self._clock.monotonic_s()
        self._compute(now_s)
        is_held = self.is_held(now_s) or self.has_more
        lanes = lanes_in_turn(self._turns, background=background, is_held=is_held)
        if not self._statuses.may_send_oversized(now_s, at_once=self.at_once):
            lanes = [lane for lane in lanes if lane is not Lane.OVERSIZED]
        if (write := self._pending.take(lanes)) is None:
            return None
        write = replace(write, generation=self._jobs[write.job_uid].generation)
        self._turns = (self._turns + 1) % STATUS_EVERY
        self._statuses.begins(write)
        self.under_way.sent(write, now_s)
        self._note_sent(write)
        return write

    def assumed(self) -> ClusterSnapshot:
        """The cluster as it will be once the writes under way have succeeded: what plans are made from."""
        return self.under_way.assumed(self.snapshot)

    def unprobed(self) -> frozenset[str]:
        """UIDs of the jobs whose pods the API server was not asked about yet; a plan leaves them out.

        They are looked at again, so that it is asked.
        """
        found = frozenset(uid for uid, job in self._jobs.items() if self._wants_probe(job))
        self.look_at(found - self.under_way.probes())
        return found

    def is_unprobed(self, uid: str) -> bool:
        """True if the API server has yet to be asked about the pods of that job."""
        return (job := self._jobs.get(uid)) is not None and self._wants_probe(job)

    def namespaces_of(self, uids: Iterable[str]) -> frozenset[str]:
        """The namespaces of jobs by their UIDs; those that are gone are left out."""
        return frozenset(self._jobs[uid].key.namespace for uid in uids if uid in self._jobs)

    @property
    def has_more(self) -> bool:
        """True if the writes of some job have yet to be computed, and the job need not wait for anything."""
        return self._due.has_more(self.under_way.jobs_that_wait, self._clock.monotonic_s())

    def has_new_spec(self, job: Job) -> bool:
        """True if the API server was asked about pods of an older spec of the job."""
        return self._probes.is_new(job)

    @property
    def is_growing(self) -> bool:
        """True if trainers that a plan granted have yet to be created."""
        return self._pending.has((Lane.BASE, Lane.MINIMUM, Lane.SURPLUS))

    def has_urgent(self) -> bool:
        """True if a write can be sent that somebody waits for."""
        return self._pending.has(URGENT)

    def is_held(self, now_s: float) -> bool:
        """True while surplus is held back for a job or pod that no plan has counted yet; see `Allotments.is_held`."""
        return self.allotments.is_held(self._waits, now_s)

    def has_needless_evictions(self) -> bool:
        """True if trainers are to end for serving pods that do not wait any more; they stay."""
        return self.allotments.has_needless_evictions(self._waits)

    def next_look_s(self) -> float:
        """The monotonic time at which something may be sent although nothing changes; infinity if there is none."""
        now_s, large_s = self._clock.monotonic_s(), self._statuses.oversized_s
        large = [large_s] if large_s > now_s and self._pending.has((Lane.OVERSIZED,)) else []
        return min((*self._due.next_s(), *self.allotments.held_until_s(now_s), *large), default=inf)

    # --- What is seen

    def _note_facts(self, unreachable: frozenset[str]) -> None:
        """Record the facts of the cluster that jobs depend on, and mark the jobs that a change concerns."""
        snapshot, before = self.snapshot, self._facts
        waits = serving_needing_capacity(snapshot)
        requests, in_the_way = node_requests_by_job(snapshot), pods_in_the_way(snapshot)
        if concerned := (unreachable ^ before.unreachable) | (in_the_way ^ before.in_the_way):
            self.look_at(job.uid for job in snapshot.jobs if any(pod.uid in concerned for pod in job.pods))
        if waits != self._waits:
            self.look_at(self.allotments.concerned(waits=bool(waits)))
            self._waits = waits
        if requests != before.node_requests:
            keys = requests.keys() | before.node_requests.keys()
            self.look_at(job.uid for job in snapshot.jobs if job.key in keys)
        if snapshot.missing_priority_classes != before.missing_priority_classes:
            self.look_at_all()
        facts = (snapshot.nodes, unreachable, before.watch, snapshot.missing_priority_classes, requests)
        self._facts = Facts(*facts, serving_waits=bool(waits), in_the_way=in_the_way)

    def _note_job(self, before: Job | None, job: Job) -> None:
        """Look at a job that has changed: at once, or a little later if only the counts of its status change."""
        now_s, uid = self._clock.monotonic_s(), job.uid
        mine = self.under_way.pods_of(uid)
        if before is not None and before.generation != job.generation:
            self._due.end_backoffs((uid,))
        if before is not None and uid not in self._due and is_foreseen(before, job, mine):
            due_s = self._statuses.counted(uid, now_s)
            self._due.later(uid, now_s if self.at_once else due_s, or_sooner=True)
            return
        if before is None:
            self._probes.first_seen(job)
        self._statuses.changed(uid, now_s)
        self.look_at((uid,), is_news=True)
        self.allotments.compare(job.key, job)

    def _forget(self, job: Job, other: Job | None) -> None:
        """Forget a job that is gone; another one may have its name now."""
        uid = job.uid
        self.allotments.compare(job.key, other)
        self._pending.replace(uid, ())
        for one in (self._due, self.under_way, self._done, self._writes, self._probes, self._statuses, self._backoff):
            one.forget(uid)

    # --- One job

    def _compute(self, now_s: float) -> None:
        """Compute the writes of some jobs that have changed; no other write of these jobs is sent until then."""
        self.look_at(self._due.take_later(now_s))
        self.look_at(self.allotments.keep_donors())
        for uid in self._due.first(self.under_way.jobs_that_wait(), now_s):
            self._due.remove(uid)
            self.looked_at += 1
            self._pending.replace(uid, list(self._wanted(self._jobs[uid], now_s)))

    def _wanted(self, job: Job, now_s: float) -> Iterator[Write]:
        """All writes that may be sent for a job now."""
        mine = self.under_way.pods_of(job.uid)
        again = self.under_way.repeats(job, mine)
        if self._backoff.allows(job.uid, CreatePod, now_s):
            yield from (Write((action,), Lane.BASE) for action in again)
        if self._wants_probe(job) and job.uid not in self.under_way.probes():
            yield Write(self._probes.questions(job), Lane.BASE)
        time_s = self._clock.now_s()
        wait_s = max(SHORTEST_S, next_end_s(job, time_s) - time_s)
        due_s = min(now_s + wait_s, self._backoff.next_try_s(job.uid, now_s))
        for write in self._needed(job, (*mine, *again)):
            is_planned = job.key not in self.allotments.unknown
            sent_s = self._done.repeated_s(write)
            pace = self._statuses
            if write.status is not None and not (self.at_once and job.key not in pace.unexplained):
                sent_s = max(sent_s, pace.due_s(job, write, now_s, is_planned=is_planned))
            if sent_s <= now_s:
                yield write
            else:
                due_s = min(due_s, sent_s)
        self._due.later(job.uid, due_s)

    def _needed(self, job: Job, under_way: Collection[CreatePod | DeletePod]) -> list[Write]:
        assumed = as_if_done(job, under_way)
        certain = as_if_done(job, [a for a in under_way if isinstance(a, DeletePod)])  # a creation may be refused
        usable = self.allotments.of(certain, self._waits, self.snapshot)
        return self._writes.of(job, assumed, usable, self._facts, under_way)

    def _wants_probe(self, job: Job) -> bool:
        """True if the API server has to be asked whether it accepts the pods of a job."""
        return self._probes.is_due(job, self._quota_now, self._clock.monotonic_s())

    def _quota_now(self) -> QuotaNow:
        """What the ResourceQuotas of the snapshot leave."""
        if self._quota is None or self._quota[0] is not self.snapshot:
            self._quota = (self.snapshot, QuotaNow(self.snapshot))
        return self._quota[1]

    # --- Writes that begin and end

    def _note_sent(self, write: Write) -> None:
        """Count what a write uses of the allotment of its job, because it is being sent."""
        for action in write.actions:
            if isinstance(action, PatchStatus):
                self._statuses.sent(write.job_uid)
            elif not (isinstance(action, CreatePod) and self.under_way.is_repeat(action)):
                self.allotments.use(action)

    def _note_answers(self, job: Job, write: Write, outcomes: Sequence[Outcome], now_s: float) -> None:
        """Note what a dry run says of the pods of a job."""
        if write.generation != job.generation:
            self._backoff.drop(job.uid, CreatePod)  # that is nothing about pods of the present spec
            return
        self._probes.ended(job, outcomes)
        if len(outcomes) == len(write.actions) and all(outcome.is_ok for outcome in outcomes):
            self._backoff.accept_questions(job.uid, now_s)

    def _note_creation(self, action: CreatePod, outcome: Outcome) -> None:
        """Note whether a pod was created; if that is unknown, the same creation is sent again first."""
        self.under_way.answered(action, outcome)
        if not outcome.is_ok and outcome.result is not Result.FAILED:
            self.allotments.give_back(action)
