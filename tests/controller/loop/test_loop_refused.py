"""A job whose pods the API server refuses: it is planned for what it was allowed, and costs nobody a trainer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from operator import methodcaller

import pytest

from edl.controller.loop import Controller
from edl.model.actions import (
    Action,
    CreatePod,
    DeletePod,
    EnsurePodGroup,
    EnsureService,
    Outcome,
    PatchStatus,
    ProbePod,
    Result,
)
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.plan import ScalePlan
from edl.model.status import JobPhase
from tests.controller.loop_stage import Stage, at_work, play
from tests.worlds.builders import make_job, make_nodes, make_shape
from tests.worlds.simulated_controller import Living

A, B = JobKey("default", "a"), JobKey("team-b", "b")
QUOTA = 'pods "b-trainer-0" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0'


@pytest.fixture
def living() -> Iterator[Living]:
    with closing(Living(make_nodes(5, cpu=4))) as made:
        made.do(lambda w: w.add(make_job("a", min_trainers=2, max_trainers=20)))
        made.settle()
        assert made.trainers(A) == 20
        yield made


def refuse(
    living: Living, most: int = 0, *, message: str = QUOTA, probes: bool = True, reason: str = "Forbidden"
) -> None:
    """The API server accepts so many pods of job b and no more; `probes`: it judges dry runs too."""

    def judge(action: Action) -> tuple[bool, Outcome] | None:
        if not isinstance(action, CreatePod | ProbePod) or action.job != B:
            return None
        if isinstance(action, ProbePod) and not probes:
            return None
        pods = sum(namespace == B.namespace for namespace, _ in living.world.pods)
        return (False, Outcome(action, Result.REFUSED, reason, message)) if pods >= most else None

    living.world.fault = judge


def for_an_hour(living: Living, look: Callable[[], None]) -> None:
    for _ in range(90):
        living.step(40.0)
        look()


def test_nobody_is_shrunk_for_a_job_all_of_whose_pods_are_refused(living: Living) -> None:
    refuse(living)
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    counts: set[int] = set()
    for_an_hour(living, lambda: counts.add(living.trainers(A)))
    assert counts == {20}
    assert living.status_of(B).explanation == "ResourceQuota none of its namespace is used up"
    assert living.status_of(B).reason == "QuotaReached"
    degraded = living.status_of(B).condition("Degraded")
    assert degraded is not None
    assert (degraded.status, degraded.message) == ("True", QUOTA)
    assert "b" not in living.status_of(A).explanation.split(), "the line of a does not say that b holds the capacity"


def test_a_refused_job_is_asked_for_again_after_growing_pauses_and_starts_once_it_may(living: Living) -> None:
    refuse(living)
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    for_an_hour(living, lambda: None)
    asked = [o for o in living.recorder.outcomes if isinstance(o.action, CreatePod | ProbePod) and o.action.job == B]
    assert 10 <= len(asked) <= 20, "after 5 s, 10 s, 20 s and so on to 300 s"
    living.world.fault = lambda _: None
    for _ in range(30):
        living.step(40.0)
    assert living.trainers(A) == living.trainers(B) == 10
    degraded = living.status_of(B).condition("Degraded")
    assert degraded is not None
    assert degraded.status == "False"
    assert not living.world.violations


def test_a_job_gets_what_it_is_allowed_and_the_rest_goes_to_the_others(living: Living) -> None:
    """The probe cannot foresee a limit on the number, so b is raised in small steps and then held."""
    refuse(living, most=4)
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    for _ in range(30):
        living.step(10.0)
    counts: list[tuple[int, int]] = []
    for_an_hour(living, lambda: counts.append((living.trainers(A), living.trainers(B))))
    assert {b for _, b in counts} == {4}
    assert min(a for a, _ in counts) >= 16, "a is not shrunk again for what b cannot have"
    assert living.status_of(B).explanation == "4 of 20: ResourceQuota none of its namespace is used up"


def test_a_server_that_accepts_dry_runs_and_refuses_pods_costs_one_trainer_at_a_time(living: Living) -> None:
    refuse(living, most=4, probes=False)
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    for _ in range(30):
        living.step(10.0)
    counts: list[int] = []
    for_an_hour(living, lambda: counts.append(living.trainers(A)))
    assert min(counts) >= 14
    assert sum(n == 16 for n in counts) >= 0.7 * len(counts)


def test_a_running_job_keeps_its_trainers_if_a_replacement_is_refused(living: Living) -> None:
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=4, max_trainers=20)))
    living.settle()
    before = living.trainers(B)
    assert before >= 10
    refuse(living, message='admission webhook "no.example.com" denied the request: never')
    living.do(lambda w: w.edit(B, min_trainers=10))
    living.settle()
    for i in range(3):
        living.do(methodcaller("_drop_pod", "team-b", f"b-trainer-{i}"))
    for _ in range(60):
        living.step(10.0)
    assert living.trainers(B) == before - 3, "fewer than the minimum of 10 go on"
    assert living.trainers(A) == 20 - (before - 3), "the capacity that b may not use is a's"
    assert 'admission webhook "no.example.com" rejects its pods' in living.status_of(B).explanation
    living.world.fault = lambda _: None
    for _ in range(30):
        living.step(40.0)
    assert living.trainers(B) >= 10


def test_a_gang_that_was_allowed_in_part_gives_its_room_back(living: Living) -> None:
    refuse(living, most=4, probes=False)
    gang = replace(make_job("b", namespace="team-b", min_trainers=8, max_trainers=8), fault_tolerant=False)
    living.do(lambda w: w.add(gang))
    held: list[int] = []
    for _ in range(180):
        living.step(10.0)
        held.append(20 - living.trainers(A))
    assert sum(n > 0 for n in held[60:]) <= 0.25 * len(held[60:])
    assert living.status_of(B).phase is JobPhase.PENDING


def test_no_master_waits_for_trainers_that_are_refused(living: Living) -> None:
    living.world.fault = lambda a: (
        (False, Outcome(a, Result.REFUSED, "Forbidden", 'violates PodSecurity "restricted:latest": x'))
        if isinstance(a, CreatePod | ProbePod) and a.job == B and a.role is Role.TRAINER
        else None
    )
    fixed = (FixedPods(Role.MASTER, make_shape(0.25), 1),)
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20, fixed=fixed)))
    for_an_hour(living, lambda: None)
    assert not living.world.job(B).pods
    assert living.trainers(A) == 20
    assert living.status_of(B).explanation == 'PodSecurity "restricted:latest" rejects its pods'


def test_a_refused_service_is_tried_again_without_taking_room(living: Living) -> None:
    answers = [Result.REFUSED] * 3

    def judge(action: Action) -> tuple[bool, Outcome] | None:
        if isinstance(action, EnsureService) and action.job == B and answers:
            return False, Outcome(
                action, answers.pop(), "Forbidden", "exceeded quota: objects, requested: services=1"
            )
        return None

    living.world.fault = judge
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    for _ in range(20):
        living.step(40.0)
    assert not answers
    assert living.trainers(B) == 10


def test_a_new_spec_is_tried_at_once(living: Living) -> None:
    refuse(living)
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    for_an_hour(living, lambda: None)
    living.world.fault = lambda _: None
    living.do(lambda w: w.edit(B, max_trainers=10))
    for _ in range(4):
        living.step(5.0)
    assert living.trainers(B) >= 2


def test_a_job_that_is_suspended_is_no_longer_degraded(living: Living) -> None:
    refuse(living)
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    living.settle()
    living.do(lambda w: w.edit(B, suspended=True))
    living.settle()
    degraded = living.status_of(B).condition("Degraded")
    assert degraded is not None
    assert degraded.status == "False"


def test_the_refusal_of_one_job_stays_with_that_job_when_a_controller_starts_again(living: Living) -> None:
    refuse(living)
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    living.settle()
    counts: set[int] = set()
    for _ in range(5):
        living.crash()
        for _ in range(10):
            living.step(2.0)
            counts.add(living.trainers(A))
    assert counts == {20}
    assert not living.world.violations


def test_while_a_status_is_refused_its_events_are_not_sent_again_and_again(living: Living) -> None:
    def judge(action: Action) -> tuple[bool, Outcome] | None:
        is_status = isinstance(action, PatchStatus) and action.job == B
        return (False, Outcome(action, Result.REFUSED, "Forbidden", "a webhook denies it")) if is_status else None

    living.world.fault = judge
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    for _ in range(20):
        living.step(1.0)
    assert not [event.reason for event in living.world.events if event.job == B]
    living.world.fault = lambda _: None
    living.wait(300.0)
    living.settle()
    reasons = [event.reason for event in living.world.events if event.job == B]
    assert reasons.count("Admitted") == 1


def test_the_group_of_a_gang_exists_before_its_first_pod_is_asked_for(living: Living) -> None:
    groups: list[Action] = []

    def judge(action: Action) -> tuple[bool, Outcome] | None:
        if isinstance(action, EnsurePodGroup):
            groups.append(action)
        if isinstance(action, CreatePod | ProbePod) and action.job == B and not groups:
            message = 'podgroups.scheduling.volcano.sh "b" not found'
            return False, Outcome(action, Result.REFUSED, "Http400", message)
        return None

    living.world.fault = judge
    gang = replace(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20), gang=True)
    living.do(lambda w: w.add(gang))
    living.settle()
    assert living.trainers(B) == 10


@dataclass
class Moving(Stage):
    """The planner wants the last trainer of a job on another node."""

    def _decide(self, snapshot: ClusterSnapshot, limits: Limits) -> ScalePlan:
        plan = super()._decide(snapshot, limits)
        last = {job.key: job.live_trainers[-1].name for job in snapshot.jobs}
        moved = (replace(d, moves=(last[d.job],)) for d in plan.decisions)
        return replace(plan, decisions=tuple(moved))


def test_while_a_deletion_is_refused_no_event_claims_that_the_pod_moves() -> None:
    stage = Moving(targets={"a": 4})
    stage.world.add(make_job("a", trainers=4, min_trainers=1, max_trainers=4, on=("n000",)))
    tries: list[Action] = []

    def refuse_deletions(action: Action) -> Outcome | None:
        if not isinstance(action, DeletePod):
            return None
        tries.append(action)
        return Outcome(action, Result.REFUSED, "Forbidden", "not yours")

    async def script(controller: Controller) -> None:
        stage.cluster.policies = refuse_deletions
        async with at_work(controller):
            await asyncio.sleep(300)

    play(stage, script)
    assert stage.count(A) == 4
    assert 2 <= len(tries) < 30, "refused deletions are repeated after growing pauses"
    assert not [event for event in stage.world.events if event.reason == "Moved"]


BROKEN_OFF = "POST /api/v1/namespaces/team-b/pods: the API server cannot be reached: Server disconnected"


def fail_creations(
    living: Living, *, probes: bool = True, role: Role | None = None, result: Result = Result.FAILED
) -> None:
    """The API server fails at each creation of a pod of job b, as a policy may make it, and does the rest."""

    def judge(action: Action) -> tuple[bool, Outcome] | None:
        if not isinstance(action, CreatePod | ProbePod) or action.job != B or role not in {None, action.role}:
            return None
        if isinstance(action, ProbePod) and not probes:
            return None
        return False, Outcome(action, result, "Unavailable", BROKEN_OFF)

    living.world.fault = judge


def tries(living: Living) -> list[Action]:
    """The creations of pods of job b that were sent from now on."""
    sent: list[Action] = []
    judge = living.world.fault

    def note(action: Action) -> tuple[bool, Outcome] | None:
        if isinstance(action, CreatePod) and action.job == B:
            sent.append(action)
        return judge(action)

    living.world.fault = note
    return sent


@pytest.mark.parametrize("probes", [True, False])
@pytest.mark.parametrize("gang", [True, False])
def test_creations_that_fail_for_ever_are_told_and_cost_nobody_anything(
    living: Living, probes: bool, gang: bool
) -> None:
    fail_creations(living, probes=probes)
    sent = tries(living)
    high = 8 if gang else 20
    job = make_job("b", namespace="team-b", min_trainers=8 if gang else 2, max_trainers=high)
    living.do(lambda w: w.add(replace(job, fault_tolerant=not gang)))
    counts: set[int] = set()
    for _ in range(25):
        living.step(2.0)
    status = living.status_of(B)
    degraded = status.condition("Degraded")
    assert degraded is not None
    assert (degraded.status, degraded.reason) == ("True", "Unavailable")
    assert "Server disconnected" in degraded.message
    assert status.reason == "PodsRefused"
    early = len(sent)
    for_an_hour(living, lambda: counts.add(living.trainers(A)))
    assert max(counts) == 20, "the other job has again what it gave"
    assert min(counts) >= (20 if probes else 20 - job.min_trainers), "who lies when asked gets the minimum once more"
    assert len(sent) - early <= 20 * job.min_trainers
    living.world.fault = lambda _: None
    for_an_hour(living, lambda: None)
    assert living.trainers(B) >= (0 if gang else 2)
    found = living.status_of(B).condition("Degraded")
    assert found is not None
    assert found.status == "False"


@pytest.mark.parametrize("result", [Result.FAILED, Result.REFUSED])
@pytest.mark.parametrize("role", [None, Role.TRAINER, Role.MASTER])
def test_nobody_gives_anything_for_pods_whose_creation_breaks_off(
    living: Living, role: Role | None, result: Result
) -> None:
    """Not for the first answer either, and not because the API server accepts the pods of another role."""
    fail_creations(living, role=role, result=result)
    job = make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)
    living.do(lambda w: w.add(replace(job, fixed=(FixedPods(Role.MASTER, make_shape(0.25), 1),))))
    counts: set[int] = set()
    for _ in range(60):
        living.step(1.0)
        counts.add(living.trainers(A))
    for_an_hour(living, lambda: counts.add(living.trainers(A)))
    assert counts == {20}
    degraded = living.status_of(B).condition("Degraded")
    assert degraded is not None
    assert (degraded.status, degraded.message) == ("True", BROKEN_OFF)
    assert living.status_of(B).reason == "PodsRefused"
    living.world.fault = lambda _: None
    for_an_hour(living, lambda: None)
    assert living.trainers(B) >= 2


def test_a_job_that_runs_keeps_what_it_has_while_a_new_spec_cannot_be_asked_about(living: Living) -> None:
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=10)))
    living.settle()
    before = (living.trainers(A), living.trainers(B))
    fail_creations(living)
    living.do(lambda w: w.edit(B, max_trainers=20))
    for _ in range(60):
        living.step(1.0)
        assert (living.trainers(A), living.trainers(B)) == before
    degraded = living.status_of(B).condition("Degraded")
    assert degraded is not None
    assert degraded.status == "True"


def test_a_server_that_stays_busy_for_one_namespace_is_told_although_it_is_asked_again(living: Living) -> None:
    def busy(action: Action) -> tuple[bool, Outcome] | None:
        if not isinstance(action, CreatePod | ProbePod) or action.job.namespace != "team-b":
            return None
        return False, Outcome(action, Result.FAILED, "Unavailable", "too many requests", 1.0)

    living.world.fault = busy
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=4, max_trainers=4)))
    for _ in range(25):
        living.step(2.0)
    status = living.status_of(B)
    degraded = status.condition("Degraded")
    assert degraded is not None
    assert (degraded.status, degraded.message) == ("True", "too many requests")
    assert status.reason == "PodsRefused", "not *4 of 4: at its maximum*"
    assert living.trainers(A) == 20


def test_a_creation_that_fails_for_one_role_is_told_too(living: Living) -> None:
    fail_creations(living, role=Role.MASTER)
    job = make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)
    living.do(lambda w: w.add(replace(job, fixed=(FixedPods(Role.MASTER, make_shape(0.25), 1),))))
    for _ in range(25):
        living.step(2.0)
    degraded = living.status_of(B).condition("Degraded")
    assert degraded is not None
    assert (degraded.status, degraded.reason) == ("True", "Unavailable")
    assert living.trainers(A) == 20


def test_a_server_that_fails_at_every_write_refuses_no_job(living: Living) -> None:
    living.world.fault = lambda action: (False, Outcome(action, Result.FAILED, "Unavailable", "down"))
    living.do(lambda w: w.add(make_job("b", namespace="team-b", min_trainers=2, max_trainers=20)))
    for _ in range(20):
        living.step(2.0)
    living.world.fault = lambda _: None
    for _ in range(6):
        living.step(2.0)
    assert living.trainers(B) >= 2, "it starts as soon as the server writes again"
