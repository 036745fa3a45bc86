"""The exceptions that edl raises on purpose. Any other exception that reaches a user is a bug in edl.

    EdlError
    |-- TemporaryError(retry_after_s)   something is not ready; the same call may succeed later
    |   `-- NotSyncedError              a cache does not show a known change yet
    |-- PermanentError                  the other side refused, and would refuse the same call again
    |-- ConflictError                   the object changed in the meantime: read it again, decide again
    |-- PlanError                       a plan breaks a rule, or no plan was found
    `-- ConfigError                     a flag, a file or an object that a person supplied cannot be used
        `-- InvalidJobError             a TrainingJob breaks the rules of its resource

Each message names the object, the value, the rule and the remedy, because users see it unchanged.
"""

from __future__ import annotations

from enum import StrEnum


class EdlError(Exception):
    """Base of every error that edl raises on purpose."""


class TemporaryError(EdlError):
    """Something is not ready; the same call may succeed later.

    Attributes:
        retry_after_s: seconds to wait before the next try; None if unknown.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotSyncedError(TemporaryError):
    """A cache is not filled yet, or does not show edl's own last write yet."""


class PermanentError(EdlError):
    """The other side rejected the call, and would reject the same call again."""


class ConflictError(EdlError):
    """The object was changed or deleted in the meantime: read it again, then decide again."""


class PlanFailure(StrEnum):
    """Why a decision failed: the value of the metric label, of the log field and of the decision record."""

    INFEASIBLE = "infeasible"  # a program has no solution, though every admitted set must have one
    UNBOUNDED = "unbounded"
    NOT_A_NUMBER = "not_a_number"  # the solver returned NaN or infinity, or reported numerical trouble
    LATE_SOLVER = "late_solver"  # the decision passed its deadline and ended by itself
    LATE_THREAD = "late_thread"  # the thread did not answer in time; edl abandoned it, and it may still run
    BUSY = "busy"  # an abandoned thread has not ended yet
    REFUSED = "refused"  # the finished plan broke a rule
    BUG = "bug"  # any other exception


class PlanError(EdlError):
    """A plan breaks a rule, or no plan was found.

    Attributes:
        failure: why.
    """

    def __init__(self, message: str, failure: PlanFailure = PlanFailure.BUG) -> None:
        super().__init__(message)
        self.failure = failure


class ConfigError(EdlError):
    """A flag, a file or an object that a person supplied cannot be used."""


class InvalidJobError(ConfigError):
    """A TrainingJob breaks the rules of its resource.

    Attributes:
        problems: one sentence for each broken rule; it names the field, the value, the rule and the remedy.
    """

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems or (message,)
