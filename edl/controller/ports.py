"""What the controller needs from outside: a cluster, the masters of its jobs, a lease, a place to record decisions.

`edl.kube` and `edl.observability` implement these for a live cluster; the tests implement them for a small world in
virtual time.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from edl.lifecycle.data_progress import MasterReport, RosterEntry
from edl.model.actions import Action, Outcome
from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey
from edl.model.plan import Limits, ScalePlan


class Cluster(Protocol):
    """The cluster as the controller sees it: a consistent snapshot in, single effects out."""

    async def observe(self) -> ClusterSnapshot:
        """Take a snapshot.

        Raises:
            NotSyncedError: the caches are not filled, or do not show our own last writes yet.
        """

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Wait until something has changed that a decision depends on, since the last snapshot; False if not."""

    async def apply(self, action: Action) -> Outcome:
        """Carry out one action, conditionally on the object still being the one that was observed.

        Never raises for what the API server answers: a refusal is an Outcome with its reason.
        """


class LeaderLease(Protocol):
    """Who may write."""

    def is_held(self) -> bool:
        """True while writing is safe, judged by a monotonic clock."""


class RoundResult(StrEnum):
    """How one round of the controller ended."""

    ACTED = "acted"  # every write went through, or none was needed
    FAILED = "failed"  # some write did not
    SKIPPED = "skipped"  # nothing could be observed
    FOLLOWED = "followed"  # another replica leads
    SHOWN = "shown"  # a dry run


class Recorder(Protocol):
    """Where decisions are told: metrics, log, decision records."""

    def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """A snapshot was taken."""

    def skipped(self, reason: str) -> None:
        """A round was skipped, and why."""

    def planned(self, snapshot: ClusterSnapshot, limits: Limits, plan: ScalePlan) -> None:
        """A plan has passed its checks: a new one, or with `plan.fallback` what stands of the last one."""

    def undecided(self, snapshot: ClusterSnapshot, error: Exception) -> None:
        """No plan could be made, or it broke a rule and was dropped (a RefusedPlanError, and a bug of ours)."""

    def failed(self, what: str, error: BaseException) -> None:
        """A round or a job could not be handled; the rest went on without it."""

    def held(self, what: str) -> None:
        """Something that was planned is put off, and why."""

    def acted(self, outcome: Outcome) -> None:
        """An action was carried out, or was refused by the API server."""

    def ended(self, result: RoundResult, seconds: float) -> None:
        """A round is over."""


class MasterAddress(NamedTuple):
    """Where a job's master is.

    Attributes:
        job, job_uid: whose; a token is made of them.
        pod_uid: the pod that has the address now.
        ip: of the pod.
    """

    job: JobKey
    job_uid: str
    pod_uid: str
    ip: str


class MasterClient(Protocol):
    """Calls to the masters of jobs. Each ends in a few seconds; none is repeated here."""

    async def report(self, master: MasterAddress) -> MasterReport:
        """What the master holds.

        Raises:
            TemporaryError: it does not answer, or not now.
            PermanentError: it refuses us, or what answers there is no master.
        """

    async def publish(self, master: MasterAddress, generation: int, roster: Sequence[RosterEntry]) -> None:
        """Say who may hold leases; whoever is not on it loses its own at once.

        Raises:
            ConflictError: a newer roster is in force.
            TemporaryError, PermanentError: as for `report`.
        """

    async def restore(self, master: MasterAddress) -> int:
        """Take the accounts back to the last committed checkpoint, else to the epoch's start, and end every lease.

        Returns:
            The checkpoint's number; 0 for the start of the epoch.

        Raises:
            TemporaryError, PermanentError: as for `report`.
        """
