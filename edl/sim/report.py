"""The results of a campaign as a table, as JSON or as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from edl.sim.campaign import Interval, summarise
from edl.sim.scenario import Scenario
from edl.sim.simulation import Run

Runs = Mapping[str, Sequence[Run]]


def print_report(scenario: Scenario, runs: Runs, console: Console) -> None:
    """Print a table with a row for each figure and a column for each policy."""
    found = {policy: summarise(those) for policy, those in runs.items()}
    table = Table(title=_title(scenario, runs), title_justify="left", box=None, pad_edge=False)
    table.add_column("figure")
    for policy in found:
        table.add_column(policy, justify="right")
    for name in dict.fromkeys(name for figures in found.values() for name in figures):
        table.add_row(name, *(shown(figures.get(name)) for figures in found.values()))
    console.print(table)


def report_json(scenario: Scenario, runs: Runs) -> str:
    """Return JSON with the figures and intervals of each policy, and the figures of each run."""
    policies = {
        policy: {
            "figures": {
                name: {"mean": one.mean, "half_width": None if math.isinf(one.half) else one.half, "seeds": one.seeds}
                for name, one in summarise(those).items()
            },
            "runs": [{"seed": run.seed, **run.figures} for run in those],
            "problems": sorted({problem for run in those for problem in run.problems}),
        }
        for policy, those in runs.items()
    }
    return json.dumps({"scenario": scenario.name, "duration_s": scenario.duration_s, "policies": policies}, indent=1)


def report_csv(scenario: Scenario, runs: Runs) -> str:
    """Return CSV with one line for each policy and figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["scenario", "policy", "figure", "mean", "half_width_95", "seeds"])
    for policy, those in runs.items():
        for name, one in summarise(those).items():
            half = "" if math.isinf(one.half) else one.half
            writer.writerow([scenario.name, policy, name, one.mean, half, one.seeds])
    return text.getvalue()


def shown(one: Interval | None) -> str:
    """Format a figure with its interval: `83.7 ± 0.4`."""
    if one is None:
        return ""
    return number(one.mean) if math.isinf(one.half) or one.half == 0 else f"{number(one.mean)} ± {number(one.half)}"


def number(value: float) -> str:
    """Format a number with four digits, and commas if it is large."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _title(scenario: Scenario, runs: Runs) -> str:
    seeds = max((len(those) for those in runs.values()), default=0)
    cpu_s = sum(run.cpu_s for those in runs.values() for run in those)
    decision_s = sum(run.decision_s for those in runs.values() for run in those)
    hours = sum(len(those) for those in runs.values()) * scenario.duration_s / 3600
    counted = "1 seed" if seeds == 1 else f"{seeds} seeds, 95 % intervals"
    return (
        f"{scenario.name}: {scenario.duration_s:g} s, {counted};"
        f" {hours / max(cpu_s, 1e-9):.3g} simulated hours per CPU second, {100 * decision_s / max(cpu_s, 1e-9):.0f} %"
        " of the time in decisions"
    )
