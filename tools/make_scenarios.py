"""Writes scenario files from the data of research, and the JSON schema of scenario files.

python -m tools.make_scenarios pollux FOLDER workload-1 > example/scenarios/pollux-workload-1.yaml
python -m tools.make_scenarios philly philly.csv "2017-10-09 00:00:00" 8 > philly.yaml
python -m tools.make_scenarios azure-llm conv.csv 14 20 > example/scenarios/day-and-night.yaml
    python -m tools.make_scenarios schema > docs/reference/scenario.schema.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

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
    kind, source, *rest = arguments
    if kind == "pollux":
        body = scenario_of_workload(Path(source), rest[0])
    elif kind == "azure-llm":
        body = scenario_of_service(Path(source), days=int(rest[0]), nodes=int(rest[1]))
    else:
        body = scenario_of_trace(Path(source), begin=rest[0], hours=float(rest[1]), nodes=16, gpus=4)
    Scenario.model_validate(body)
    sys.stdout.write(f"# {body['description']}. Written by tools/make_scenarios.py.\n")
    yaml.safe_dump(body, sys.stdout, sort_keys=False, default_flow_style=None, width=118)


if __name__ == "__main__":
    main(sys.argv[1:])
