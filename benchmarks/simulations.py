"""Runs stored scenarios under policies and writes docs/simulations.md from what was run.

    python -m benchmarks.simulations run edl2017-case2 --policy maxmin --policy edl-2017 --seeds 10
    python -m benchmarks.simulations page

`run` adds to benchmarks/results, a file for each scenario; `page` needs nothing else, so that a table can be made of
runs of many evenings. Each result says how many seeds it has.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from edl.explain.steps import showing
from edl.shadow.gain import estimate
from edl.sim.campaign import interval, run_all
from edl.sim.policies import check_policy, policy_names
from edl.sim.report import number, shown
from edl.sim.scenario import Scenario
from edl.sim.scenario_file import read_scenario
from tests.e2e.cases import table

ROOT = Path(__file__).parents[1]
SCENARIOS, RESULTS = ROOT / "example" / "scenarios", ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "simulations.md"
DATES = RESULTS / "dates.json"
SPEED = ("cpu_s", "decision_cpu_s", "simulated_hours_per_cpu_s")
FIGURES = (
    "utilisation",
    "useful_utilisation",
    "steady_utilisation",
    "steady_trainers",
    "pending_mean_s",
    "pending_p99_s",
    "pending_all_mean_s",
    "never_started",
    "jct_mean_s",
    "jct_p50_s",
    "jct_p99_s",
    "makespan_s",
    "unfinished",
    "jain",
    "finish_time_fairness_mean",
    "finish_time_fairness_max",
    "serving_shortfall_pod_s",
    "serving_below_s",
    "serving_wait_p95_s",
    "resizes",
    "forced_resizes",
    "trainers_preempted",
    "trainer_hours_lost",
    "gap_max",
    *SPEED,
)
TITLES = {
    "edl2017-case1-then": "Calibration: case 1 on the control plane of 2017",
    "edl2017-case2-then": "Calibration: case 2 on the control plane of 2017",
    "edl2017-case1": "Case 1: twenty jobs on 133 nodes",
    "edl2017-case2": "Case 2: six jobs beside serving on 133 nodes",
    "pollux-workload-1": "Pollux workload 1: 160 jobs on 64 GPUs",
    "pollux-workload-2": "Pollux workload 2",
    "pollux-workload-3": "Pollux workload 3",
    "pollux-workload-6": "Pollux workload 6",
    **{
        f"pollux-batches-workload-{number}": f"Pollux workload {number}, jobs may change their batches"
        for number in (1, 2, 3, 6)
    },
    "large-5000": "5,000 nodes: the speed of the simulator",
}
NOTES = {
    "edl2017-case1-then": "Published: plateau 88.7 % and 346.8 trainers without the autoscaler, 86.3 % and 253.0 with"
    " it; jobs pending 308.5 s and 47.2 s on average; 154 resizes a pass; Jain 0.37.",
    "edl2017-case2-then": "Published: utilisation 62.9 % and 83.7 %, off-peak 45.2 % and 79.2 %; serving short by"
    " 1,939 and 20,744 pod-seconds, for 28 s and 288 s. Jobs pending 1.5 s and 49.1 s; 60 resizes a pass.",
    "edl2017-case1": "Resizes count to the end, when twenty jobs are removed one after the other, and each gives the"
    " others trainers. Until the first removal `maxmin` makes 131, and `edl-2017` 144.",
    "edl2017-case2": "`maxmin` fills the cluster most, with equal shares, and serving pays for it: it is short by"
    " as much as under `edl-2017-priority`. Optimus, AFS and Sia divide totals: off-peak they share out 300"
    " trainers, and 278 fit on the nodes. A job starts with its whole number or not at all, so one of the six"
    " waits for most of the run, as under `static-max`. That leaves capacity, so serving is short by half as much."
    " The others leave most of the cluster free, so serving waits as on an idle one.",
    "pollux-workload-6": "The paper publishes average completion times of this workload: Pollux 2,446 s, Tiresias"
    " 3,470 s, Optimus with an oracle 5,302 s. Pollux may change the batch sizes of a job; here all keep their own.",
}

TEXT_OF_BATCHES = (
    "Each job chooses the global batch with the most goodput for its trainers. Policies know its goodput by number of"
    " trainers, as it is in that part of the training."
)
NOTES |= {name: TEXT_OF_BATCHES for name in TITLES if "batches" in name}

POLLUX = tuple(f"pollux-workload-{number}" for number in (1, 2, 3, 6))
BATCHES = tuple(f"pollux-batches-workload-{number}" for number in (1, 2, 3, 6))
TOGETHER = (
    "Averages count the jobs that were done; `static-max` leaves some undone, as the tables say."
    " ± is half of the 95 % interval over the four workloads, which differ much. There is none over seeds: arrivals,"
    " work and latencies are given. Seeds 0 to 2 of workload 1 had equal completion times under each policy but"
    " `static-max`, which was not run with them (2026-11-25)."
)
PAIRED = "goodput"
PAIRS = (
    f"Job by job, how much longer it took than under `{PAIRED}`: the mean, and its interval by a moving-block"
    " bootstrap of 1,000 draws. A block is n^(1/3) jobs that arrived one after the other, since such jobs wait for"
    " each other. The interval covers the luck of these jobs, not that of other traces. Policies without stored times"
    " of single jobs are left out."
)
CHANGED = (
    "Average completion times in seconds. `--load 2` lets jobs arrive twice as fast, `--cost` is what a resize costs"
    " in seconds (30 in the paper), and with `--misjudged 0.3` policies know each speed wrong by up to 30 %."
)
CASES = (
    "The same scenario files, played in real time on etcd, kube-apiserver, kube-scheduler and kwok, with edl's"
    " controller. [Simulator](simulator.md#the-same-scenario-on-a-real-control-plane) says how, and why the two"
    " differ. *With its latencies* is the simulator with the times that pods took to start and to end there."
    " *Off* and *on* were published in 2017: without and with the autoscaler of"
    " then."
)


class Changes(NamedTuple):
    """How a run differs from its scenario.

    Attributes:
        load: arrivals come so many times as fast.
        cost_s: what a resize costs each job; None leaves it.
        misjudged: policies know each speed wrong by up to this part.
    """

    load: float = 1.0
    cost_s: float | None = None
    misjudged: float = 0.0

    @property
    def options(self) -> str:
        """The options of the command that make these changes; empty if there are none."""
        load, misjudged = self.load if self.load != 1.0 else None, self.misjudged or None
        given = (("--load", load), ("--cost", self.cost_s), ("--misjudged", misjudged))
        return "".join(f" {name} {value:g}" for name, value in given if value is not None)

    def made_to(self, scenario: Scenario) -> Scenario:
        """The scenario with these changes."""
        jobs = []
        for group in scenario.jobs:
            times = tuple(at_s / self.load for at_s in group.arrival.times_s)
            resize = group.resize if self.cost_s is None else group.resize.model_copy(update={"cost_s": self.cost_s})
            arrival = group.arrival.model_copy(update={"times_s": times})
            update = {"arrival": arrival, "resize": resize, "misjudged": self.misjudged}
            jobs.append(group.model_copy(update=update))
        return scenario.model_copy(update={"jobs": tuple(jobs)})


UNCHANGED = Changes()


def main() -> None:
    """Run, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("scenario", choices=sorted(TITLES))
    running.add_argument("--policy", action="append", choices=policy_names())
    running.add_argument("--seeds", type=int, default=1)
    running.add_argument("--load", type=float, default=1.0, help="arrivals come so many times as fast")
    running.add_argument("--cost", type=float, help="seconds that a resize costs each job")
    running.add_argument("--misjudged", type=float, default=0.0, help="policies know each speed wrong by up to this")
    commands.add_parser("page")
    given = parser.parse_args()
    if given.command == "page":
        PAGE.write_text(page())
    else:
        changes = Changes(given.load, given.cost, given.misjudged)
        run(given.scenario, given.policy, given.seeds, changes)


