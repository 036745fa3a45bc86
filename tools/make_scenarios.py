"""Writes scenario files from the data of research, and the JSON schema of scenario files.

python -m tools.make_scenarios pollux FOLDER workload-1 > example/scenarios/pollux-workload-1.yaml
python -m tools.make_scenarios pollux-batches FOLDER workload-1 > example/scenarios/pollux-batches-workload-1.yaml
python -m tools.make_scenarios philly philly.csv "2017-10-09 00:00:00" 8 > philly.yaml
python -m tools.make_scenarios azure-llm conv.csv 14 20 > example/scenarios/day-and-night.yaml
    python -m tools.make_scenarios schema > docs/reference/scenario.schema.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from edl.errors import ConfigError
from edl.sim.importers.azure_llm import scenario_of_service
from edl.sim.importers.philly import scenario_of_trace
from edl.sim.importers.pollux import scenario_of_workload
from edl.sim.scenario import Scenario


def main(arguments: list[str]) -> None:
    """Print the scenario; see the usage above."""
    if arguments == ["schema"]:
        json.dump(Scenario.model_json_schema(), sys.stdout, indent=1)
        sys.stdout.write("\n")
        return
    try:
        body = _body(arguments)
    except ConfigError as error:
        raise SystemExit(f"make_scenarios: {error}") from error
    Scenario.model_validate(body)
    sys.stdout.write(f"# {body['description']}. Written by tools/make_scenarios.py.\n")
    yaml.safe_dump(body, sys.stdout, sort_keys=False, default_flow_style=None, width=118)


def _body(arguments: list[str]) -> dict[str, Any]:
    """The scenario that the arguments ask for, as a file has it.

    Raises:
        ConfigError: there are too few or other arguments, or the data cannot be used.
    """
    match arguments:
        case ["pollux", source, workload]:
            return scenario_of_workload(Path(source), workload)
        case ["pollux-batches", source, workload]:
            return scenario_of_workload(Path(source), workload, batches=True)
        case ["azure-llm", source, days, nodes]:
            return scenario_of_service(
                Path(source), days=int(_number("DAYS", days)), nodes=int(_number("NODES", nodes))
            )
        case ["philly", source, begin, hours]:
            return scenario_of_trace(Path(source), begin=begin, hours=_number("HOURS", hours), nodes=16, gpus=4)
        case _:
            raise ConfigError(f"{' '.join(arguments) or 'no arguments'}: give arguments as here:\n{__doc__}")


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1e6:
        raise ConfigError(f"{name} {text!r} is not a number above 0 and up to a million; give one, such as 8")
    return number


if __name__ == "__main__":
    main(sys.argv[1:])
