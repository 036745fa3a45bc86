"""Plans, reports and comparisons for the page: in one thread, and only a few may wait.

A plan can take seconds of processor time. So a page that asks too often has to wait, and nobody can keep a
controller busy by asking. What depends on a text of others is computed by a process of its own, see `what_if`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from edl.controller.planning import plan_snapshot, report_snapshot
from edl.dashboard.what_if import BoundedProcess, Bounds, Question
from edl.errors import TemporaryError
from edl.explain.job_text import find_job, job_report_json
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScalePlan

T = TypeVar("T")

MAX_WAITING = 4
_RETRY_S = 3.0


class BusyError(TemporaryError):
    """A calculation is rejected because enough others wait already."""


class Calculator:
    """Decides as the controller does, with the production planner.

    Args:
        policy: its name; empty for the default.
        limits: what the operator allows now.
        waiting: the most calculations that run or wait at a time.
        bounds: what one comparison may use.
    """

    def __init__(
        self,
        policy: str,
        limits: Callable[[], Limits],
        *,
        waiting: int = MAX_WAITING,
        bounds: Bounds | None = None,
    ) -> None:
        self._policy, self._limits, self._most = policy, limits, waiting
        self._bounds = bounds or Bounds()
        self._process: BoundedProcess | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="edl-page")
        self._pending: list[Future[Any]] = []

    def close(self) -> None:
        """Start no further calculation; one that runs ends by itself at its deadline, a process at once."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if (process := self._process) is not None:
            process.end()

    async def plan(self, snapshot: ClusterSnapshot) -> ScalePlan:
        """Make the plan for a snapshot.

        Raises:
            PlanError: there is none.
            BusyError: too many calculations wait.
        """
        return await self._run(lambda: plan_snapshot(snapshot, self._policy, self._limits()))

    async def report(self, snapshot: ClusterSnapshot, namespace: str, name: str) -> dict[str, Any]:
        """Make the report of `edl explain` on one job, as `-o json` prints it.

        Raises:
            ConfigError: the job does not exist.
            PlanError, BusyError: as for `plan`.
        """

        def work() -> dict[str, Any]:
            key = find_job(snapshot, name, namespace)
            report = report_snapshot(snapshot, key, self._policy, self._limits())
            found: dict[str, Any] = json.loads(job_report_json(report, snapshot))
            return found

        return await self._run(work)

    async def what_if(self, snapshot: ClusterSnapshot, text: str) -> dict[str, Any]:
        """Compute what applying the pasted jobs would change, with the reason for each changed trainer count.

        Raises:
            ConfigError: the text cannot be used.
            PlanError, BusyError: as for `plan`.
        """
        question = Question(snapshot, text, self._policy, self._limits())
        return await self._run(lambda: self._compare(question))

    def _compare(self, question: Question) -> dict[str, Any]:
        self._process = BoundedProcess(self._bounds)
        try:
            return self._process.run(question)
        finally:
            self._process = None

    async def _run(self, work: Callable[[], T]) -> T:
        self._pending = [one for one in self._pending if not one.done()]
        if len(self._pending) >= self._most:
            raise BusyError(
                f"{self._most} calculations for this page are running or waiting, which is the limit; try again"
                " in a few seconds",
                retry_after_s=_RETRY_S,
            )
        future = self._thread.submit(work)
        self._pending.append(future)
        return await asyncio.wrap_future(future)