def run(name: str, policies: Iterable[str] | None, seeds: int, changes: Changes = UNCHANGED) -> None:
    """Run a scenario and store the figures of each seed."""
    scenario = changes.made_to(read_scenario(SCENARIOS / f"{name}.yaml"))
    name += changes.options.replace(" --", "-").replace(" ", "-")
    path = RESULTS / f"{name}.json"
    for policy in policies or scenario.policies:
        check_policy(policy)
        with showing(f"{name} under {policy}, seeds: {seeds}"):
            runs = run_all(scenario, [policy], seeds)[policy]
        for one in runs:
            if one.problems:
                sys.exit(f"{name} under {policy}, seed {one.seed}: {one.problems[0]}")
        stored: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        stored[policy] = [
            {
                **one.figures,
                "completions_s": [(job, round(lasted_s, 1)) for job, lasted_s in one.completions_s.items()],
                "cpu_s": one.cpu_s,
                "decision_cpu_s": one.decision_s,
                "simulated_hours_per_cpu_s": one.samples[-1].at_s / 3600 / one.cpu_s,
            }
            for one in runs
        ]
        RESULTS.mkdir(exist_ok=True)
        path.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
        dates = _dates()
        dates.setdefault(name, {})[policy] = time.strftime("%Y-%m-%d")
        DATES.write_text(json.dumps(dates, indent=1, sort_keys=True) + "\n")
        spent_s = sum(one.cpu_s for one in runs)
        print(f"{name} {policy}: seeds: {len(runs)}; CPU seconds: {spent_s:.1f}; written to {path}")


