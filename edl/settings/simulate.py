"""The flags of `edl simulate`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from edl.settings.flags import Flag, Settings
from edl.settings.shared import OptionalPath


class SimulationOutput(StrEnum):
    """Output formats of a simulation."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class SimulateSettings(Settings):
    """The values of the flags of `edl simulate`."""

    scenario: Annotated[
        OptionalPath,
        Flag(
            "Scenario to run, a YAML file.",
            metavar="SCENARIO",
            remedy="give the path of a scenario, such as example/scenarios/edl2017-case2.yaml",
            unset="the records of `--from` are run",
            is_positional=True,
        ),
    ] = None
    policy: Annotated[
        tuple[str, ...],
        Flag(
            "Policy to run; repeat the flag to compare several.",
            metavar="NAME",
            remedy="give the name of a policy, such as maxmin",
            unset="the policies that the scenario names",
        ),
    ] = ()
    seeds: Annotated[
        int,
        Field(ge=0, le=1000),
        Flag(
            "Number of runs of each policy, with seeds from 0; 0 is the number that the scenario names. Intervals"
            " need two.",
            metavar="N",
            remedy="give a number of runs, such as 10",
        ),
    ] = 0
    from_: Annotated[
        OptionalPath,
        Flag(
            "Folder of records that edl controller --record wrote: run that cluster and its serving in place of a"
            " scenario.",
            metavar="RECORDS",
            remedy="give the path of a folder of records",
            unset="a scenario is run",
        ),
    ] = None
    output: Annotated[SimulationOutput, Flag("Output format.", short="o")] = SimulationOutput.TABLE
    plot: Annotated[
        OptionalPath,
        Flag(
            "Folder for plots, each as PNG and as SVG; needs the extra `plots`.",
            metavar="DIR",
            remedy="give the path of a folder",
            unset="no plots",
        ),
    ] = None
