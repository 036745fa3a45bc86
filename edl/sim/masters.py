"""The data masters of simulated jobs, as far as the controller needs them to learn what lending CPU costs a job.

The production monitor calls them. Of what it measures, the price of lending alone reaches the jobs: speeds and the
cost of a resize are what the scenario says that policies know.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from edl.clock import Clock
from edl.controller.master_monitor.monitor import MasterMonitor
from edl.controller.ports import LeaderLease, MasterAddress
from edl.errors import TemporaryError
from edl.lifecycle.data_progress import MasterReport, MasterState, MasterView, RosterEntry
from edl.model.jobs import Job
from edl.model.progress import Measured
from edl.sim.training import Training

POSITIONS = 1000
"""Positions of a sample: masters count whole ones, and slow jobs do less than a sample a second."""


class SimulatedMasters(MasterMonitor):
    """Learns the price of lending of each job that runs a master.

    Args:
        training: the work of the jobs.
        clock: virtual time.
        lease: as of the controller.
        rng: the moments of the calls.
    """

    def __init__(self, training: Training, clock: Clock, lease: LeaderLease, rng: Random) -> None:
        super().__init__(_Reports(training), clock, lease, lambda *_: None, jitter=rng)

    def master_view(self, job: Job) -> MasterView | None:
        """Return what lending CPU costs the job, once it is measured; None before."""
        view = super().master_view(job)
        price = view.measured.lending_price if view is not None and view.measured is not None else None
        return MasterView(measured=Measured(lending_price=price)) if price is not None else None


class _Reports:
    """A `MasterClient` whose masters answer at once, from the work that their simulated job has done."""

    def __init__(self, training: Training) -> None:
        self._training = training

    async def report(self, master: MasterAddress) -> MasterReport:
        """Report the work that the job has done; see `MasterClient.report`."""
        self._training.advance(master.job)
        run = self._training.runs[master.job]
        return MasterReport(
            MasterState.RUNNING,
            consumed=int(run.done * POSITIONS),
            waiting=int(not run.is_over),
            working=self._training.working(master.job),
        )

    async def publish(self, master: MasterAddress, generation: int, roster: Sequence[RosterEntry]) -> None:
        """Accept any roster: trainers work without leases here."""

    async def restore(self, master: MasterAddress) -> int:
        """Raise an error: simulated jobs have no ledger.

        Raises:
            TemporaryError: always.
        """
        raise TemporaryError(f"{master.job} has no checkpoint")
