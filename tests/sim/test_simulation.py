"""Whole runs on small clusters: what the controller, the scheduler and the workloads make of each other."""

from __future__ import annotations

from typing import Any

import pytest

from edl.sim.policies import policy_names
from edl.sim.scenario import Scenario
from edl.sim.simulation import Run, simulate
from tests.sim.scenarios import INSTANT, make_deployment, make_group, make_scenario


def run(scenario: Scenario, policy: str = "maxmin", seed: int = 0) -> Run:
    """A run in which the controller has no problem."""
    done = simulate(scenario, policy, seed)
    assert done.problems == ()
    return done


def trainers_at(done: Run, job: str, at_s: float) -> int:
    return next((count for second, count in reversed(done.trainers[job]) if second <= at_s), 0)


BUSY: dict[str, Any] = {
    "duration_s": 90,
    "jobs": [make_group(count=3, arrival={"every_s": 10}, max=16, work=400)],
    "serving": [make_deployment((0, 2), (40, 6), (70, 1))],
    "latency": {"start_s": {"trainer": [0.5, 2], "serving": [0.5, 2]}, "stop_s": {"trainer": [1, 3]}},
}


def test_jobs_fill_the_cluster_and_share_it() -> None:
    done = run(make_scenario(jobs=[make_group(count=2, max=32)]))
    assert done.figures["utilisation"] > 0.95
    assert [trainers_at(done, name, 50) for name in ("job-0", "job-1")] == [16, 16]


def test_a_job_has_only_the_sizes_that_it_may_have() -> None:
    jobs = [make_group("sized", min=2, max=31, sizes=[2, 4, 31]), make_group("other", min=2, max=32)]
    done = run(make_scenario(jobs=jobs))
    assert [trainers_at(done, name, 50) for name in ("sized-0", "other-0")] == [4, 28]


def test_a_job_waits_for_the_plan_to_be_made() -> None:
    def pending_s(decide_s: float) -> float:
        latency = {"decide_s": (decide_s, decide_s)}
        return run(make_scenario(jobs=[make_group(arrival={"first_s": 20}, max=8)], latency=latency)).figures[
            "pending_mean_s"
        ]

    assert pending_s(2.0) == pytest.approx(pending_s(0.0) + 2.0, abs=0.05)


def test_a_job_ends_when_its_work_is_done_as_fast_as_its_curve_says() -> None:
    group = make_group(work=400.0, throughput=[[1, 1.0], [8, 8.0]], min=4, max=4)
    done = run(make_scenario(duration_s=300, jobs=[group]))
    assert done.figures["jct_mean_s"] == pytest.approx(100, abs=3)
    assert list(done.completions_s.values()) == [done.figures["jct_mean_s"]]
    assert done.figures["unfinished"] == 0


def test_a_run_ends_soon_after_the_last_work_is_done() -> None:
    done = run(make_scenario(duration_s=1e6, jobs=[make_group(work=10.0)]))
    assert done.samples[-1].at_s < 100


def test_a_resize_that_stops_the_job_costs_its_time() -> None:
    other = make_group("other", arrival={"first_s": 20}, max=32, work=10.0)
    free = run(make_scenario(duration_s=400, jobs=[make_group(max=32, work=2000.0), other]))
    stops = {"cost_s": 15, "stops": "job"}
    costly = run(make_scenario(duration_s=400, jobs=[make_group(max=32, work=2000.0, resize=stops), other]))
    assert free.figures["trainer_hours_lost"] == 0
    assert costly.figures["trainer_hours_lost"] > 0
    assert costly.figures["makespan_s"] > free.figures["makespan_s"] + 10


def test_a_job_is_useful_again_as_soon_as_it_no_longer_stands_still() -> None:
    stops = {"cost_s": 15, "stops": "job"}
    other = make_group("b", arrival={"first_s": 10}, removal={"first_s": 40})
    done = run(make_scenario(jobs=[make_group(max=32, resize=stops), other]))
    stalled = [(s.at_s, s.useful < s.requested) for s in done.samples if 10 < s.at_s < 40]
    ends_s = [at_s for at_s, is_stalled in stalled if not is_stalled]
    assert any(is_stalled for _, is_stalled in stalled)
    assert ends_s, "the job stands still after it gave trainers, and then works on"


def test_serving_preempts_surplus_trainers_and_waits_for_their_end() -> None:
    scenario = make_scenario(
        jobs=[make_group(max=32)],
        serving=[make_deployment((0, 0), (30, 2))],
        latency={"start_s": INSTANT, "stop_s": {"trainer": [5, 5]}},
    )
    done = run(scenario)
    assert done.figures["trainers_preempted"] == 8
    assert done.figures["serving_shortfall_pod_s"] == pytest.approx(2 * 5, abs=1)
    assert trainers_at(done, "job-0", 59) == 24


