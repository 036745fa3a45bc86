"""Quota `count/pods` counts finished pods: plans do, too, and those that ended jobs keep make way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from edl.controller.planning import plan_snapshot
from edl.kube.translate.books.pod_book import STILL_COUNTED_S
from edl.kube.translate.snapshot import Translator
from edl.lifecycle.desired_state import JobContext, desired_state
from edl.model.actions import CreatePod, DeletePod, Result
from edl.model.cluster import ClusterSnapshot, ResourceQuota
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision
from edl.model.pods import PodPhase
from edl.model.resources import POD_OBJECTS
from edl.model.status import Condition, JobPhase, JobStatus, RoleCount
from edl.planner.queues.kept_pods import pods_in_the_way
from edl.planner.quota import QuotaNow
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.fakes import Compared
from tests.worlds.raw_objects import (
    Object,
    batch_job,
    batch_pod,
    job,
    node,
    pod,
    ray_cluster,
    ray_pod,
    take,
    volcano_job,
    volcano_pod,
)
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living

ADMITTED = Condition("Admitted", "True", "AtMax", "", 0.0)


def ended(name: str, kept: int, *, at_s: float = 10.0, **fields: Any) -> Job:
    """A job that has succeeded and keeps finished trainers."""
    done = make_job(name, trainers=kept, min_trainers=1, max_trainers=9, on=("n000",))
    pods = tuple(replace(one, phase=PodPhase.SUCCEEDED, uid=f"{name}-{one.index}") for one in done.pods)
    status = JobStatus(JobPhase.SUCCEEDED, "Finished", completion_s=at_s)
    return replace(done, pods=pods, finished=True, status=status, **fields)


def waiting(name: str, desired: int, **fields: Any) -> Job:
    """A job that a plan has admitted, and that has no pods yet."""
    new = make_job(name, min_trainers=desired, max_trainers=desired)
    status = JobStatus(JobPhase.CREATING, "AtMax", conditions=(ADMITTED,), trainer=RoleCount(desired))
    return replace(new, status=status, **fields)


def capped(hard: int, *jobs: Job, used: int = 0, others: int = 0) -> ClusterSnapshot:
    count = ((POD_OBJECTS, others),) if others else ()
    quota = ResourceQuota("default", "objects", ((POD_OBJECTS, hard),), ((POD_OBJECTS, used),), count)
    return replace(make_snapshot(make_nodes(4, cpu=8), tuple(jobs)), resource_quotas=(quota,))


def decision_of(snapshot: ClusterSnapshot, name: str) -> ScaleDecision:
    return next(d for d in plan_snapshot(snapshot, "", Limits()).decisions if d.job.name == name)


def test_pods_that_an_ended_job_keeps_are_no_reason_to_wait() -> None:
    found = decision_of(
        capped(6, ended("first", 3), make_job("second", min_trainers=3, max_trainers=4), used=3), "second"
    )
    assert (found.admitted, found.target) == (True, 4)


@pytest.mark.parametrize("gang", [True, False])
def test_what_others_fill_is_named_with_its_quota_and_numbers(gang: bool) -> None:
    second = replace(make_job("second", min_trainers=3, max_trainers=4), gang=gang)
    found = decision_of(capped(6, second, used=4, others=4), "second")
    assert (found.admitted, found.reason) == (False, "QuotaReached")
    assert found.message == "waits for quota of ResourceQuota objects of namespace default"
    assert (
        "pods that edl does not plan use 4 pods by count/pods of its quota of 6 pods by count/pods" in found.account
    )


def test_a_job_grows_up_to_it_and_says_so() -> None:
    running = make_job("a", trainers=2, min_trainers=1, max_trainers=9, on=("n000",))
    found = decision_of(capped(6, running, used=5, others=3), "a")
    assert (found.target, found.reason) == (3, "QuotaReached")
    assert found.message == (
        "3 of 9: ResourceQuota objects of namespace default uses all of its quota of 6 pods by count/pods;"
        " a trainer requests 1 pod by count/pods"
    )


def test_finished_pods_of_a_running_job_count_as_they_stay() -> None:
    running = make_job("a", trainers=3, min_trainers=1, max_trainers=9, on=("n000",))
    one_failed = replace(running, pods=(*running.pods[:2], replace(running.pods[2], phase=PodPhase.FAILED)))
    assert decision_of(capped(6, one_failed), "a").target == 5


def test_the_start_of_a_pod_counts_what_the_decision_counts() -> None:
    new = waiting("b", 2)
    assert not QuotaNow(capped(5, ended("first", 5), new)).has(new, Role.TRAINER)
    assert QuotaNow(capped(6, ended("first", 5), new)).has(new, Role.TRAINER)


@pytest.mark.parametrize(("overdue_s", "may_start"), [(-1.0, False), (29.0, False), (30.0, True)])
def test_a_start_waits_for_a_dead_node_no_longer_than_the_api_server_charges_its_pods(
    overdue_s: float, may_start: bool
) -> None:
    stuck = make_job("stuck", trainers=4, on=("n000",))
    ends: dict[str, Any] = {"terminating": True, "ends_by_s": 1000.0 - overdue_s, "grace_s": 30}
    held = replace(stuck, pods=tuple(replace(pod, **ends) for pod in stuck.pods))
    quota = ResourceQuota("default", "cpus", hard=(("cpu", 4000),))
    snapshot = replace(make_snapshot(make_nodes(2), (held, waiting("new", 1))), observed_at_s=1000.0)
    now = QuotaNow(replace(snapshot, resource_quotas=(quota,)))
    assert now.has(waiting("new", 1), Role.TRAINER) is may_start


def test_as_many_kept_pods_make_way_as_are_needed_those_of_the_first_end_first() -> None:
    late, early = ended("late", 3, at_s=20.0), ended("early", 2, at_s=10.0)
    assert pods_in_the_way(capped(6, late, early, waiting("new", 4))) == {"early-0", "early-1", "late-0"}
    assert pods_in_the_way(capped(6, late, early, waiting("new", 1))) == frozenset()
    assert pods_in_the_way(capped(6, late, early, waiting("new", 1), others=1)) == {"early-0"}


def test_those_that_terminate_already_and_a_late_count_of_the_api_server_are_no_reason_for_more() -> None:
    early = ended("early", 5)
    going = replace(early, pods=tuple(replace(pod, terminating=pod.index == 0) for pod in early.pods))
    assert pods_in_the_way(capped(6, early, waiting("new", 2), used=6)) == {"early-0"}
    assert pods_in_the_way(capped(6, going, waiting("new", 2), used=6)) == frozenset()


def test_none_makes_way_for_a_job_that_is_not_admitted_or_suspended_or_in_another_namespace() -> None:
    first = ended("first", 5)
    for other in (
        make_job("new", min_trainers=4),
        waiting("new", 4, suspended=True),
        waiting("new", 4, problem="no"),
    ):
        assert pods_in_the_way(capped(5, first, other)) == frozenset()
    elsewhere = replace(waiting("new", 4), key=JobKey("elsewhere", "new"))
    assert pods_in_the_way(capped(5, first, elsewhere)) == frozenset()


def test_a_kept_pod_makes_way_with_its_reason() -> None:
    first = ended("first", 2)
    _, actions = desired_state(first, None, (), 100.0, JobContext(in_the_way=frozenset({"first-0"})))
    (gone,) = (action for action in actions if isinstance(action, DeletePod))
    assert (gone.pod_uid, gone.intent) == ("first-0", "QuotaReached")


@pytest.fixture
def living() -> Iterator[Living]:
    with closing(Living(make_nodes(4, cpu=8))) as made:
        quota = ResourceQuota("default", "objects", ((POD_OBJECTS, 6),))
        made.do(lambda world: world.quotas.update({"default": quota}))
        yield made


def finish(world: World, name: str) -> None:
    """Every trainer of a job ends with success."""
    for pod_name in [one.name for one in world.job(JobKey("default", name)).live_trainers]:
        world.finish(pod_name)


def test_a_second_job_starts_although_the_first_one_kept_its_pods(living: Living) -> None:
    living.do(lambda world: world.add(make_job("first", min_trainers=3, max_trainers=3)))
    living.settle()
    living.do(lambda world: finish(world, "first"))
    living.settle()
    kept = len(living.world.pods)
    living.do(lambda world: world.add(replace(make_job("second", min_trainers=3, max_trainers=4), gang=True)))
    living.settle()
    assert (kept, living.trainers(JobKey("default", "second"))) == (3, 4)
    assert len(living.world.pods) <= 6
    made = [o for o in living.recorder.outcomes if isinstance(o.action, CreatePod)]
    assert not [o for o in made if o.result is Result.REFUSED]


def quota(**status: Any) -> Object:
    metadata = {"name": "objects", "namespace": "ads"}
    hard = {"count/pods": "6", "pods": "9"}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": hard},
        "status": status,
    }


def test_finished_pods_of_nobody_are_known_by_the_count_of_the_api_server() -> None:
    web, own = pod("web"), batch_pod("a", ready_at=1)
    (found,) = take(job(), batch_job(), own, web, quota(used={"count/pods": "5", "pods": "2"})).resource_quotas
    assert dict(found.hard) == {POD_OBJECTS: 6, "pods": 9}
    assert dict(found.others) == {POD_OBJECTS: 4, "pods": 1}
    (unknown,) = take(job(), web, quota()).resource_quotas
    assert dict(unknown.others)[POD_OBJECTS] == 1


def test_a_pod_that_is_just_gone_is_none_that_only_the_api_server_knows() -> None:
    """The quota follows a deletion some time later."""
    translator, counted = Translator(), quota(used={"count/pods": "3"})
    first, second = (batch_pod(f"a-{i}", ready_at=1) for i in range(2))

    def unlisted(now_s: float, *pods: Object) -> int:
        (found,) = take(job(), batch_job(), *pods, counted, now_s=now_s, translator=translator).resource_quotas
        return dict(found.others)[POD_OBJECTS]

    assert unlisted(1000.0, first, second) == 1
    assert unlisted(1001.0, first) == 1
    assert unlisted(1001.0 + STILL_COUNTED_S, first) == 2
    assert unlisted(1002.0 + STILL_COUNTED_S, first, second) == 1


SUCCEEDED = [batch_pod(f"done-{i}", status={"phase": "Succeeded"}) for i in range(2)]
OTHERS: dict[str, list[Object]] = {
    "a Job that goes on beside its finished pods": [
        batch_job(spec={"completions": 20}, status={"succeeded": 2}),
        *SUCCEEDED,
        *(batch_pod(f"a-{i}", ready_at=1) for i in range(3)),
    ],
    "a Volcano Job with pservers": [
        volcano_job(),
        *(volcano_pod(f"ctr-{name}") for name in ("pserver-0", "pserver-1", "trainer-0", "trainer-1", "trainer-2")),
    ],
    "a RayCluster, and a finished pod of nobody": [
        ray_cluster(),
        ray_pod("ray-head-x", group="headgroup"),
        *(ray_pod(f"ray-workers-{name}") for name in "abc"),
    ],
}


@pytest.mark.parametrize("case", OTHERS)
def test_workloads_of_others_grow_up_to_it(case: str) -> None:
    (decision,) = plan_snapshot(take(node(), *OTHERS[case], quota(used={"count/pods": "5"})), "", Limits()).decisions
    assert (decision.target, decision.reason) == (4, "QuotaReached")
    assert "uses all of its quota of 6 pods by count/pods" in decision.message


def test_each_job_is_compared_with_the_quotas_of_its_own_namespace_alone() -> None:
    jobs = tuple(make_job(f"j{number}", namespace=Compared(f"n{number % 50}")) for number in range(200))
    quotas = tuple(ResourceQuota(Compared(f"n{number}"), "q", ((POD_OBJECTS, 9),)) for number in range(50))
    snapshot = replace(make_snapshot(make_nodes(1), jobs), resource_quotas=quotas)
    Compared.times = 0
    assert not pods_in_the_way(snapshot)
    assert Compared.times < 5 * len(jobs)
