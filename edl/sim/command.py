"""`edl simulate`: checks the policies and the folder for plots, and runs a scenario with a progress bar."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from edl.errors import EdlError
from edl.sim.campaign import run_all
from edl.sim.plots import require_matplotlib
from edl.sim.policies import check_policy
from edl.sim.scenario import Scenario
from edl.sim.simulation import Run


def run_campaign(
    scenario: Scenario, policies: Sequence[str], seeds: int, plots: Path | None
) -> dict[str, tuple[Run, ...]]:
    """Run a scenario under each policy; the progress bar is drawn on a terminal only, on stderr.

    Raises:
        ConfigError: a policy does not exist, or plots are wanted and cannot be drawn.
    """
    policies = tuple(dict.fromkeys(policies))
    for policy in policies:
        check_policy(policy)
    if plots is not None:
        require_matplotlib(plots)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(scenario.name, total=len(policies) * seeds)
        return run_all(scenario, policies, seeds, lambda: progress.advance(task))


@contextmanager
def stdout_for_the_report() -> Iterator[None]:
    """Within the block, send to stderr what libraries and other processes write to stdout.

    HiGHS, for one, prints there from C, whatever `sys.stdout` is.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # one of them is closed
        yield
        return
    try:
        yield
    finally:
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)  # what C has buffered
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def written_to_stdout() -> Iterator[None]:
    """Flush stdout at the end of the block, so that a failed write is reported as an error.

    Raises:
        EdlError: it cannot be written; a closed pipe is no error of ours and stays a BrokenPipeError.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        with suppress(OSError, ValueError):  # what is left would fail again when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise EdlError(
            f"stdout: the report cannot be written: {error.strerror or error}; free space there, or write elsewhere"
        ) from error
