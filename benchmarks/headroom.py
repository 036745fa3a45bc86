"""What headroom that learns does to serving and to training, against fixed headroom and against what research does.

    python -m benchmarks.headroom wave      # case 2 of 2017 in the simulator, over the declared cost of a waiting pod
                                            # (--seeds 5: the means of five seeds)
    python -m benchmarks.headroom weeks     # two weeks of days and nights, cold start and new regime: the account
    python -m benchmarks.headroom day       # the first day of them in the simulator, to judge the account by
    python -m benchmarks.headroom nodes     # two weeks in the simulator: nodes, and the controller's own decisions

Each line is one run, or the means of several. Waiting is the shortfall of serving: pods that should be ready and are
not, times seconds. The account is `headroom_account`, the serving of the weeks `headroom_load`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from os import sched_getaffinity
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from benchmarks import headroom_tokens
from benchmarks.headroom_account import POD_CORES, Account, run
from benchmarks.headroom_load import CHANGE_DAY, DAY_S, DAYS, PODS, REQUESTS_A_MINUTE, replicas
from edl.explain.steps import showing
from edl.headroom.advisor import Reservation
from edl.headroom.learner import Learner
from edl.sim.campaign import interval
from edl.sim.headroom import Conformal, Foresight, Peak
from edl.sim.importers import azure_llm
from edl.sim.importers.azure_llm import PODS_PER_NODE
from edl.sim.measures import mean_over
from edl.sim.scenario import Scenario
from edl.sim.scenario_file import read_scenario
from edl.sim.simulation import Run, simulate

SCENARIOS = Path(__file__).parents[1] / "example" / "scenarios"
WAVE, DAY_AND_NIGHT = SCENARIOS / "edl2017-case2.yaml", SCENARIOS / "day-and-night.yaml"
RESULTS = Path(__file__).parent / "results"
NODES, NODE_CORES = 12, 16
SLOS = (20, 50, 100, 200, 500)
RULES = ("foresight", "peak", "conformal")
RULES_SLO = 100
WEEKS_SLOS = (20, 50, 100, 200, 500, 1000)
FIXED = (2, 4, 8)
TOKENS = "tokens"
SEEDS = (0, 1, 2)
CHARGED = 200
"""The declared cost at which the cases of the weeks are charged."""

LAST_S = (DAY_S, CHANGE_DAY * DAY_S, (CHANGE_DAY + 1) * DAY_S)
PARTS = ("first day", "up to the change", "day of the change", "after it")


def wave(headroom: int | str, slo: float = 20.0, *, idle: bool = False) -> Scenario:
    """Case 2 of 2017; without jobs if idle."""
    fields: dict[str, Any] = read_scenario(WAVE).model_dump()
    fields["controller"] |= {"serving_headroom": headroom, "serving_slo": slo}
    return Scenario.model_validate(fields | ({"jobs": ()} if idle else {}))


def day(headroom: int | str, slo: float = 20.0) -> Scenario:
    """Two jobs beside the serving of the first day, on twelve nodes of 16 cores."""
    trainer = {"cpu": 4, "memory": "4Gi"}
    job = {"name": "job", "count": 2, "min": 2, "max": 60, "trainer": trainer, "throughput": [(1, 1), (60, 60)]}
    serving = {"name": "web", "resources": {"cpu": POD_CORES, "memory": "2Gi"}, "replicas": replicas(1)}
    return Scenario.model_validate(
        {
            "name": "day",
            "duration_s": DAY_S,
            "nodes": [{"name": "n", "count": NODES, "resources": {"cpu": NODE_CORES, "memory": "64Gi"}}],
            "jobs": [job],
            "serving": [serving],
            "controller": {"serving_headroom": headroom, "serving_slo": slo, "interval_s": 30},
            "latency": {
                "start_s": {"trainer": [1, 3], "serving": [1, 3]},
                "stop_s": {"trainer": [8, 8], "serving": [1, 3]},
            },
        }
    )


def nodes(headroom: int | str, slo: float = 20.0, days: float = DAYS, load: int | str = 0) -> Scenario:
    """Days and nights beside three jobs, on twenty nodes of 16 cores.

    Load 0 is that of the stored scenario, another number the seed of another one, and `TOKENS` that of the tokens.
    """
    scenario = read_scenario(DAY_AND_NIGHT)
    if load:
        pods = PODS_PER_NODE * sum(group.count for group in scenario.nodes)
        if load == TOKENS:
            timeline = headroom_tokens.replicas(DAYS, pods=pods)
        else:
            timeline = azure_llm.replicas(REQUESTS_A_MINUTE, DAYS, pods=pods, seed=int(load))
        (web,) = scenario.serving
        scenario = scenario.model_copy(update={"serving": (web.model_copy(update={"replicas": timeline}),)})
    flags = {"serving_headroom": headroom, "serving_slo": slo}
    controller = scenario.controller.model_copy(update=flags)
    return scenario.model_copy(update={"controller": controller, "duration_s": days * DAY_S})


def cases_of_nodes(days: float, load: int | str) -> list[tuple[str, Scenario]]:
    """Each case with its name."""
    return [
        ("none", nodes(0, days=days, load=load)),
        (f"fixed {FIXED[1]}", nodes(FIXED[1], days=days, load=load)),
        (f"auto, slo {CHARGED}", nodes("auto", CHARGED, days, load)),
        *((rule, nodes(rule, CHARGED, days, load)) for rule in ("peak", "conformal", "foresight")),
    ]


def in_parallel(days: float = DAYS, load: int | str = 0, only: str = "") -> Iterator[dict[str, Any]]:
    """The figures of each case of the nodes, or of one, as the processes deliver them: one for each core."""
    with ProcessPoolExecutor(len(sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        yield from pool.map(_of_weeks, [case for case in cases_of_nodes(days, load) if only in {"", case[0]}])


def _of_weeks(case: tuple[str, Scenario]) -> dict[str, Any]:
    """The figures of one case, with what it costs, and the waiting in each part of the weeks."""
    name, scenario = case
    done = _run(name, scenario)
    core_h = scenario.duration_s / 3600 * sum(g.count * NODE_CORES for g in scenario.nodes)
    idle_h = core_h * (1 - done.figures["utilisation"])
    waiting_h = done.figures["serving_shortfall_pod_s"] / 3600
    bounds_s = pairwise((0.0, *LAST_S, float(DAYS * DAY_S)))
    return _figures(name, done) | {
        "serving_below_s": round(done.figures["serving_below_s"]),
        "idle_core_h": round(idle_h),
        "cost_core_h": round(idle_h + CHARGED * waiting_h),
        "decisions": round(done.figures["decisions"]),
        **{
            f"waiting, {part}": round(waiting_within(done, begin_s, end_s))
            for part, (begin_s, end_s) in zip(PARTS, bounds_s, strict=True)
            if end_s <= scenario.duration_s
        },
    }


def waiting_within(done: Run, begin_s: float, end_s: float) -> float:
    """Pod-seconds for which serving was short between two moments of a run."""
    times = np.array([sample.at_s for sample in done.samples])
    short = np.array([max(0, sample.target - sample.ready) for sample in done.samples], dtype=np.float64)
    return mean_over(times, short, (begin_s, end_s)) * (end_s - begin_s)


def simulations(which: str) -> Iterator[tuple[str, Scenario]]:
    """Each scenario with the name of its case."""
    if which == "day":
        yield "none", day(0)
        yield "auto, slo 200", day("auto", 200)
        yield "foresight", day("foresight", 200)
        return
    yield "idle cluster", wave(0, idle=True)
    yield "none", wave(0)
    yield from ((f"fixed {pods}", wave(pods)) for pods in (25, 50, 100))
    for slo in SLOS:
        yield f"auto, slo {slo}", wave("auto", slo)
    yield from ((f"{rule}, slo {RULES_SLO}", wave(rule, RULES_SLO)) for rule in RULES)


def simulated(name: str, scenario: Scenario, seeds: int = 1) -> dict[str, Any]:
    """The figures of one case in the simulator: means of its seeds, and half of the 95 % interval of the waiting.

    Raises:
        SystemExit: the controller could not do something.
    """
    runs = [_run(name, scenario, seed) for seed in range(seeds)]
    found = [_figures(name, run) for run in runs]
    if seeds == 1:
        return found[0]
    waiting = interval([run.figures["serving_shortfall_pod_s"] for run in runs])
    return {
        "case": name,
        "seeds": seeds,
        **{key: round(mean(one[key] for one in found), 4) for key in found[0] if key != "case"},
        "waiting_half": round(waiting.half),
    }


def _run(name: str, scenario: Scenario, seed: int = 0) -> Run:
    done = simulate(scenario, "maxmin", seed)
    if done.problems:
        raise SystemExit(f"{name}: {done.problems[0]}")
    return done


def _figures(name: str, done: Run) -> dict[str, Any]:
    figures = done.figures
    return {
        "case": name,
        "waiting_pod_s": round(figures["serving_shortfall_pod_s"]),
        "wait_p95_s": round(figures["serving_wait_p95_s"], 1),
        "utilisation": round(figures["utilisation"], 4),
        "trainer_hours": round(figures["trainer_hours"], 1),
        "trainers_deleted": round(figures["trainers_deleted"]),
        "trainers_preempted": round(figures["trainers_preempted"]),
        "cpu_s": round(done.cpu_s, 1),
    }


def _always(pods: int) -> Callable[[object], int]:
    return lambda _: pods


def _for_slo(rule: Callable[[float, float], Reservation], slo: int) -> Callable[[object], Reservation]:
    return lambda _: rule(POD_CORES, slo)


def accounts(load: int | str = 0, only: str = "") -> Iterator[dict[str, Any]]:
    """The figures of each rule over the two weeks, or of one, the mean of three seeds of a load."""
    makers: dict[str, Callable[[tuple[tuple[float, int], ...]], Reservation | int]] = {
        "none": lambda _: 0,
        **{f"fixed {pods}": _always(pods) for pods in FIXED},
        **{f"auto, slo {slo}": _for_slo(Learner, slo) for slo in WEEKS_SLOS},
        **{f"conformal, slo {slo}": _for_slo(Conformal, slo) for slo in (100, 500)},
        "peak": lambda _: Peak(),
        "foresight": lambda serving: Foresight([serving], 5.0, pays=True),
    }
    for name, make in makers.items():
        if only not in {"", name}:
            continue
        done = []
        for seed in SEEDS:
            serving = headroom_tokens.replicas(DAYS, pods=PODS, seed=seed) if load == TOKENS else replicas(DAYS, seed)
            done.append(run(serving, DAYS * DAY_S, NODES * NODE_CORES, make(serving), LAST_S))
        yield _line(name, done)


def _line(name: str, done: list[list[Account]]) -> dict[str, Any]:
    every = [account for accounts_of in done for account in accounts_of]
    cores_s = sum(account.seconds for account in every) * NODES * NODE_CORES
    waiting, idle = sum(a.waiting_pod_s for a in every) / len(SEEDS), sum(a.idle_core_s for a in every) / len(SEEDS)
    return {
        "case": name,
        "waiting_pod_s": round(waiting),
        "idle_core_h": round(idle / 3600),
        "utilisation": round(1 - idle * len(SEEDS) / cores_s, 4),
        "cost_core_h": round((idle + CHARGED * waiting) / 3600),
        "deleted": round(sum(a.deleted for a in every) / len(SEEDS)),
        "ahead": round(sum(a.ahead for a in every) / len(SEEDS)),
    } | {
        f"waiting, {part}": round(sum(accounts_of[i].waiting_pod_s for accounts_of in done) / len(SEEDS))
        for i, part in enumerate(PARTS)
    }


def main() -> None:
    """Run the cases, print a line for each, and store them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=("wave", "weeks", "day", "nodes"))
    parser.add_argument("--days", type=float, default=DAYS, help="of `nodes`")
    parser.add_argument("--seeds", type=int, default=1, help="of `wave` and `day`")
    parser.add_argument("--load", default="0", help=f"`{TOKENS}`, or for `nodes` the seed of its serving")
    parser.add_argument("--case", default="", help="of `weeks` and `nodes`: only this case; the stored others stay")
    given = parser.parse_args()
    which, load = given.which, given.load if given.load == TOKENS else int(given.load)
    makers: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "weeks": partial(accounts, load, given.case),
        "nodes": partial(in_parallel, given.days, load, given.case),
    }
    name = which if given.days == DAYS else f"{which}-{given.days:g}"
    name += f"-load-{load}" if load else ""
    path = RESULTS / f"headroom-{name}.json"
    stored = {one["case"]: one for one in json.loads(path.read_text())} if given.case and path.exists() else {}
    each = (simulated(*case, given.seeds) for case in simulations(which)) if which not in makers else makers[which]()
    iterator = iter(each)
    while True:
        with showing(f"{which}, case {len(stored) + 1}"):
            one = next(iterator, None)
        if one is None:
            break
        stored[one["case"]] = one
        sys.stdout.write(json.dumps(one) + "\n")
        sys.stdout.flush()
        path.write_text(json.dumps(list(stored.values()), indent=1) + "\n")


if __name__ == "__main__":
    main()
