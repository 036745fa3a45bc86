"""Play a case of 2017 on a real control plane beside the simulator: `python -m tests.e2e.cases 2 [--headroom auto]`.

Needs minutes of real time on a machine with nothing else to do. Stores the figures of both for docs/simulations.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edl.sim.campaign import run_all, summarise
from edl.sim.scenario import Scenario
from edl.sim.scenario_file import read_scenario
from tests.e2e.cases import table
from tests.e2e.cases.mixes import MIXES, with_mix
from tests.e2e.cases.play import Playing, flags_of, node_specs, shortened
from tests.e2e.cases.spans import as_seen
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.worlds.harness import World

ROOT = Path(__file__).resolve().parents[3]
SCENARIOS, RESULTS = ROOT / "example" / "scenarios", ROOT / "benchmarks" / "results" / "cases"
POLICY = "maxmin"
SETTINGS = Settings(pod_delete_s=8.0, node_grace_s=40)
"""On a busy machine nodes whose heartbeat is late must not lose their pods."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to play.

    Attributes:
        case: 1 or 2 of 2017, or the path of a scenario file.
        mix: other nodes with the same total.
        headroom: pods of each shape, or auto; slo: with auto, the price of waiting.
        stop_s: how long trainers take to end; None as the scenario says.
        until_s: ends earlier.
    """

    case: str
    mix: str
    headroom: str
    slo: float
    stop_s: float | None
    until_s: float | None

    def scenario(self) -> Scenario:
        """What to play, and to simulate."""
        path = SCENARIOS / f"edl2017-case{self.case}.yaml" if self.case.isdigit() else Path(self.case)
        scenario = with_mix(read_scenario(path), self.mix)
        if self.headroom:
            number = int(self.headroom) if self.headroom.isdigit() else self.headroom
            flags = {"serving_headroom": number, "serving_slo": self.slo}
            scenario = scenario.model_copy(update={"controller": scenario.controller.model_copy(update=flags)})
        if self.stop_s is not None:
            latency = scenario.latency
            stops = {**latency.stop_s, "trainer": (self.stop_s, self.stop_s)}
            scenario = scenario.model_copy(update={"latency": latency.model_copy(update={"stop_s": stops})})
        return shortened(scenario, self.until_s)

    def about(self) -> dict[str, str]:
        """Title and command, for the page."""
        slo = f"{self.slo:g}" if self.headroom else ""
        stop, until = ("" if given is None else f"{given:g}" for given in (self.stop_s, self.until_s))
        parts = [
            f"nodes: {self.mix}" if self.mix else "",
            f"headroom {self.headroom} at a cost of {slo}" if self.headroom else "",
            f"trainers that end after {stop} s" if stop else "",
        ]
        said = {
            "CASE": self.case,
            "MIX": self.mix,
            "HEADROOM": self.headroom,
            "SLO": slo,
            "STOP": stop,
            "UNTIL": until,
        }
        command = " ".join(["make cases", *(f"{key}={value}" for key, value in said.items() if value)])
        return {"title": ", ".join(filter(None, (f"Case {self.case}", *parts))), "command": command}

    def file(self) -> Path:
        """Where the result is stored."""
        price = f"-{self.slo:g}" if self.headroom == "auto" else ""
        headroom = self.headroom and f"headroom-{self.headroom}{price}"
        stop = "" if self.stop_s is None else f"stop-{self.stop_s:g}"
        name = "-".join(filter(None, (Path(self.case).stem, self.mix, headroom, stop)))
        return RESULTS / f"case-{name}.json"


def main() -> None:
    """Play, simulate, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", help="1 or 2 of 2017, or the path of a scenario file")
    parser.add_argument("--mix", default="", choices=("", *MIXES), help="other nodes with the same total")
    parser.add_argument("--headroom", default="", help="pods of each shape, or auto")
    parser.add_argument("--slo", type=float, default=100.0, help="with --headroom auto: the price of waiting")
    parser.add_argument("--stop", type=float, default=None, metavar="SECONDS", help="how long trainers take to end")
    parser.add_argument("--until", type=float, default=None, metavar="SECONDS", help="end earlier")
    parser.add_argument("--seeds", type=int, default=3, help="of the simulator")
    parser.add_argument("--simulate-only", action="store_true", help="keep what was played, simulate anew")
    parser.add_argument(
        "--pods", type=Path, default=None, metavar="FILE", help="write what happened to each pod, as CSV"
    )
    given = parser.parse_args()
    asked = Asked(given.case, given.mix, given.headroom, given.slo, given.stop, given.until)
    scenario, stored = asked.scenario(), asked.file()
    found = json.loads(stored.read_text()) if given.simulate_only else _played(scenario, given.pods)
    scenarios = {"simulated": scenario, "as seen": as_seen(scenario, found["spans"])}
    found |= {kind: _simulated(each, given.seeds) for kind, each in scenarios.items()}
    found |= {"case": scenario.name, "seeds": given.seeds, **asked.about()}
    RESULTS.mkdir(parents=True, exist_ok=True)
    stored.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(table.text(list(table.rows(scenario.name, found))))
    for span, (count, low, half, high, mean) in found["spans"].items():
        print(f"{span}: {count:g} pods, {low:.2f} to {high:.2f} s, half within {half:.3f} s, mean {mean:.3f} s")
    print(f"latest event: {found['control plane']['late_s']:.2f} s late; written to {stored}")
    for kind in scenarios:
        missed = ", ".join(table.misses(found[kind], found["control plane"])) or "nothing"
        print(f"{kind}: differs by more than {table.WITHIN:.0%}: {missed}")


def _simulated(scenario: Scenario, seeds: int) -> dict[str, float]:
    return {name: one.mean for name, one in summarise(run_all(scenario, [POLICY], seeds)[POLICY]).items()}


def _played(scenario: Scenario, pods: Path | None) -> dict[str, Any]:
    flags = flags_of(scenario)
    print(f"{scenario.name}: {scenario.duration_s:g} s of real time, {' '.join(flags)}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="edl-case-") as folder,
        ControlPlane.start(Path(folder), nodes=node_specs(scenario), settings=SETTINGS) as plane,
    ):
        played = Playing(scenario, World(plane, *flags)).play()
    if pods is not None:
        played.spans.write(pods)
    return {"control plane": {**played.figures, "late_s": played.late_s}, "spans": played.spans.summary()}


if __name__ == "__main__":
    main()
