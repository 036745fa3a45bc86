"""Notes what the controller's parts report in a shadow run (events, plans, durations); nothing is written."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from edl import __version__
from edl.clock import Clock
from edl.controller.ports import RoundResult
from edl.kube.mirror.cache import ClusterCache
from edl.kube.translate.objects import HasMetadata
from edl.kube.translate.rules.devices import UNCOUNTED
from edl.kube.translate.rules.facts import RuleFacts
from edl.model.actions import Outcome
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.times import text_of
from edl.observability.logs import log_event
from edl.printable import one_line
from edl.shadow.answers import Answers
from edl.shadow.costs import CostMeter
from edl.shadow.document import Report, Unknown
from edl.shadow.gain import gain_of
from edl.shadow.state import State
from edl.shadow.timeline import Timeline
from edl.shadow.wishes import Wishes

MOST_PROBLEMS, MOST_SET_ASIDE = 20, 500
_LONGEST = 300
_log = logging.getLogger(__name__)


class Watcher:
    """Collects what a report needs; it is the `ports.Recorder` of a controller that shows its plans.

    Args:
        clock: for the times.
        state: what former runs have collected; it is changed.

    Attributes:
        jobs: those of the last plan.
        uncounted: the pods of that plan whose devices are not counted, by the reason.
    """

    def __init__(self, clock: Clock, state: State) -> None:
        self._clock, self._state = clock, state
        self._wishes = Wishes(clock.now_s, state.evictions)
        self._answers = Answers(clock.now_s, clock.monotonic_s, state.agreement, self._wishes.ended)
        self._timeline = Timeline(clock.now_s, clock.monotonic_s, state.intervals, state.observed_s)
        self._meter = CostMeter(state.costs, state.lengths)
        self._lists, self._shown_s = 0, 0.0
        self.uncounted: dict[str, int] = {}
        self.jobs = ClusterSnapshot(0.0).jobs

    @property
    def observed_s(self) -> float:
        """How long the cluster was observed, in all runs."""
        return self._timeline.observed_s

    def read_facts(self, facts: Callable[[], RuleFacts]) -> None:
        """Judge rules by these volumes, devices and other objects from now on."""
        self._answers.rules.facts = facts

    def note(self, before: HasMetadata | None, after: HasMetadata | None) -> None:
        """Take an event of a watch; events before the first list cannot be compared with anything."""
        if self._lists:
            self._answers.note(before, after)

    def look(self, cache: ClusterCache) -> None:
        """Process the lists that have come, and the time that has passed; call it about once a second."""
        if cache.is_synced and cache.lists_done != self._lists:
            self._answers.book.fill(cache.nodes(), cache.pods())
            self._lists = cache.lists_done
        self._answers.settle()
        self._timeline.hold()
        self._meter.look()

    def show(self, view: ClusterSnapshot, plan: ScalePlan) -> None:
        """Take a plan and the snapshot that it was made from."""
        began_s = time.perf_counter()
        self.jobs, self.uncounted = view.jobs, _uncounted(view)
        self._wishes.planned(view, plan)
        self._timeline.planned(view, plan)
        self._meter.planned(view, plan)
        self._shown_s = time.perf_counter() - began_s

    def note_unknown(self, found: Unknown) -> None:
        """Take the objects that edl does not understand now; those found earlier stay in the report.

        A webhook or an object that is gone may have had its part in what was observed.
        """
        before = self._state.unknown
        for name in ("kinds", "rules", "schedulers"):
            counts, known = getattr(found, name), getattr(before, name)
            known.update({key: max(count, known.get(key, 0)) for key, count in counts.items()})
        before.refused_workloads.update(found.refused_workloads)
        before.unreadable = found.unreadable
        before.admission = sorted({*before.admission, *found.admission})
        before.set_aside = list(dict.fromkeys([*before.set_aside, *found.set_aside]))[:MOST_SET_ASIDE]

    def state(self) -> State:
        """The state to save in the file."""
        self._state.observed_s, self._state.lengths = self.observed_s, self._meter.classes
        self._meter.look()
        return self._state

    def report(self, *, is_final: bool) -> Report:
        """The report until now."""
        if is_final:
            self._answers.settle(all_of_them=True)
        state = self.state()
        return Report(
            edl=__version__,
            server=state.server,
            settings=state.settings,
            started=state.started,
            ended=text_of(self._clock.now_s()),
            observed_s=round(self.observed_s, 3),
            is_final=is_final,
            agreement=self._answers.finish(),
            evictions=state.evictions,
            gain=gain_of(state.intervals),
            unknown=state.unknown,
            costs=self._meter.finish(self.observed_s),
            intervals=state.intervals,
        )

    # --- What a recorder is told

    async def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Ignore snapshots: what is counted comes with the plans."""

    def skipped(self, reason: str) -> None:
        """Note the reason for which no plan was made."""
        self._note_problem(reason)

    async def planned(self, snapshot: ClusterSnapshot, limits: Limits, plan: ScalePlan) -> None:
        """Pass a checked plan to `show`."""

    def evicted_early(self, snapshot: ClusterSnapshot, limits: Limits, decisions: Sequence[ScaleDecision]) -> None:
        """Ignore evictions ahead of a plan: a run that only shows its plans has none."""

    def not_planned(self, _: ClusterSnapshot, error: Exception) -> None:
        """Note that no plan could be made."""
        self._note_problem(f"no plan: {error}")

    def failed(self, what: str, error: BaseException) -> None:
        """Note a bug of edl that has stopped a part; the rest continues."""
        log_event(_log, logging.ERROR, "a bug in edl", what=what, err=repr(error))
        self._note_problem(f"a bug in edl stopped {what}: {error!r}")

    def postponed(self, what: str) -> None:
        """Log a postponed action; nothing is carried out."""
        log_event(_log, logging.DEBUG, "postponed", what=what)

    def acted(self, outcome: Outcome) -> None:
        """Ignore actions: none is carried out."""

    def ended(self, result: RoundResult, seconds: float) -> None:
        """Note how long a plan took, without the time that this class has spent on it."""
        shown_s, self._shown_s = self._shown_s, 0.0
        if result in {RoundResult.SHOWN, RoundResult.FAILED}:
            self._meter.decided(max(0.0, seconds - shown_s), is_plan=result is RoundResult.SHOWN)

    def _note_problem(self, problem: str) -> None:
        """Add a problem to the last ones, unless it is among them."""
        line = one_line(problem, _LONGEST)
        problems = self._state.unknown.problems
        with suppress(ValueError):
            problems.remove(line)
        problems.append(line)
        del problems[:-MOST_PROBLEMS]


def _uncounted(view: ClusterSnapshot) -> dict[str, int]:
    """Count by reason the waiting and wanted pods whose devices edl cannot count."""
    found: Counter[str] = Counter()
    wanted = [(pod.shape, 1) for pod in view.waiting_serving] + [(job.trainer, job.max_trainers) for job in view.jobs]
    for shape, pods in wanted:
        for rule in shape.placement.rules:
            if rule.why.startswith(UNCOUNTED):
                found[one_line(rule.why, _LONGEST)] += pods
    return dict(found)
