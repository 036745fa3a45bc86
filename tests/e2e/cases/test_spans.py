"""What is recorded of a pod's life, and how the simulator takes it over."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from edl.sim.scenario_file import read_scenario
from tests.e2e.cases.controller_log import times_of
from tests.e2e.cases.spans import Spans, as_seen

LOG = """\
t=2026-11-25T06:46:41+0000 lvl=info msg=decision job=default/job-0 target=60 reason=AtMax message="60 of 60"
t=2026-11-25T06:46:41+0000 lvl=dbug msg=plan jobs=1 objective=fulfilment gap=0.0 short=0 seconds=0.129 cut=""
t=2026-11-25T06:46:41+0000 lvl=dbug msg=action action=CreatePod result=Done job=default/job-0 seconds=0.250 trace=1f
t=2026-11-25T06:46:41+0000 lvl=dbug msg=action action=ProbePod result=Unchanged job=default/job-0 seconds=0.057
t=2026-11-25T06:46:42+0000 lvl=dbug msg=action action=DeletePod result=Done job=default/job-0 seconds=0.100 trace=1f
"""
REFUSED = [{"type": "PodScheduled", "status": "False"}]


def pod(node: str = "", phase: str = "Pending", *, deleted: bool = False, **status: Any) -> dict[str, Any]:
    metadata = {"name": "web-1"} | ({"deletionTimestamp": "2026-11-25T09:00:00Z"} if deleted else {})
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": {"phase": phase, **status}}


def a_life() -> Spans:
    """A serving pod that finds no node, waits for a victim, runs and is deleted."""
    spans = Spans()
    spans.see("u", pod(), "serving", 10.0)
    spans.see("u", pod(conditions=REFUSED), "serving", 10.5)
    spans.see("u", pod(conditions=REFUSED, nominatedNodeName="n-1"), "serving", 10.75)
    spans.see("u", pod("n-1"), "serving", 19.0)
    spans.see("u", pod("n-1", "Running"), "serving", 21.0)
    spans.see("u", pod("n-1", "Running", deleted=True), "serving", 30.0)
    spans.see("u", None, "serving", 32.0)
    return spans


def test_each_step_of_a_pod_has_its_time() -> None:
    seen = {what: seconds for (what, role), seconds in a_life().seconds.items() if role == "serving"}
    assert seen == {"try": [0.5], "nominate": [0.75], "bind": [9.0], "start": [2.0], "stop": [2.0]}


def test_the_time_of_a_try_begins_when_the_scheduler_was_done_with_the_pod_before() -> None:
    spans = Spans()
    for name in ("a", "b", "c"):
        spans.see(name, pod(), "serving", 10.0)
    spans.see("a", pod("n-1"), "serving", 10.25)
    spans.see("b", pod(conditions=REFUSED, nominatedNodeName="n-1"), "serving", 10.75)
    spans.see("c", pod(conditions=REFUSED), "serving", 11.75)
    spans.see("c", pod("n-2"), "serving", 19.0)
    seen = {what: seconds for (what, role), seconds in spans.seconds.items() if role == "scheduler"}
    assert seen == {"place": [0.25], "preempt": [0.5], "refuse": [1.0]}, "only first tries count"


def test_the_simulator_takes_over_the_means() -> None:
    scenario = read_scenario(Path(__file__).parents[3] / "example" / "scenarios" / "edl2017-case2.yaml")
    spans = {
        "serving start": [9, 2.0, 2.5, 4.5, 3.0],
        "scheduler preempt": [9, 0.1, 0.1, 0.2, 0.125],
        "controller plan": [9, 0.25, 0.5, 1.5, 0.75],
        "controller write": [9, 0.01, 0.02, 0.2, 0.05],
        "controller pace": [9, 0.001, 0.005, 0.02, 0.008],
    }
    seen = as_seen(scenario, spans)
    assert (seen.latency.decide_s, seen.latency.write_s) == ((0.25, 1.25), 0.01)
    assert seen.latency.writes_per_s == 125
    assert seen.latency.start_of("serving") == (2.0, 4.0)
    assert seen.latency.stop_of("trainer") == scenario.latency.stop_of("trainer")
    assert (seen.scheduler.preempt_s, seen.scheduler.pod_s) == (0.125, scenario.scheduler.pod_s)


def test_the_log_of_the_controller_says_how_long_plans_and_writes_took() -> None:
    found = times_of(LOG.splitlines())
    assert found == {("plan", "controller"): [0.129], ("write", "controller"): [0.25, 0.1]}


def test_a_pod_that_was_there_before_has_no_times_of_binding_and_starting() -> None:
    spans = Spans()
    spans.see("u", pod("n-1", "Running"), "trainer", 5.0)
    spans.see("u", pod("n-1", "Running", deleted=True), "trainer", 6.0)
    spans.see("u", pod("n-1", "Succeeded", deleted=True), "trainer", 14.0)
    spans.see("u", None, "trainer", 14.5)
    assert dict(spans.seconds) == {("stop", "trainer"): [8.0]}, (
        "its node is free when it has ended, not when it is gone"
    )


def test_what_happened_to_each_pod_can_be_written(tmp_path: Path) -> None:
    a_life().write(tmp_path / "pods.csv")
    (row,) = csv.DictReader((tmp_path / "pods.csv").read_text().splitlines())
    assert (row["name"], row["node"], row["nominated_s"], row["over_s"]) == ("web-1", "n-1", "10.75", "32.0")
