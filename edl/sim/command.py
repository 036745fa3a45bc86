"""What `edl simulate` does with a scenario: check the policies and the folder of plots, run with a progress bar."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

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
