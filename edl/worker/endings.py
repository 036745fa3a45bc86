"""How the loop of a trainer in step ends: after its last step, by its script, or too early."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from edl.errors import PermanentError
from edl.worker.steps import StepLoop, left_early

_T = TypeVar("_T")
_COMPLETE: set[object] = set()  # the jobs that this process has trained to their ends


class Endings:
    """The loop of one connection to a job.

    Args:
        key: of the job and of the pod of this trainer.
    """

    def __init__(self, key: object) -> None:
        self._key = key
        self._open: list[weakref.ref[Generator[Any, None, None]]] = []

    def opened(self, loop: Generator[_T, None, None]) -> Generator[_T, None, None]:
        """The same loop over batches, which ends with the connection at the latest."""
        self._open.append(weakref.ref(loop))
        return loop

    def check_begin(self, before: StepLoop | None, epochs: int, status: Callable[[], dict[str, Any]]) -> None:
        """Refuse a second training of a job that this process has trained to its end.

        Args:
            before: the loop of this connection so far.
            epochs: how many the job has.
            status: asks the master for its status.

        Raises:
            PermanentError: there are no records left.
        """
        is_same = before is not None and before.is_complete
        if is_same or (self._key in _COMPLETE and status()["state"] == "finished"):
            raise PermanentError(
                f"steps: this process has trained the {epochs} epochs of the job, and begins another training"
                " (another Elastic, Accelerator or Trainer), for which the job has no records left. Train all phases"
                " in one loop, whose hooks of on_step_end decide by elastic.step; several models one after the other,"
                " such as folds, need a job for each"
            )

    def close(self, loop: StepLoop | None, error: BaseException | None) -> BaseException | None:
        """The block of the connection ends: a loop that was stopped makes its last step, if it has not yet.

        Returns:
            The error of that step, to raise once the connection is closed.
        """
        if loop is not None and loop.must_stop and _is_success(error):
            for one in filter(None, (known() for known in self._open)):
                if inspect.getgeneratorstate(one) == inspect.GEN_RUNNING:
                    continue  # the block ends within the loop, which cannot be closed from there
                try:
                    one.close()  # a variable of the script kept it when the script left it by `break`
                except BaseException as late:
                    return late
        return None

    def check_end(self, loop: StepLoop | None, error: BaseException | None, *, is_leaving: bool) -> None:
        """Refuse that a script ends as if all was well, and its training is not complete.

        Raises:
            PermanentError: it was left.
        """
        if loop is None or not _is_success(error):
            return
        if loop.is_complete:
            _COMPLETE.add(self._key)
        elif loop.is_under_way and not is_leaving:
            raise left_early(loop)


def _is_success(error: BaseException | None) -> bool:
    return error is None or (isinstance(error, SystemExit) and not error.code)
