"""The policies of a job for its pod events: every event, action, mode and role."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest

from edl.lifecycle.desired_state import JobContext
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import RolePolicy
from edl.model.names import Role
from edl.model.pods import PodPhase
from edl.model.status import JobPhase
from tests.worlds.job_by_spec import Life, fault_tolerant, gang
from tests.worlds.job_by_target import KEY

MODES: dict[str, Callable[..., Life]] = {"fault-tolerant": fault_tolerant, "gang": gang}
FIRST = {Role.MASTER: "a-master-0", Role.PSERVER: "a-pserver-1", Role.TRAINER: "a-trainer-1"}
FAILED, EVICTED, COMPLETED = JobEvent.POD_FAILED, JobEvent.POD_EVICTED, JobEvent.TASK_COMPLETED


def roles(mode: str) -> Iterable[Role]:
    return (Role.PSERVER, Role.TRAINER) if mode == "gang" else Role


def happen(life: Life, role: Role, event: JobEvent) -> None:
    if event is FAILED:
        life.world.finish(KEY, FIRST[role], 3)
    elif event is EVICTED:
        life.evict(FIRST[role])
    else:
        life.finish_all(role)


def cases() -> Iterator[tuple[str, Role, JobEvent, JobAction]]:
    for mode in MODES:
        for role in roles(mode):
            for event in (FAILED, EVICTED, COMPLETED):
                yield from ((mode, role, event, action) for action in JobAction)


@pytest.mark.parametrize(("mode", "role", "event", "action"), list(cases()))
def test_every_policy_is_carried_out(mode: str, role: Role, event: JobEvent, action: JobAction) -> None:
    life = MODES[mode](policies=(RolePolicy(role, event, action),))
    before, names = life.uids, life.names
    happen(life, role, event)
    life.settle()
    message = life.status.explanation
    if action is JobAction.ABORT_JOB:
        assert (life.phase, life.status.reason) == (JobPhase.FAILED, "Aborted")
        assert life.condition("Failed").status == "True"
        assert not [p for p in life.job.pods if not p.is_finished]
    elif action is JobAction.COMPLETE_JOB:
        assert (life.phase, life.status.reason) == (JobPhase.SUCCEEDED, "Finished")
        assert {p.role for p in life.job.pods} <= {Role.TRAINER}
        assert all(p.is_finished for p in life.job.pods)
    else:
        assert life.phase is JobPhase.RUNNING
        assert life.names >= names - {FIRST[role]} if mode == "fault-tolerant" else life.names == names
        touched = {p for p in before if p not in life.uids}
        if action is JobAction.RESTART_JOB:
            assert touched == before, "no pod of the previous run is left"
            assert life.event_reasons.count("Restarting") == 1
        else:
            assert len(touched) == (sum(n.startswith(f"a-{role}-") for n in names) if event is COMPLETED else 1)
            assert "Restarting" not in life.event_reasons
    if action in {JobAction.ABORT_JOB, JobAction.COMPLETE_JOB} and (role, event) != (Role.TRAINER, COMPLETED):
        assert f"the policy for {event} of the {role} is {action}" in message
    assert life.status.failures == (event is FAILED)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("event", [FAILED, EVICTED])
def test_without_policies_the_mode_decides_the_action(mode: str, event: JobEvent) -> None:
    for role in roles(mode):
        life = MODES[mode]()
        before = life.uids
        happen(life, role, event)
        life.settle()
        assert life.phase is JobPhase.RUNNING
        assert len(before - life.uids) == (len(before) if mode == "gang" else 1)


@pytest.mark.parametrize("mode", MODES)
def test_completed_pservers_do_not_complete_the_job(mode: str) -> None:
    life = MODES[mode]()
    trainers = {p.uid for p in life.job.live_trainers}
    life.finish_all(Role.PSERVER)
    life.settle()
    assert {p.uid for p in life.job.live_trainers} == trainers
    assert (life.status.failures, life.phase) == (0, JobPhase.RUNNING)
    life.finish_all(Role.TRAINER)
    life.settle()
    assert life.phase is JobPhase.SUCCEEDED


def test_the_completion_of_the_trainers_overrides_other_events() -> None:
    life = gang(policies=(RolePolicy(Role.PSERVER, EVICTED, JobAction.ABORT_JOB),), backoff_limit=0)
    life.finish_all(Role.TRAINER)
    life.evict("a-pserver-0")
    life.world.finish(KEY, "a-pserver-1", 1)
    life.settle()
    assert life.phase is JobPhase.SUCCEEDED


def test_of_two_events_the_more_drastic_action_is_taken() -> None:
    life = fault_tolerant(
        policies=(
            RolePolicy(Role.TRAINER, FAILED, JobAction.RESTART_JOB),
            RolePolicy(Role.PSERVER, FAILED, JobAction.ABORT_JOB),
        )
    )
    life.world.finish(KEY, "a-trainer-0", 1)
    life.world.finish(KEY, "a-pserver-0", 134)
    life.settle()
    assert life.status.reason == "Aborted"
    assert "a-pserver-0 exited with code 134" in life.status.explanation


def test_a_policy_that_ends_the_job_overrides_the_backoff_limit() -> None:
    life = gang(policies=(RolePolicy(Role.TRAINER, FAILED, JobAction.COMPLETE_JOB),), backoff_limit=0)
    life.world.finish(KEY, "a-trainer-0", 1)
    life.settle()
    assert life.phase is JobPhase.SUCCEEDED


@pytest.mark.parametrize("mode", MODES)
def test_our_own_deletions_are_no_events(mode: str) -> None:
    policies = tuple(RolePolicy(role, event, JobAction.ABORT_JOB) for role in Role for event in (FAILED, EVICTED))
    life = MODES[mode](policies=policies)
    life.edit(suspended=True)
    life.settle(3)
    assert life.phase.value == "Suspended"
    life.edit(suspended=False)
    life.settle()
    assert life.phase is JobPhase.RUNNING
    life.settle(1, admitted=False, target=0)
    life.round(admitted=False, target=0)
    assert all(p.terminating for p in life.job.pods)
    life.settle()
    assert life.phase is JobPhase.RUNNING


def test_a_pserver_that_vanished_counts_as_evicted() -> None:
    life = fault_tolerant(policies=(RolePolicy(Role.PSERVER, EVICTED, JobAction.ABORT_JOB),))
    life.world.drop(KEY, "a-pserver-0")
    life.settle()
    assert life.status.reason == "Aborted"
    assert "a pserver pod no longer exists" in life.status.explanation


def test_a_pserver_that_a_new_spec_asks_for_has_not_vanished() -> None:
    life = fault_tolerant(policies=(RolePolicy(Role.PSERVER, EVICTED, JobAction.ABORT_JOB),))
    life.edit(fixed=(life.job.fixed[0], replace(life.job.fixed[1], count=3)))
    life.settle()
    assert life.phase is JobPhase.RUNNING
    assert "a-pserver-2" in life.names


def test_a_pod_on_a_missing_node_counts_as_evicted() -> None:
    life = fault_tolerant(policies=(RolePolicy(Role.TRAINER, EVICTED, JobAction.RESTART_JOB),))
    before = life.uids
    life.context = JobContext(unreachable=frozenset({life.uid("a-trainer-2")}))
    life.settle()
    assert life.phase is JobPhase.RUNNING
    assert not before & life.uids
    assert life.status.failures == 0


def test_pods_that_fail_because_their_job_restarts_are_not_counted() -> None:
    life = gang(backoff_limit=1)
    life.world.finish(KEY, "a-pserver-0", 1)
    life.round()
    for pod in life.job.pods:
        if pod.terminating:
            life.world.change(
                KEY, pod.name, terminating=False, intent="", exit_code=1, phase=PodPhase.FAILED, node=""
            )
    life.settle()
    assert life.phase is JobPhase.RUNNING
    assert life.status.failures == 1


def test_pods_of_a_gang_that_fail_together_are_one_failure_even_if_the_marks_came_apart() -> None:
    life = gang(backoff_limit=1)
    stored = life.status
    life.world.finish(KEY, "a-trainer-0", 1)
    life.world.finish(KEY, "a-trainer-1", 1)
    life.round()
    life.world.add(replace(life.job, status=stored))
    life.world.change(KEY, "a-trainer-1", intent="")
    life.settle()
    assert life.phase is JobPhase.RUNNING
    assert life.status.failures == 1
