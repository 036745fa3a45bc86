"""The interfaces that the controller needs: a cluster, a lease, the masters of the jobs, and a recorder.

`edl.kube` and `edl.observability` implement these interfaces for a live cluster; the tests implement them for a small
cluster in virtual time.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from edl.lifecycle.data_progress import MasterReport, RosterEntry
from edl.model.actions import Action, Outcome
from edl.model.cluster import AvoidedNode, ClusterSnapshot
from edl.model.headroom import Headroom
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision, ScalePlan


class Cluster(Protocol):
    """The cluster as the controller sees it: it reads consistent snapshots and writes single actions."""

    async def observe(self) -> ClusterSnapshot:
        """Take a snapshot.

        A job that has not changed since the last one is the same Python object. The snapshot shows all that the API
        server has answered to this controller's writes.

        Raises:
            NotSyncedError: the caches are not complete.
        """

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Wait until something changes that a decision depends on; False if nothing did since the last snapshot."""

    def urgent_changes(self) -> frozenset[str]:
        """Return the groups of those changes since the last call that must not wait for the writes under way.

        A job came, was edited or was deleted; a node came, went or changed (its group is empty); a serving pod
        waits, or waits no more; a pod of a job ended by itself. The group is the namespace. Workloads of Kueue that
        came to wait, or wait no more, are a group of their own in each.
        """

    async def apply(self, action: Action) -> Outcome:
        """Carry out one action on condition that the object has not changed since the snapshot.

        A refusal of the API server is an Outcome with a reason, not an exception.
        """


class QueueReporter(Protocol):
    """Shows the owners of Queue objects what their queues use and may use."""

    async def report(self, view: ClusterSnapshot, plan: ScalePlan) -> None:
        """Write the status of each queue that has changed; an error is logged, and the next report tries again."""


class NodeReporter(Protocol):
    """Reports the nodes that new trainers avoid on the nodes themselves."""

    async def report(self, avoided: Sequence[AvoidedNode]) -> None:
        """Report each node that is avoided anew; an error is logged."""


class LeaderLease(Protocol):
    """The right to write, which one replica holds at a time."""

    def is_held(self) -> bool:
        """True while this replica may write, judged by a monotonic clock."""


class RoundResult(StrEnum):
    """How a plan ended, or `edl controller --once`."""

    ACTED = "acted"  # a plan was published; with --once, every write succeeded, too
    FAILED = "failed"  # there is no plan; with --once, or some write failed
    SKIPPED = "skipped"  # the cluster could not be observed
    FOLLOWED = "followed"  # another replica leads
    SHOWN = "shown"  # a dry run


class HeadroomAdvisor(Protocol):
    """Decides how much capacity a plan reserves for serving pods that do not exist yet."""

    def advise(self, snapshot: ClusterSnapshot) -> tuple[Headroom, ...]:
        """Return the capacity that the next plan should reserve; called once for each plan, in the order of time."""

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:
        """Note that a plan was made for a snapshot with this advice."""


class Recorder(Protocol):
    """Records what the controller does: in metrics, in the log and in decision records."""

    async def observed(self, snapshot: ClusterSnapshot, *, leader: bool) -> None:
        """Count a new snapshot; other tasks may run in between, because a large one takes long."""

    def skipped(self, reason: str) -> None:
        """Count a plan or an iteration that was skipped for a reason."""

    async def planned(self, snapshot: ClusterSnapshot, limits: Limits, plan: ScalePlan) -> None:
        """Record a plan that has passed its checks: a new one, or a fallback plan (`plan.fallback` is set)."""

    def evicted_early(self, snapshot: ClusterSnapshot, limits: Limits, decisions: Sequence[ScaleDecision]) -> None:
        """Record that trainers of these jobs are evicted for pending serving pods ahead of a plan."""

    def not_planned(self, snapshot: ClusterSnapshot, error: Exception) -> None:
        """Record that no plan could be made, or that one broke a rule (RefusedPlanError: a bug in edl)."""

    def failed(self, what: str, error: BaseException) -> None:
        """Record a bug in edl that has stopped a plan, a job or a write; everything else continues."""

    def postponed(self, what: str) -> None:
        """Record that a planned action waits for a later plan; the text says which one and why."""

    def acted(self, outcome: Outcome) -> None:
        """Record that an action was carried out, or that the API server rejected it."""

    def ended(self, result: RoundResult, seconds: float) -> None:
        """Record that a plan was published, or could not be made."""


class MasterAddress(NamedTuple):
    """The address of the master of a job.

    Attributes:
        job, job_uid: the job; the token of a call is derived from them.
        pod_uid: the pod that has the address now.
        ip: the IP address of that pod.
        pods: how many pods the job has: a master cannot truthfully say more than about these.
    """

    job: JobKey
    job_uid: str
    pod_uid: str
    ip: str
    pods: int = 0


class MasterClient(Protocol):
    """Calls to the masters of jobs. Each call ends within a few seconds and is not repeated."""

    async def report(self, master: MasterAddress) -> MasterReport:
        """Read the report of a master.

        Raises:
            TemporaryError: the master does not answer, or asks to try later.
            PermanentError: the master rejects the call, or the answer is not that of a master.
        """

    async def publish(self, master: MasterAddress, generation: int, roster: Sequence[RosterEntry]) -> None:
        """Publish which trainers may hold leases; every other trainer loses its leases at once.

        Raises:
            ConflictError: the master already has a newer roster.
            TemporaryError, PermanentError: as for `report`.
        """

    async def restore(self, master: MasterAddress) -> int:
        """Go back to the last committed checkpoint, else to the start of the epoch; every lease ends.

        Returns:
            The number of the checkpoint; 0 for the start of the epoch.

        Raises:
            TemporaryError, PermanentError: as for `report`.
        """
