"""The clock of one decision: how much of its time is left, for every loop that can be long.

A deadline that is looked at between stages only does not hold, because one stage can be as long as it likes. So the
problem carries one clock, and pricing, column generation, growth, admission trials and swaps ask it. A stage may be
allowed a part of the time, so that those after it can still make a plan of what it has done.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf

from edl.errors import PlanError, PlanFailure
from edl.model.plan import CutStage

BRIEF = 0.01  # the part of a deadline that no work is left out for
LEAST_S = 1e-3  # what a program gets at least, because solvers read 0 as no limit
NOW_S = time.perf_counter  # the time of a decision that brings no other one


MANY_OBJECTS = 10_000
"""The number of new objects that starts a search for cycles: of some milliseconds, in which no thread runs."""
EXCLUDED_TIMES = 1000
"""The number of decisions after which all objects are searched once, or excluded cycles would stay forever."""
_excluded = 0  # how many decisions have excluded what they left since then


@contextmanager
def without_collections(*, excludes_new: bool = False) -> Iterator[None]:
    """Pause Python's search for unused cycles: a decision makes a million objects, and hardly any of them in cycles.

    Each search would look at the whole cluster again. Nested and parallel uses are allowed; the last one that began
    with searches on switches them on.

    Args:
        excludes_new: if more than `MANY_OBJECTS` are new at the end, exclude what there is then from later searches:
            the first one would hold up all threads for a part of a second. Objects end with their last use as ever;
            cycles that are unused just then end `EXCLUDED_TIMES` such decisions later at the latest.
    """
    was_enabled = gc.isenabled()
    if was_enabled and excludes_new:
        gc.collect(0)
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if excludes_new and gc.get_count()[0] > MANY_OBJECTS:
                _exclude()
            gc.enable()


def _exclude() -> None:
    """Exclude all objects from searches for cycles, after a search of all of them if that is due."""
    global _excluded  # noqa: PLW0603 - the interpreter has one set of excluded objects
    _excluded += 1
    if _excluded >= EXCLUDED_TIMES:
        _excluded = 0
        gc.unfreeze()
        gc.collect()
    gc.freeze()


class OutOfTimeError(PlanError):
    """The time of a stage is over; what it had done so far may still be used."""


class Clock:
    """The deadline of one decision.

    Attributes:
        deadline_s: seconds that the decision may take.
        cut: the stages that were cut short, in their order.
        stages: seconds of each stage that has ended, in their order.
        costs: by index of a job among the demands, CPU seconds that only its own fields cost.
        paces: by kind of work that cannot be cut short, seconds for one unit of it.
    """

    def __init__(
        self,
        deadline_s: float = inf,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        """Start the clock.

        Args:
            deadline_s: seconds that the decision may take.
            now_s: the time now, in seconds; only differences count. By default, `NOW_S`.
        """
        now_s = now_s or NOW_S
        self.deadline_s = deadline_s
        self.cut: list[CutStage] = []
        self.stages: dict[str, float] = {}
        self.costs: dict[int, float] = {}
        self.paces: dict[str, float] = {}
        self._stage, self._stage_since_s = "", 0.0
        self._is_over, self._kept_s = False, 0.0
        self._now_s, self._started_s, self._allowed_s = now_s, now_s(), deadline_s

    def again(self, deadline_s: float) -> Clock:
        """Return a clock that begins now, by the same time, with another deadline."""
        return Clock(deadline_s, self._now_s)

    @property
    def spent_s(self) -> float:
        """Seconds since the decision began."""
        return self._now_s() - self._started_s

    @property
    def is_over(self) -> bool:
        """True once the time that is allowed now has passed."""
        self._is_over = self._is_over or self.spent_s > self._allowed_s
        return self._is_over

    @property
    def has_run_out(self) -> bool:
        """True if no more is left than the shortest time that a program gets."""
        return self.is_over or self._allowed_s - self.spent_s <= LEAST_S

    def keep(self, seconds: float) -> None:
        """Reserve the last seconds before the deadline for stages that cannot be cut short; the most counts."""
        self._kept_s = max(self._kept_s, seconds)

    def allow(self, part: float) -> None:
        """Allow the stages that follow no more than this part of the deadline, counted from the beginning.

        The time that is kept for the end is no part of the deadline here.
        """
        self._allowed_s = part * max(0.0, self.deadline_s - self._kept_s)
        self._is_over = False

    def left_s(self, most_s: float) -> float:
        """How many seconds one program may take: those that are left, but at most `most_s`."""
        return max(LEAST_S, min(most_s, self._allowed_s - self.spent_s))

    def begin(self, stage: str) -> None:
        """End the stage that runs, and begin another one; an empty name begins none."""
        now_s = self.spent_s
        if self._stage:
            self.stages[self._stage] = self.stages.get(self._stage, 0.0) + now_s - self._stage_since_s
        self._stage, self._stage_since_s = stage, now_s

    @contextmanager
    def charge(self, jobs: Sequence[int]) -> Iterator[None]:
        """Charge the CPU time of a `with` block to some jobs in equal parts; the deadline does not ask for it."""
        since_s = time.thread_time()
        yield
        spent_s = time.thread_time() - since_s
        for job in jobs:
            self.costs[job] = self.costs.get(job, 0.0) + spent_s / len(jobs)

    @contextmanager
    def at_a_stretch(self, work: str, units: int) -> Iterator[None]:
        """Do work in a `with` block that nothing can cut short, or raise at once if it would end too late.

        How long it takes is judged by how long a unit of the same work took last time. Without a last time, or if it
        is brief, it is begun in any case.

        Args:
            work: what is done.
            units: how much of it, in any unit.

        Raises:
            OutOfTimeError: it would end after the time that is allowed.
        """
        expected_s = self.paces.get(work, 0.0) * units
        if expected_s > BRIEF * self.deadline_s and self.spent_s + expected_s > self._allowed_s:
            raise OutOfTimeError(
                f"no plan within {self.deadline_s:g} s ({work} would take {expected_s:.1f} s more); the last plan"
                " stays in force",
                PlanFailure.LATE_SOLVER,
            )
        since_s = self.spent_s
        yield
        self.paces[work] = (self.spent_s - since_s) / max(1, units)

    def cut_short(self, stage: CutStage) -> None:
        """Note that a stage was cut short: the plan is made of what it had done."""
        if stage not in self.cut:
            self.cut.append(stage)

    def check(self, doing: str) -> None:
        """Raise once the time is over.

        Raises:
            OutOfTimeError: the time that is allowed has passed; the message names what was being done.
        """
        if self.is_over:
            raise OutOfTimeError(
                f"no plan within {self.deadline_s:g} s (too late after {doing}); the last plan stays in force",
                PlanFailure.LATE_SOLVER,
            )
