"""The exceptions that edl raises on purpose; anything else that escapes is a bug of ours.

    EdlError
    |-- TemporaryError(retry_after_s)   the world is not ready; trying again may succeed
    |   `-- NotSyncedError              a cache has not caught up with what we know to have happened
    |-- PermanentError                  the world said no, and would say no again
    |-- ConflictError                   somebody else changed the object first: observe again, decide again
    |-- PlanError                       a plan breaks a rule, or could not be made
    `-- ConfigError                     what a person gave us (flags, files, objects) cannot be used
        `-- InvalidJobError             a TrainingJob breaks the rules of its resource

Messages name the object, the value, the rule and the remedy, because they are shown to people as they are.
"""

from __future__ import annotations

from enum import StrEnum


class EdlError(Exception):
    """Base of every error that edl raises on purpose."""


class TemporaryError(EdlError):
    """The world is not ready; trying again may succeed.

    Attributes:
        retry_after_s: how long to wait before trying again, in seconds, where somebody knows; else None.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotSyncedError(TemporaryError):
    """A cache is not filled yet, or does not show our own last write yet."""


class PermanentError(EdlError):
    """The world refused, and asking again unchanged would be refused again."""


class ConflictError(EdlError):
    """Somebody else changed or deleted the object first: observe again, decide again."""


class PlanFailure(StrEnum):
    """How a decision can fail: the label of the metric, the word of the log and of the record."""

    INFEASIBLE = "infeasible"  # a program has no solution, though an admitted set must have one
    UNBOUNDED = "unbounded"
    NOT_A_NUMBER = "not_a_number"  # the solver's answer is NaN or infinite, or it met numerical trouble
    LATE_SOLVER = "late_solver"  # the deadline passed within the decision, which ended by itself
    LATE_THREAD = "late_thread"  # the thread did not answer; it is given up, and may still run
    BUSY = "busy"  # a thread that was given up has not ended yet
    REFUSED = "refused"  # a finished plan broke a rule
    BUG = "bug"  # anything else that was raised


class PlanError(EdlError):
    """A plan breaks a rule, or no plan could be made.

    Attributes:
        failure: how it failed.
    """

    def __init__(self, message: str, failure: PlanFailure = PlanFailure.BUG) -> None:
        super().__init__(message)
        self.failure = failure


class ConfigError(EdlError):
    """A flag, a file or an object that a person gave us cannot be used."""


class InvalidJobError(ConfigError):
    """A TrainingJob breaks the rules of its resource.

    Attributes:
        problems: one sentence for each broken rule, naming field, value, rule and remedy.
    """

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems or (message,)
