"""The policy without `--policy`: `utility` once the speed of an admitted job is known, else `maxmin`."""

from __future__ import annotations

from edl.model.jobs import Job
from edl.planner.objective import Objective
from edl.planner.policies.base import Policy
from edl.planner.policies.maxmin import MaxMin
from edl.planner.policies.utility import Utility
from edl.planner.trial_packing import TrialPacking


class Default(Policy):
    """Chooses between the two for each decision; the plan names the one that was used."""

    name = ""

    def adapt(self, job: Job) -> Job:
        """See `Utility.adapt`: a job whose speeds are known is only decided about by `utility`."""
        return Utility().adapt(job)

    def chosen(self, packing: TrialPacking) -> Policy:
        """`utility` if the speed of an admitted job was declared or measured."""
        knows_speed = any(packing.problem.demands[j].job.throughput for j in packing.members)
        return Utility() if knows_speed else MaxMin()

    def objective(self, packing: TrialPacking) -> Objective:
        """That of the chosen policy."""
        return self.chosen(packing).objective(packing)
