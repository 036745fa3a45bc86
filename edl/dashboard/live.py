"""Turns snapshots and plans into what every open page shows, at most once a second.

While no page is open, only the history is kept: no view is made and no plan is computed. The leading controller hands
over its own plans. A standby controller and `edl dashboard` have none, so they compute one while somebody looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from edl.clock import Clock
from edl.dashboard.decision_log import DecisionLog
from edl.dashboard.differences import differences
from edl.dashboard.feed import Feed
from edl.dashboard.history import History, Sample, sample_of
from edl.dashboard.job_counts import JobCounts
from edl.dashboard.view import Body, View, short, view_of
from edl.errors import EdlError
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import ScalePlan

PACE_S = 1.0
_REST_OF_PLAN = 3.0
"""A page computes plans at most a quarter of the time."""
_REST_OF_SAMPLE = 50.0
"""The pods are added up at most a fiftieth of the time."""

Decide = Callable[[ClusterSnapshot], Awaitable[ScalePlan]]


class Live:
    """The state of the cluster that open pages show now.

    Args:
        clock: for pauses and times.
        feed: the open pages.
        decide: makes a plan if nobody hands one over.
        pace_s: shortest time between two messages.
    """

    def __init__(self, clock: Clock, feed: Feed, decide: Decide, *, pace_s: float = PACE_S) -> None:
        self._clock, self._feed, self._decide, self._pace_s = clock, feed, decide, pace_s
        self._history, self._log, self._counts = History(), DecisionLog(), JobCounts()
        self._snapshot: ClusterSnapshot | None = None
        self._sampled: tuple[ClusterSnapshot, Sample] | None = None
        self._plan: ScalePlan | None = None
        self._planned: ClusterSnapshot | None = None
        self._plan_due_s = self._sample_due_s = 0.0
        self._leads = False
        self._view = View()
        self._problem = self._no_plan = ""
        self._changed = asyncio.Event()
        self._refreshing = asyncio.Lock()

    @property
    def snapshot(self) -> ClusterSnapshot | None:
        """The newest snapshot; None before the first."""
        return self._snapshot

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool, problem: str = "") -> None:
        """Take a snapshot; `leader`: the leader's plans are handed over too.

        The pages say what the snapshot lacks.
        """
        self._snapshot, self._leads = snapshot, leader
        self._counts.take(snapshot)
        self.note_problem(problem)

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:
        """Take a new plan."""
        self._plan, self._planned = plan, snapshot
        self._tell(self._problem, "")
        entries = self._log.take(plan, snapshot)
        if entries:
            self._feed.send("decisions", entries)
        self._changed.set()

    def not_planned(self, error: Exception) -> None:
        """Note that no plan was made; the pages say so until the next plan."""
        self._tell(self._problem, f"no plan was made: {short(str(error))}")

    def note_problem(self, problem: str) -> None:
        """Say on every page why what it shows may be old; an empty text if it is not."""
        self._tell(short(problem), self._no_plan)
        self._changed.set()

    def _tell(self, problem: str, no_plan: str) -> None:
        before = self._problem or self._no_plan
        self._problem, self._no_plan = problem, no_plan
        if (problem or no_plan) != before:
            self._feed.send("problem", problem or no_plan)

    def state(self) -> Body:
        """Everything that a page needs when it opens; the messages of the feed continue from there."""
        return {
            "now": self._clock.now_s(),
            "nodes": self._view.nodes,
            "jobs": self._view.jobs,
            "cluster": self._view.cluster,
            "history": [sample.body for sample in self._history.samples],
            "counts": self._counts.steps,
            "decisions": list(self._log.entries),
            "problem": self._problem or self._no_plan,
        }

    async def refresh(self) -> None:
        """Bring the view up to date and send what changed."""
        async with self._refreshing:
            self._changed.clear()
            if self._snapshot is None:
                return
            view = await asyncio.to_thread(view_of, self._snapshot, self._plan)
            change = await asyncio.to_thread(differences, self._view, view)
            self._view = view
            if change is not None:
                self._feed.send("change", {"time": round(self._snapshot.observed_at_s, 1), **change})

    async def sample(self) -> None:
        """Add the newest snapshot to the history, unless it is too soon after the last one."""
        snapshot, now_s = self._snapshot, self._clock.monotonic_s()
        if snapshot is None or not self._history.wants(snapshot.observed_at_s):
            return
        if self._sampled is None or not snapshot.shares_all(self._sampled[0]):
            if now_s < self._sample_due_s:
                return
            self._sampled = (snapshot, await asyncio.to_thread(sample_of, snapshot))
            took_s = self._clock.monotonic_s() - now_s
            self._sample_due_s = now_s + _REST_OF_SAMPLE * took_s
        sample = replace(self._sampled[1], time_s=snapshot.observed_at_s)
        if self._history.add(sample):
            self._feed.send("sample", sample.body)

    async def run(self) -> None:
        """Keep the open pages up to date until cancelled."""
        while True:
            await self._changed.wait()
            await self.sample()
            if self._feed.is_watched:
                await self._plan_if_due()
                await self.refresh()
            else:
                self._changed.clear()
            await self._clock.sleep(self._pace_s)

    async def _plan_if_due(self) -> None:
        """Compute the plan for the newest snapshot, unless the leader hands it over or one was just made."""
        snapshot, now_s = self._snapshot, self._clock.monotonic_s()
        if snapshot is None or self._leads or snapshot is self._planned or now_s < self._plan_due_s:
            return
        try:
            plan = await self._decide(snapshot)
        except EdlError as error:
            self.not_planned(error)
        else:
            self.planned(snapshot, plan)
        self._plan_due_s = self._clock.monotonic_s() + _REST_OF_PLAN * (self._clock.monotonic_s() - now_s)
