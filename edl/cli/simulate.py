"""`edl simulate`."""

from __future__ import annotations

import typer

from edl.cli.exit_codes import FAILED
from edl.cli.warnings import warn
from edl.errors import ConfigError
from edl.explain.plan_table import make_console
from edl.settings.simulate import SimulateSettings, SimulationOutput
from edl.sim.command import run_campaign, stdout_for_the_report, written_to_stdout
from edl.sim.importers.records import scenario_of_records
from edl.sim.plots import draw_all
from edl.sim.report import Runs, print_report, report_csv, report_json
from edl.sim.scenario import Scenario
from edl.sim.scenario_file import read_scenario


def simulate(settings: SimulateSettings) -> int:
    """Run a scenario under each policy and print the figures.

    Returns:
        1 if the controller failed in a run, which is a bug; else 0.

    Raises:
        ConfigError: the scenario, the records or a policy cannot be used.
    """
    if (settings.scenario is None) == (settings.from_ is None):
        raise ConfigError(
            "edl simulate takes either SCENARIO or --from RECORDS; give one of them:"
            " edl simulate example/scenarios/edl2017-case2.yaml"
        )
    if settings.scenario is not None:
        scenario = read_scenario(settings.scenario)
    elif settings.from_ is not None:
        scenario = scenario_of_records(
            settings.from_, lambda left_out: warn([f"--from {settings.from_}: {left_out}"])
        )
    with stdout_for_the_report():
        runs = run_campaign(
            scenario, settings.policy or scenario.policies, settings.seeds or scenario.seeds, settings.plot
        )
    with written_to_stdout():
        _print(settings.output, scenario, runs)
    _note_empty_window(scenario, runs)
    if settings.plot is not None:
        draw_all(scenario, runs, settings.plot)
    problems = {problem for those in runs.values() for run in those for problem in run.problems}
    warn(f"the controller of a run reported: {problem}" for problem in sorted(problems))
    return FAILED if problems else 0


def _print(output: SimulationOutput, scenario: Scenario, runs: Runs) -> None:
    if output is SimulationOutput.JSON:
        typer.echo(report_json(scenario, runs))
    elif output is SimulationOutput.CSV:
        typer.echo(report_csv(scenario, runs), nl=False)
    else:
        print_report(scenario, runs, make_console())


def _note_empty_window(scenario: Scenario, runs: Runs) -> None:
    """Say why a run has no utilisation: it ended before the window that is measured began."""
    from_s = scenario.measure.from_s
    ends_s = [run.samples[-1].at_s for those in runs.values() for run in those]
    if from_s and min(ends_s, default=from_s + 1) <= from_s:
        warn(
            [
                f"measure.from_s {from_s:g}: a run ended at second {min(ends_s):.0f}, after its last job;"
                " it has no utilisation, so choose an earlier second"
            ]
        )
