"""A job whose trainers are forks of one process that has imported PyTorch once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from example.fit_flights.local import LocalJob, Plan

FORKS = multiprocessing.get_context("forkserver")


class ForkedTrainers(LocalJob):
    """The processes of a job's trainers by name, and how each is expected to end.

    Args:
        folder: of the job; the log of trainer N is `N.log` in it.
        plan: the job.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        super().__init__(folder, plan)
        self.forked: dict[str, BaseProcess] = {}
        self.expected: dict[str, int] = {}  # name -> its exit code; 0 for those that are not named

    def __exit__(self, *error: object) -> None:
        for process in self.forked.values():
            process.kill()
            process.join()
        super().__exit__(None, None, None)

    def new_name(self) -> str:
        """A name that no trainer has had."""
        self._started += 1
        return f"trainer-{self._started - 1:03}"

    def fork(self, name: str, train: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401
        """Start a trainer."""
        self.forked[name] = process = FORKS.Process(target=train, args=arguments)
        process.start()

    def live(self) -> list[str]:
        """The names of the trainers whose processes have not ended.

        Raises:
            RuntimeError: a trainer ended in another way than expected.
        """
        for name, process in list(self.forked.items()):
            if process.exitcode is not None:
                del self.forked[name]
                if process.exitcode not in {0, self.expected.get(name, 0)}:
                    log = (self.folder / f"{name}.log").read_text()
                    raise RuntimeError(f"{name} exited with code {process.exitcode}; its log: {log}")
        return sorted(self.forked)
