"""What the planner sees of a cluster, and the pods that no kubelet answers for.

It remembers how long a pod has been unreachable and how long a serving pod has ignored capacity that fits it. Losing
this memory costs time and never correctness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import NamedTuple

from edl.clock import Clock
from edl.controller.node_memory import NodeMemory
from edl.controller.plan_maker import PlanMaker
from edl.controller.ports import HeadroomAdvisor, Recorder
from edl.lifecycle.allowance import as_unasked
from edl.lifecycle.broken_nodes import as_avoiding, watch_nodes
from edl.lifecycle.desired_state import as_planned
from edl.lifecycle.node_watch import NodeWatch
from edl.lifecycle.tenancy import as_held, as_permitted, as_requested, best_effort_queues
from edl.lifecycle.trials.stranded import as_stranded, may_be_stranded
from edl.lifecycle.unreachable_pods import UnreachablePods
from edl.model.cluster import ClusterSnapshot
from edl.model.headroom import Headroom
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.pods import Pod
from edl.planner.unplaceable import WaitRecords, mark, mark_untried

SLICE_OF_JOBS = 100
"""The number of jobs to read before other tasks may run: 20 ms if all of these have changed."""


class Queues(NamedTuple):
    """The names of the queues on which the bounds of jobs depend.

    Attributes:
        names: every queue.
        unknown: those of which no valid version is known.
        allowing: those whose jobs may request nothing.
    """

    names: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    allowing: frozenset[str] = frozenset()


class _Viewed(NamedTuple):
    """A job as the planner sees it, cached together with the inputs from which it was computed."""

    job: Job
    is_finishing: bool
    view: Job
    may_be_stranded: bool


class Observer:
    """Derives from snapshots what plans are made from.

    Args:
        clock: for how long something has lasted.
        recorder: gets a line for each serving pod that cannot be placed.
        plans: computes the wait records in the planner thread.
        unreachable_s: how long a pod must have been unreachable before it counts as lost.
        limits: what the operator allows.
        advisor: says what capacity the plans are to keep; None asks for none.
    """

    def __init__(
        self,
        clock: Clock,
        recorder: Recorder,
        plans: PlanMaker,
        unreachable_s: float,
        limits: Limits,
        *,
        advisor: HeadroomAdvisor | None = None,
    ) -> None:
        self._clock, self._recorder, self._plans, self._unreachable_s = clock, recorder, plans, unreachable_s
        self._limits, self._nodes, self._advisor = limits, NodeMemory(limits), advisor
        self._unreachable_since_s: dict[str, float] = {}
        self._unreachable = UnreachablePods()
        self._wait_records: WaitRecords = {}
        self._untried: set[str] = set()
        self._blocked: dict[str, str] = {}
        self._headroom: tuple[Headroom, ...] = ()
        self._queues = Queues()
        self._viewed: dict[str, _Viewed] = {}  # as long as the queues are the same

    def use(self, limits: Limits) -> None:
        """Replace the limits."""
        self._limits, self._viewed = limits, {}
        self._nodes.use(limits)

    def lost_pods(self, snapshot: ClusterSnapshot) -> frozenset[str]:
        """UIDs of the pods that have been unreachable for `unreachable_s`; call it for each snapshot."""
        now_s, before = self._clock.monotonic_s(), self._unreachable_since_s
        found = self._unreachable.of(snapshot)
        if found or before:
            self._unreachable_since_s = before = {uid: before.get(uid, now_s) for uid in found}
        return frozenset(uid for uid, since_s in before.items() if now_s - since_s >= self._unreachable_s)

    def next_lost_s(self) -> float:
        """The monotonic time at which the next pod counts as lost; infinity if none is unreachable."""
        now_s = self._clock.monotonic_s()
        ends_s = (since_s + self._unreachable_s for since_s in self._unreachable_since_s.values())
        return min((end_s for end_s in ends_s if end_s > now_s), default=inf)

    def watch(self, snapshot: ClusterSnapshot) -> NodeWatch:
        """Return the nodes on which trainers failed or hung, as of now."""
        return watch_nodes(snapshot, self._limits)

    async def planner_view(
        self,
        snapshot: ClusterSnapshot,
        watch: NodeWatch,
        is_finishing: Callable[[Job], bool],
        *,
        unprobed: frozenset[str] = frozenset(),
        is_urgent: bool = False,
    ) -> ClusterSnapshot:
        """The snapshot as a plan gets it: jobs with effective bounds, unplaceable serving pods marked.

        Args:
            snapshot: the cluster as observed.
            watch: what is known about nodes on which trainers failed or hung.
            is_finishing: True if the master of a job says that all data is consumed.
            unprobed: UIDs of the jobs whose pods the API server was not asked about: they get no more than they have.
            is_urgent: the plan answers something that cannot wait.
        """
        jobs: list[Job] = []
        for job in self._bounded(snapshot, watch, is_finishing, unprobed):
            jobs.append(job)
            if len(jobs) % SLICE_OF_JOBS == 0:
                await asyncio.sleep(0)
        view = self._view(snapshot, jobs, watch)
        await asyncio.sleep(0)
        now_s, before = self._clock.monotonic_s(), self._wait_records
        self._wait_records = records = await self._plans.wait_records(before, view, now_s, is_urgent=is_urgent)
        marked = mark(view, records, now_s)
        self._report_untried(view)
        self._report_blocked(view)
        for pod in marked.waiting_serving if records else ():
            if pod.uid in records and pod.unplaceable and records[pod.uid] != before.get(pod.uid):
                self._recorder.postponed(_unused(pod, records[pod.uid].pause_s))
        seen = self._nodes.update(marked)
        if self._advisor is None:
            return seen
        self._headroom = self._advisor.advise(seen)
        return replace(seen, headroom=self._headroom)

    def view_between_plans(
        self, snapshot: ClusterSnapshot, watch: NodeWatch, is_finishing: Callable[[Job], bool]
    ) -> ClusterSnapshot:
        """Return the planner's view at once, for evictions ahead of a plan.

        Waiting pods as the last plan knew them.
        """
        view = self._view(snapshot, self._bounded(snapshot, watch, is_finishing, frozenset()), watch)
        return replace(mark(view, self._wait_records, self._clock.monotonic_s()), headroom=self._headroom)

    def _view(self, snapshot: ClusterSnapshot, jobs: Iterable[Job], watch: NodeWatch) -> ClusterSnapshot:
        return mark_untried(replace(snapshot, jobs=tuple(jobs), avoided=watch.avoided), self._limits)

    def _bounded(
        self,
        snapshot: ClusterSnapshot,
        watch: NodeWatch,
        is_finishing: Callable[[Job], bool],
        unprobed: frozenset[str],
    ) -> Iterator[Job]:
        """Yield the jobs with their effective bounds, except new jobs whose dry run has not been made yet."""
        queues = Queues(
            frozenset(queue.name for queue in snapshot.queues),
            frozenset(queue.name for queue in snapshot.queues if queue.is_unknown),
            best_effort_queues(snapshot.queues, self._limits.quotas),
        )
        if queues != self._queues:
            self._queues, self._viewed = queues, {}
        planned = [job for job in snapshot.jobs if job.pods or job.uid not in unprobed]
        if len(self._viewed) > 2 * len(planned):
            self._viewed = {job.uid: self._viewed[job.uid] for job in planned if job.uid in self._viewed}
        viewed, limits = self._viewed, self._limits  # those of another snapshot may replace them meanwhile
        for one in planned:
            seen = _viewed(one, viewed, limits, queues, is_finishing=is_finishing(one))
            job = seen.view
            if seen.may_be_stranded:
                job = as_stranded(job, snapshot.nodes, limits.nodes.expected)
            if watch.avoided:
                job = as_avoiding(job, watch.avoided, snapshot.nodes)
            yield as_unasked(job) if one.uid in unprobed else job

    def _report_untried(self, view: ClusterSnapshot) -> None:
        """Report once each waiting pod that no scheduler tries."""
        untried = {pod.uid: pod for pod in view.waiting_serving if pod.unplaceable}
        for uid, pod in untried.items():
            if uid not in self._untried:
                name = pod.scheduler or "default-scheduler"
                self._recorder.postponed(
                    f"capacity for serving pod {pod.namespace}/{pod.name}: scheduler {name} has not tried it (does it"
                    " run, and is spec.schedulerName right?); edl keeps no capacity for it until one does"
                )
        self._untried = set(untried)

    def _report_blocked(self, view: ClusterSnapshot) -> None:
        """Report each waiting pod that no eviction helps, once for each cause."""
        blocked = {pod.uid: pod for pod in view.waiting_serving if pod.blocked}
        for uid, pod in blocked.items():
            if self._blocked.get(uid) != pod.blocked:
                self._recorder.postponed(
                    f"capacity for serving pod {pod.namespace}/{pod.name}: {pod.blocked}; edl"
                    " deletes no trainers for it"
                )
        self._blocked = {uid: pod.blocked for uid, pod in blocked.items()}


def _unused(pod: Pod, pause_s: float) -> str:
    """Say that a waiting pod does not get free capacity that fits it, why that may be, and what to check."""
    why = "its node has free capacity for it, and its kubelet has not granted it (see its condition PodResizePending)"
    if not pod.is_resize:
        why = (
            "kube-scheduler did not use free capacity that fits it (check its pod affinity, spread constraints,"
            " volumes and resource claims)"
        )
    what = "the resize of " if pod.is_resize else ""
    return (
        f"capacity for {what}serving pod {pod.namespace}/{pod.name}: {why}; edl deletes no trainers for it for"
        f" {pause_s:g} s"
    )


def _viewed(job: Job, known: dict[str, _Viewed], limits: Limits, queues: Queues, *, is_finishing: bool) -> _Viewed:
    """Return a job with its effective bounds, and the same object again as long as the job has not changed."""
    before = known.get(job.uid)
    if before is None or before.job is not job or before.is_finishing is not is_finishing:
        view = as_permitted(as_planned(job, is_finishing=is_finishing), limits, queues.names)
        view = as_held(as_requested(view, queues.allowing), queues.unknown)
        known[job.uid] = before = _Viewed(job, is_finishing, view, may_be_stranded(view))
    return before
