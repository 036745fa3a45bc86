"""A trainer has ended once its own containers have, whatever a webhook added beside them (istio 11045)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edl.controller.planning import plan_snapshot
from edl.lifecycle.desired_state import desired_state
from edl.lifecycle.pod_events import pod_events
from edl.model.actions import DeletePod, Intent, MarkPod
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.pods import PodPhase
from edl.model.status import JobPhase, JobStatus
from tests.worlds.rules.scenes import Object, job, members, node, nodes, plan, pod, snapshot, victims

RUNS: Object = {"running": {"startedAt": "2026-01-05T10:00:00Z"}}


def ended(code: int) -> Object:
    return {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}


def trainers(count: int, **states: Object) -> list[Object]:
    """The pods of job t: a master, and trainers whose containers are in these states."""
    pods = members("t", *["n0"] * count)
    for one in pods[1:]:
        (own,) = one["spec"]["containers"]
        one["spec"]["containers"] = [
            {**own, "name": name} if name == "trainer" else {"name": name, "image": "x"} for name in states
        ]
        one["status"] = {
            "phase": "Running",
            "containerStatuses": [{"name": name, "state": state} for name, state in states.items()],
        }
    return pods


def gang(template: Object | None = None, **status: Any) -> Object:
    """A job of three trainers that runs."""
    found = job("t", 3, 3, template, fault_tolerant=False, master={})
    admitted = {"type": "Admitted", "status": "True", "reason": "AtMax", "message": ""}
    return found | {"status": {"phase": "Running", "conditions": [admitted], **status}}


def read(*objects: Object | list[Object]) -> Job:
    (found,) = snapshot(*objects).jobs
    return found


def phases(of: Job) -> set[PodPhase]:
    return {one.phase for one in of.pods if one.role == "trainer"}


@pytest.mark.parametrize("proxy", ["istio-proxy", "linkerd-proxy"])
@pytest.mark.parametrize(("code", "phase"), [(0, PodPhase.SUCCEEDED), (7, PodPhase.FAILED)])
def test_a_container_that_admission_added_keeps_no_trainer_from_its_end(
    proxy: str, code: int, phase: PodPhase
) -> None:
    found = read(nodes(1), job("t"), trainers(3, trainer=ended(code), **{proxy: RUNS}))
    assert phases(found) == {phase}
    assert {pod.exit_code for pod in found.pods if pod.role == "trainer"} == {code}
    assert phases(read(nodes(1), job("t"), trainers(3, trainer=RUNS, **{proxy: RUNS}))) == {PodPhase.RUNNING}


def test_a_pod_whose_kubelet_has_yet_to_say_that_it_has_ended_is_left_alone() -> None:
    """Else edl would delete it with its log, which Kubernetes keeps for pods that completed."""
    for states in ({"trainer": ended(0)}, {"trainer": ended(0), "proxy": ended(0)}):
        assert phases(read(nodes(1), job("t"), trainers(3, **states))) == {PodPhase.RUNNING}


def test_a_container_that_its_kubelet_may_start_again_has_not_ended() -> None:
    again = {"containers": [{"name": "trainer", "restartPolicy": "OnFailure"}]}
    found = read(nodes(1), job("t", 1, 40, again), trainers(3, trainer=ended(1), proxy=RUNS))
    assert (found.problem, phases(found)) == ("", {PodPhase.RUNNING})


def test_the_containers_of_its_own_template_are_waited_for() -> None:
    helper = {
        "containers": [{"name": "upload", "image": "x", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}]
    }
    scene = (nodes(1), job("t", 1, 40, helper))
    saving = trainers(3, trainer=ended(0), upload=RUNS, proxy=RUNS)
    assert phases(read(*scene, saving)) == {PodPhase.RUNNING}
    saved = trainers(3, trainer=ended(0), upload=ended(0), proxy=RUNS)
    assert phases(read(*scene, saved)) == {PodPhase.SUCCEEDED}
    found = read(*scene, trainers(3, trainer=ended(0), upload=ended(5), proxy=RUNS))
    (what,) = {(pod.phase, pod.exit_code, pod.ended_in) for pod in found.pods if pod.role == "trainer"}
    assert what == (PodPhase.FAILED, 5, "container upload")


def test_a_job_ends_with_the_programs_of_its_trainers_and_their_pods_are_deleted() -> None:
    found = read(nodes(1), gang(), trainers(3, trainer=ended(0), proxy=RUNS))
    status, _ = desired_state(found, None, (), 2e9)
    assert (status.phase, status.explanation) == (JobPhase.SUCCEEDED, "all trainers exited with code 0")
    _, actions = desired_state(replace(found, status=status, finished=True), None, (), 2e9)
    going = {action.pod for action in actions if isinstance(action, DeletePod | MarkPod)}
    assert going >= {"t-trainer-0", "t-trainer-1", "t-trainer-2"}, "nobody else ends the container that runs on"


def test_a_program_that_failed_starts_again() -> None:
    scene = (nodes(1), job("t", 1, 3), trainers(3, trainer=ended(1), proxy=RUNS))
    (decision,) = plan(*scene).decisions
    status, actions = desired_state(read(*scene), decision, (), 2e9)
    marked = {action.pod for action in actions if isinstance(action, MarkPod)}
    assert (status.failures, marked) == (3, {"t-trainer-0", "t-trainer-1", "t-trainer-2"})


def test_a_pod_that_is_deleted_frees_its_node_soon_while_an_added_container_still_ends() -> None:
    """Nobody else ends for a serving pod that this one makes room for."""
    web = pod("web-0", cpu="5")
    going = trainers(7, trainer=ended(0), proxy=RUNS)
    for one in going[1 + 2 :]:
        one["metadata"] |= {"deletionTimestamp": "2026-01-05T10:00:30Z", "deletionGracePeriodSeconds": 30}
    for one in going[1 : 1 + 2]:
        one["status"]["containerStatuses"][0]["state"] = RUNS
    found = plan(nodes(1), job("t"), going, web)
    assert (victims(found), found.serving.placed) == ([], 1)


def test_the_end_of_the_pod_of_a_completed_trainer_starts_no_gang_again() -> None:
    """Somebody deletes it, such as a drain, while the others train on."""
    pods = trainers(3, trainer=RUNS, proxy=RUNS)
    pods[1]["status"]["containerStatuses"][0]["state"] = ended(0)
    pods[1]["metadata"] |= {"deletionTimestamp": "2026-01-05T10:00:30Z", "deletionGracePeriodSeconds": 30}
    found = read(nodes(1), gang(), pods)
    assert found.status is not None
    assert pod_events(replace(found, status=replace(found.status, completed=(0,))), frozenset()) == ()


@pytest.mark.parametrize("fault_tolerant", [True, False])
def test_a_completed_trainer_leaves_its_node_once_the_status_knows_it(fault_tolerant: bool) -> None:
    """Else a serving pod would wait for its end, while the others train on."""
    wish = gang() | (job("t", 3, 3) if fault_tolerant else {})
    pods = trainers(3, trainer=RUNS, proxy=RUNS)[0 if fault_tolerant else 1 :]
    pods[-3]["status"]["containerStatuses"][0]["state"] = ended(0)
    found = read(nodes(1), wish, pods)
    known = replace(found, status=replace(found.status or JobStatus(), completed=(0,)))
    (decision,) = plan(nodes(1), wish, pods).decisions
    seen = [desired_state(one, decision, (), 2e9)[1] for one in (found, known)]
    going = [{a.pod for a in actions if isinstance(a, DeletePod | MarkPod)} for actions in seen]
    assert going == [set(), {"t-trainer-0"}]


@pytest.mark.parametrize("terminating", [False, True])
def test_a_job_has_ended_although_pods_of_completed_trainers_still_go(terminating: bool) -> None:
    pods = trainers(3, trainer=ended(0), proxy=RUNS)
    found = read(nodes(1), gang() | job("t", 1, 3), pods)
    gone = replace(found.pods[1], intent=Intent.REPLACED.value, terminating=terminating)
    status = replace(found.status or JobStatus(), completed=(0,))
    left = replace(found, status=status, pods=(found.pods[0], gone, *found.pods[2:]))
    assert (gone.name, desired_state(left, None, (), 2e9)[0].phase) == ("t-trainer-0", JobPhase.SUCCEEDED)


@pytest.mark.parametrize(("code", "needed"), [(0, 1), (1, 3)])
def test_its_node_has_no_capacity_for_others_until_it_is_gone(code: int, needed: int) -> None:
    scene = (node("n0", cpu="8"), gang(), trainers(3, trainer=ended(code), proxy=RUNS))
    plan = plan_snapshot(snapshot(*scene, job("u")), "", Limits())
    found = {decision.job.name: decision.target for decision in plan.decisions}
    assert found == {"t": needed, "u": 7 - 3 - needed}, "of eight cores two masters have a tenth"