def page() -> str:
    """The page of all results."""
    parts = [
        "# Simulations",
        "Written by `python -m benchmarks.simulations page` from the runs in `benchmarks/results`; each table names"
        " the command that ran it. [Simulator](simulator.md) says what is modelled, and what each figure and each"
        " policy is. ± is half of the 95 % interval over seeds; a column without it has one seed.",
    ]
    for name, title in TITLES.items():
        path = RESULTS / f"{name}.json"
        if path.exists():
            parts += [
                f"## {title}",
                *([NOTES[name]] if name in NOTES else []),
                *_table(name, json.loads(path.read_text())),
            ]
        if name == POLLUX[-1]:
            parts += ["## Pollux: the four workloads together", TOGETHER, _together(POLLUX, "maxmin")]
            parts += _paired(POLLUX)
        if name == BATCHES[-1]:
            parts += ["## Pollux: the four workloads together, with batches", _together(BATCHES, "sia")]
            parts += _paired(BATCHES)
            parts += _changed()
    return "\n\n".join([*parts, *_cases()]) + "\n"


def _dates() -> dict[str, dict[str, str]]:
    """When each policy of each scenario ran last."""
    found: dict[str, dict[str, str]] = json.loads(DATES.read_text()) if DATES.exists() else {}
    return found


def _together(names: Iterable[str], base: str) -> str:
    """Completion times over several scenarios, of the policies that all of them have, and as parts of one of them."""
    stored = [json.loads((RESULTS / f"{name}.json").read_text()) for name in names]
    rows = [f"| policy | average completion, s | of that under {base} |", "|---|---:|---:|"]
    for policy in (one for one in policy_names() if all(one in each for each in stored)):
        times, least = ([each[name][0]["jct_mean_s"] for each in stored] for name in (policy, base))
        ratios = [time / other for time, other in zip(times, least, strict=True)]
        rows.append(f"| {policy} | {shown(interval(times))} | {shown(interval(ratios))} |")
    return "\n".join(rows)


