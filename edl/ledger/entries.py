"""The entries of a ledger: leases, sessions, checkpoints and closed epochs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from edl.ledger.events import Replied
from edl.ledger.intervals import IntervalSet

NOT_SUSPECT = -1
"""The number of failures of a lease whose records have never failed."""
_REPORTS_KEPT = 64  # last reports of a session that are recognised as duplicates


@dataclass(slots=True)
class Lease:
    """A range that one session may train on.

    Attributes:
        fence: the serial number of the event that granted it.
        session: the number of its holder.
        start, end: the half-open range of positions.
        errors: how often exactly this range has failed; -1 if nothing in it is suspect.
        truncate_at: where the holder was asked to stop; None if it was not, or once it has acknowledged that.
        cursor: the positions before it are consumed. Heartbeats report it; it is not durable.
        last_progress_s: when the cursor last moved, or the lease was granted; not durable.
    """

    fence: int
    session: int
    start: int
    end: int
    errors: int = NOT_SUSPECT
    truncate_at: int | None = None
    cursor: int = 0
    last_progress_s: float = 0.0


@dataclass(slots=True)
class TrainerSession:
    """One process of a trainer.

    The attributes from `seq` on are not durable: a restart of the master loses them.

    Attributes:
        number: the serial number of the event that opened it.
        journaled_reply: the last reply that is in the journal.
        done: how many positions it has reported.
        is_replaced: a newer process of the same pod has made a request.
        recent_reports: (fence, epoch, start, end) of its last reports.
        leases: fence -> lease, in the order in which they were granted.
        seq: the number of its last request; -1 before the first.
        last_reply: the reply to that request.
        renewed_s: when it made its last request, in monotonic seconds.
        seen_epoch: the epoch that it knows to be open.
        revoked: fences that the next reply has to revoke.
        rate: measured positions per second; None if unknown.
        measured_positions, measured_since_s: the current window of that measurement.
    """

    number: int
    pod_uid: str
    incarnation: int | str
    name: str
    journaled_reply: Replied | None = None
    done: int = 0
    is_replaced: bool = False
    recent_reports: deque[tuple[int, int, int, int]] = field(default_factory=lambda: deque(maxlen=_REPORTS_KEPT))
    leases: dict[int, Lease] = field(default_factory=dict)
    seq: int = -1
    last_reply: Replied | None = None
    renewed_s: float = 0.0
    seen_epoch: int = 0
    revoked: list[int] = field(default_factory=list)
    rate: float | None = None
    measured_positions: int = 0
    measured_since_s: float = 0.0

    @property
    def holds_suspect(self) -> bool:
        """True if a lease of the session holds a range that has failed before."""
        return any(lease.errors > NOT_SUSPECT for lease in self.leases.values())


@dataclass(slots=True)
class Checkpoint:
    """The records on which a saved model was trained.

    Attributes:
        session: the number of the session that saves it.
        done: the positions of its epoch that were consumed when the checkpoint began.
        quarantined: the positions that were quarantined then.
        suspects: start -> (end, errors) of the suspect ranges then.
        committed: the model is saved.
    """

    number: int
    session: int
    step: int
    epoch: int
    done: IntervalSet
    quarantined: IntervalSet
    suspects: dict[int, tuple[int, int]]
    committed: bool = False


@dataclass(slots=True)
class ClosedEpoch:
    """The result of an epoch that is over."""

    epoch: int
    total: int
    redispatched: int
    quarantined: list[tuple[int, int]]
    left_out: int = field(init=False)
    """Positions in the quarantined ranges."""

    def __post_init__(self) -> None:
        self.left_out = sum(end - start for start, end in self.quarantined)
