"""The result of one look at a job, before it becomes a status, conditions and events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edl.model.names import Role


class Stage(StrEnum):
    """What the controller does with a job in this iteration."""

    WAITING = "Waiting"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Step:
    """The decision about one job in one iteration of the loop.

    Attributes:
        target: the desired number of trainers.
        reason: a value of `edl.model.status.Reason`, or why the job failed.
        message: the short form, one line, for the status and for events.
        failures: pod failures so far, including those that are found now.
        details: the full account, for conditions; empty if it would only repeat the message.
        shrink_reason: why the plan deletes trainers now; empty if it deletes none.
        restarting: why edl deletes every pod to restart the job; empty if it does not.
        rerun: the role whose pods all completed and run again; None if there is none.
        moving: names of the pservers that edl deletes to start them on other nodes.
        finishing: some trainers have completed, so the job no longer grows.
        trainer_lost: the last trainer was lost before it completed, and is replaced.
        never_ran: no trainer that the plan deletes has a node yet.
        unplanned: there is no plan for the job now, so it keeps its trainers.
        slowed: trainers that lend CPU which serving uses.
        degraded: (reason, message) of a problem that edl did not decide on; None if there is none.
    """

    stage: Stage
    target: int
    reason: str
    message: str
    failures: int = 0
    details: str = ""
    shrink_reason: str = ""
    restarting: str = ""
    rerun: Role | None = None
    moving: tuple[str, ...] = ()
    finishing: bool = False
    trainer_lost: bool = False
    never_ran: bool = False
    unplanned: bool = False
    slowed: int = 0
    degraded: tuple[str, str] | None = None

    @property
    def account(self) -> str:
        """The full account: `details`, or the message if there are none."""
        return self.details or self.message
