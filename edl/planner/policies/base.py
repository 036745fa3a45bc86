"""What every policy is: a name, what it makes of each job, and the objective by which admitted jobs share.

Serving, admission, quotas, cooldowns and the guard hold for all policies; a policy cannot change them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from edl.planner.objective import Objective
from edl.planner.trial_packing import TrialPacking


class Policy(ABC):
    """A way to share a cluster.

    Attributes:
        name: what `--policy` calls it and the plan names.
        rests: a job that was resized does not grow for a while; see `waits.rest_left_s`.
    """

    name: ClassVar[str]
    rests: ClassVar[bool] = False

    def adapt(self, job: Job) -> Job:
        """Return the job as the planner should see it: the job itself unless the policy pins its count."""
        return job

    @abstractmethod
    def objective(self, packing: TrialPacking) -> Objective:
        """Return the objective for the admitted jobs.

        Args:
            packing: every admitted job at its minimum at least; not to be changed.
        """


class Comparison(ABC):
    """A policy that exists to compare with: its plans may break edl's rules, and no controller carries them out.

    Attributes:
        name: what `--policy` of `edl plan` calls it.
    """

    name: ClassVar[str]

    @abstractmethod
    def plan(self, snapshot: ClusterSnapshot, limits: Limits) -> ScalePlan:
        """Return the plan that this policy would make, with `is_comparison` set.

        Raises:
            PlanError: the certificate could not be computed in time.
        """