def _paired(names: Iterable[str]) -> list[str]:
    """How much longer each job takes under another policy than under `PAIRED`, on average, with an interval."""
    rows = []
    for name in names:
        stored = json.loads((RESULTS / f"{name}.json").read_text())
        took = {policy: dict(runs[0].get("completions_s", ())) for policy, runs in stored.items()}
        took = {policy: jobs for policy, jobs in took.items() if jobs}
        for policy in (one for one in policy_names() if one in took and one != PAIRED and PAIRED in took):
            pairs = [(took[policy][job] - took_s, 1.0) for job, took_s in took[PAIRED].items() if job in took[policy]]
            made = estimate(pairs, max(1, round(len(pairs) ** (1 / 3))), outside=0.025)
            cells = [number(value) for value in (made.mean, made.low, made.high) if value is not None]
            rows.append(f"| {name} | {policy} | {cells[0]} | {' to '.join(cells[1:])} |")
    head = [f"| workload | policy | longer than under `{PAIRED}` by, s | 95 % interval |", "|---|---|---:|---:|"]
    return [PAIRS, "\n".join([*head, *rows])] if rows else []


def _changed() -> list[str]:
    """Completion times at other loads, with other costs of a resize, and with wrong speeds."""
    found = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("pollux-*workload-[0-9]-*.json")}
    order = [policy for policy in policy_names() if any(policy in stored for stored in found.values())]
    rows = [f"| scenario, options | {' | '.join(order)} |", "|---|" + "---:|" * len(order)]
    for name, stored in sorted(found.items()):
        scenario, *options = re.split(r"-(?=load|cost|misjudged)", name)
        text = " ".join(f"--{option.replace('-', ' ')}" for option in options)
        cells = [shown(interval([stored[one][0]["jct_mean_s"]])) if one in stored else "" for one in order]
        rows.append(f"| {scenario} `{text}` | {' | '.join(cells)} |")
    command = "python -m benchmarks.simulations run SCENARIO OPTIONS --policy POLICY"
    title = "## Pollux: other loads, other costs of a resize, wrong speeds"
    return [title, CHANGED, f"```sh\n{command}\n```", "\n".join(rows)]


def _cases() -> list[str]:
    """The cases that were played on a real control plane."""
    parts = []
    for path in sorted((RESULTS / "cases").glob("*.json")):
        found = json.loads(path.read_text())
        head, *lines = table.rows(found["case"], found)
        rows = [f"| {' | '.join(line)} |" for line in (head, *lines)]
        rows.insert(1, "|---|" + "---:|" * (len(head) - 1))
        spans = [
            f"| {what} | {count} | {low:.2f} | {half:.2f} | {high:.2f} | {mean:.3f} |"
            for what, (count, low, half, high, mean) in found["spans"].items()
        ]
        took = (
            ["| it took, s | pods | 5 % | half | 95 % | mean |", "|---|---:|---:|---:|---:|---:|", *spans]
            if spans
            else []
        )
        parts += [f"### {found['title']}", f"```sh\n{found['command']}\n```", "\n".join(rows)]
        parts += ["\n".join(took)] if took else []
    return ["## On a real control plane", CASES, *parts] if parts else []


def _table(name: str, stored: Mapping[str, list[dict[str, float]]]) -> list[str]:
    order = [policy for policy in policy_names() if policy in stored]
    known = {figure for runs in stored.values() for run in runs for figure in run}
    rows = [f"| figure | {' | '.join(f'{policy} ({len(stored[policy])})' for policy in order)} |"]
    rows.append("|---|" + "---:|" * len(order))
    for figure in (figure for figure in FIGURES if figure in known):
        cells = [[run[figure] for run in stored[policy] if figure in run] for policy in order]
        rows.append(f"| {figure} | {' | '.join(shown(interval(cell)) if cell else '' for cell in cells)} |")
    command = f"python -m benchmarks.simulations run {name} --policy POLICY --seeds N     # N stands in brackets"
    dates = _dates().get(name, {})
    older = "".join(f" `{policy}` was run on an older version." for policy in order if policy not in dates)
    ran = [f"Run on {' and '.join(sorted(set(dates.values())))}.{older}"] if dates else []
    return [f"```sh\n{command}\n```", *ran, "\n".join(rows)]


if __name__ == "__main__":
    main()
