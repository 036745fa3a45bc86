"""`edl simulate`."""

from __future__ import annotations

import typer

from edl.cli.exit_codes import FAILED
from edl.errors import ConfigError
from edl.explain.plan_table import make_console
from edl.settings.simulate import SimulateSettings, SimulationOutput
from edl.sim.command import run_campaign
from edl.sim.importers.records import scenario_of_records
from edl.sim.report import print_report, report_csv, report_json
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
        scenario = scenario_of_records(settings.from_)
    runs = run_campaign(
        scenario, settings.policy or scenario.policies, settings.seeds or scenario.seeds, settings.plot
    )
    if settings.output is SimulationOutput.JSON:
        typer.echo(report_json(scenario, runs))
    elif settings.output is SimulationOutput.CSV:
        typer.echo(report_csv(scenario, runs), nl=False)
    else:
        print_report(scenario, runs, make_console())
    problems = {problem for those in runs.values() for run in those for problem in run.problems}
    for problem in sorted(problems):
        typer.echo(f"edl: the controller of a run reported: {problem}", err=True)
    return FAILED if problems else 0
