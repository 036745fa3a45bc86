"""Plans, reports and comparisons for the page: in one thread, and only a few may wait.

A plan can take seconds of processor time. So a page that asks too often has to wait, and nobody can keep a
controller busy by asking.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from edl.controller.planning import compare_snapshots, plan_snapshot, report_snapshot
from edl.dashboard.pasted import with_pasted
from edl.dashboard.view import certificate_body, short
from edl.errors import TemporaryError
from edl.explain.job_text import find_job, job_report_json
from edl.explain.whatif import changes_dict
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import Limits, ScalePlan

T = TypeVar("T")

MAX_WAITING = 4
MAX_SHOWN_CHANGES = 200
_RETRY_S = 3.0


class BusyError(TemporaryError):
    """Enough calculations wait already."""


class Calculator:
    """Decides as the controller does, with the production planner.

    Args:
        policy: its name; empty for the default.
        limits: what the operator allows now.
        waiting: the most calculations that run or wait at a time.
    """

    def __init__(self, policy: str, limits: Callable[[], Limits], *, waiting: int = MAX_WAITING) -> None:
        self._policy, self._limits, self._most = policy, limits, waiting
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="edl-page")
        self._pending: list[Future[Any]] = []

    def close(self) -> None:
        """Start no further calculation; one that runs ends by itself at its deadline."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def plan(self, snapshot: ClusterSnapshot) -> ScalePlan:
        """The plan for a snapshot.

        Raises:
            PlanError: there is none.
            BusyError: too many calculations wait.
        """
        return await self._run(lambda: plan_snapshot(snapshot, self._policy, self._limits()))

    async def report(self, snapshot: ClusterSnapshot, namespace: str, name: str) -> dict[str, Any]:
        """The report of `edl explain` on one job, as `-o json` prints it.

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
        """What applying the pasted jobs would change, and why each changed job would have its count.

        Raises:
            ConfigError: the text cannot be used.
            PlanError, BusyError: as for `plan`.
        """
        return await self._run(lambda: self._compare(snapshot, text))

    def _compare(self, snapshot: ClusterSnapshot, text: str) -> dict[str, Any]:
        pasted = with_pasted(snapshot, text)
        limits = self._limits()
        plan = plan_snapshot(pasted.snapshot, self._policy, limits)
        changes = compare_snapshots(snapshot, pasted.snapshot, plan, limits, "the cluster")
        body = changes_dict(changes)
        messages = {str(c.job): short(c.after.account) for c in changes.jobs if c.after is not None}
        shown = [{**one, "message": messages.get(f"{one['namespace']}/{one['name']}", "")} for one in body["jobs"]]
        return {
            **body,
            "jobs": shown[:MAX_SHOWN_CHANGES],
            "hidden": max(0, len(shown) - MAX_SHOWN_CHANGES),
            "warnings": [short(warning) for warning in pasted.warnings],
            "certificates": {"before": certificate_body(changes.before), "after": certificate_body(changes.after)},
        }

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