def test_the_controller_leaves_kube_scheduler_two_seconds_to_preempt() -> None:
    scenario = make_scenario(
        jobs=[make_group(max=32)],
        serving=[make_deployment((0, 0), (30, 4))],
        latency={"start_s": INSTANT, "stop_s": {"trainer": [5, 5]}},
        scheduler={"preempt_s": 0.4},
    )
    figures = run(scenario).figures
    assert figures["trainers_preempted"] == figures["trainers_deleted"] == 16


def test_a_policy_of_fixed_size_leaves_serving_its_room() -> None:
    scenario = make_scenario(jobs=[make_group(max=32)], serving=[make_deployment((0, 0), (30, 2))])
    done = run(scenario, "static-min")
    assert done.figures["trainers_preempted"] == 0
    assert done.figures["serving_shortfall_pod_s"] < 1


def test_a_node_that_is_lost_takes_its_trainers_and_gives_room_when_it_is_back() -> None:
    events = [{"at_s": 20, "node": "n-1", "event": "lost"}, {"at_s": 40, "node": "n-1", "event": "back"}]
    done = run(make_scenario(jobs=[make_group(max=32)], node_events=events))
    assert [trainers_at(done, "job-0", second) for second in (19, 30, 55)] == [32, 24, 32]


def test_work_that_takes_less_time_than_a_clock_can_tell_is_done() -> None:
    assert run(make_scenario(jobs=[make_group(work=1e-14)])).figures["unfinished"] == 0


def test_serving_of_the_beginning_runs_before_the_scenario_begins_however_long_it_takes() -> None:
    latency = {"start_s": INSTANT | {"serving": [300, 300]}, "create_per_s": 0.01}
    done = run(make_scenario(serving=[make_deployment((0, 3))], latency=latency))
    assert done.figures["serving_shortfall_pod_s"] == 0


def test_pods_that_never_run_wait_until_the_end() -> None:
    done = run(make_scenario(settled=False, serving=[make_deployment((0, 1), (10, 50))]))
    assert done.figures["serving_wait_p95_s"] == pytest.approx(50, abs=1)


def test_what_is_measured_after_the_end_of_the_run_has_no_utilisation() -> None:
    window = {"from_s": 1000, "steady_s": [1000, 1500]}
    done = run(make_scenario(duration_s=2000, jobs=[make_group(work=10.0)], measure=window))
    assert done.figures.keys().isdisjoint({"utilisation", "used_utilisation", "steady_utilisation"})
    assert done.figures["unfinished"] == 0


def test_a_removed_job_does_not_keep_the_run_going() -> None:
    groups = [make_group("a", work=10.0), make_group("b", removal={"first_s": 30})]
    assert run(make_scenario(duration_s=5000, jobs=groups)).samples[-1].at_s < 100


def test_what_happens_at_the_same_second_happens_in_the_order_of_the_file() -> None:
    events = [{"at_s": 20, "node": f"n-{i}", "event": event} for i in range(4) for event in ("lost", "back")]
    steps = ((0, 0), (30, 8), (30, 6), (30, 4), (30, 1))
    done = run(make_scenario(jobs=[make_group(max=32)], node_events=events, serving=[make_deployment(*steps)]))
    assert trainers_at(done, "job-0", 28) == 32
    assert done.samples[-1].target == 1


def test_a_trainer_that_starts_after_the_work_is_done_ends_and_frees_its_room() -> None:
    rigid = {"min": 32, "max": 32}
    groups = [make_group("a", work=1.0, **rigid), make_group("b", work=20.0, arrival={"first_s": 100}, **rigid)]
    done = run(make_scenario(duration_s=1000, jobs=groups, latency={"start_s": {"trainer": [1, 30]}}))
    assert trainers_at(done, "a-0", 90) == 0
    assert done.figures["unfinished"] == 0


def test_a_removed_job_leaves_its_room_to_the_others() -> None:
    groups = [make_group("a", max=32, removal={"first_s": 30}), make_group("b", max=32)]
    done = run(make_scenario(jobs=groups))
    assert trainers_at(done, "a-0", 40) == 0
    assert trainers_at(done, "b-0", 50) == 32


def test_a_job_works_only_while_its_pservers_run() -> None:
    huge = {"count": 1, "resources": {"cpu": 64, "memory": "1Gi"}}
    done = run(make_scenario(jobs=[make_group(work=5.0, pserver=huge)]))
    assert done.figures["unfinished"] == 1


def test_equal_seeds_give_equal_histories_and_other_seeds_others() -> None:
    scenario = make_scenario(**BUSY)
    first, second, other = (run(scenario, seed=seed) for seed in (1, 1, 2))
    assert first.samples == second.samples
    assert first.figures == second.figures
    assert first.samples != other.samples


@pytest.mark.parametrize("policy", policy_names())
def test_every_policy_finishes_the_work_without_a_problem(policy: str) -> None:
    done = run(make_scenario(**BUSY | {"duration_s": 2000}), policy)
    assert done.figures["unfinished"] == 0
    assert 0 < done.figures["utilisation"] <= 1
    assert done.figures["useful_utilisation"] <= done.figures["utilisation"] + 1e-9
    highest = max(sample.requested for sample in done.samples)
    assert highest <= 32
