"""TrainingJobs that Kueue admits: what their Workloads say, and the plan that follows."""

from __future__ import annotations

from typing import Any

import pytest

from edl.controller.planning import plan_snapshot
from edl.kube.translate.kueue.growth import ADMITTED_AT_LAST_S, ADMITTED_WITHIN_S
from edl.kube.translate.snapshot import Translator
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey
from edl.model.plan import ScaleDecision
from tests.worlds.kueue.objects import (
    cluster_queue,
    cohort,
    flavor,
    local_queue,
    own_workload,
    quota,
    resource_groups,
    workload,
)
from tests.worlds.raw_objects import Object, job, node, owned_by, take, trainer

ROOM = {"status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "250"}}}
NODES = (node("n1", **ROOM),)
BLUE = (*NODES, flavor(), local_queue("blue"), cluster_queue("blue", "10250m"))
SHARED = (
    *(*NODES, flavor(), cohort("all"), local_queue("blue"), local_queue("green")),
    *(cluster_queue("blue", "4250m", cohort="all"), cluster_queue("green", 6, cohort="all")),
)
KEY = JobKey("ads", "ctr")


def queued(high: int = 20, **more: Any) -> Object:
    """A TrainingJob of 2 trainers and more in LocalQueue blue."""
    trainers = {"min-instance": 2, "max-instance": high, "entrypoint": "x", "resources": {"requests": {"cpu": "1"}}}
    labels = {"kueue.x-k8s.io/queue-name": "blue"} | more.pop("labels", {})
    return job(spec={"trainer": trainers, **more}, metadata={"labels": labels})


def pods(count: int) -> list[Object]:
    """Its trainers, which run."""
    running: Object = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    return [trainer(i, owner=owned_by("uid-ctr"), spec={"nodeName": "n1"}, **running) for i in range(count)]


def seen(*objects: Object, **more: Any) -> Job:
    return next(found for found in take(*objects, **more).jobs if found.key == KEY)


def planned(snapshot: ClusterSnapshot) -> ScaleDecision:
    found = plan_snapshot(snapshot, "maxmin", Limits()).decision(KEY)
    assert found is not None
    return found


def admitted(count: int, start: int = 0) -> list[Object]:
    """A base of 2 trainers and Workloads for the others, all admitted."""
    return [own_workload(0, 2), *(own_workload(i, 1) for i in range(start + 1, start + count - 1))]


def test_a_job_is_barred_until_its_base_holds_quota() -> None:
    new = seen(*BLUE, queued())
    assert new.is_barred
    assert new.refusal
    assert new.refusal.message == "edl makes a Workload for it in LocalQueue blue of Kueue"
    waits = seen(*BLUE, queued(), own_workload(0, 2, state="waiting", message="insufficient quota for cpu"))
    assert waits.refusal
    assert waits.refusal.message == (
        "Workload ads/ctr-0 waits in LocalQueue blue of Kueue: insufficient quota for cpu"
    )
    assert not planned(take(*BLUE, queued(), own_workload(0, 2, state="waiting"))).admitted


def waiting(*indexes: int, at: int) -> list[Object]:
    """Workloads of one trainer each that wait; Kueue has tried the first, and the others are alike."""
    tried = own_workload(indexes[0], 1, state="waiting", at=at, message="insufficient quota for cpu")
    return [tried, *(own_workload(i, 1, state="waiting", at=at) for i in indexes[1:])]


def test_trainers_that_kueue_admits_one_by_one_have_their_time_each() -> None:
    """Kueue takes seconds for twelve of them on a busy machine, and those that are taken back cost a pause."""
    translator = Translator()
    before = seen(*BLUE, queued(), *admitted(2), *waiting(1, 2, 3, at=998), now_s=998.0, translator=translator)
    assert before.refusal is None
    after = *BLUE, queued(), *admitted(3), *waiting(2, 3, at=998)
    seen(*after, now_s=1002.0, translator=translator)
    assert seen(*after, now_s=1001.5 + ADMITTED_WITHIN_S, translator=translator).refusal is None
    assert translator.valid_until_s == 1002.0 + ADMITTED_WITHIN_S
    late = seen(*after, now_s=1002.0 + ADMITTED_WITHIN_S, translator=translator).refusal
    assert late
    assert "did not admit 5 trainers within 5 s" in late.message


def test_after_a_trainer_that_kueue_admits_late_the_next_ones_have_more_time() -> None:
    translator = Translator()
    seen(*BLUE, queued(), *admitted(2), *waiting(1, at=998), now_s=998.0 + ADMITTED_WITHIN_S, translator=translator)
    seen(*BLUE, queued(), *admitted(3), now_s=1004.0, translator=translator)
    again = *BLUE, queued(), *admitted(3), *waiting(2, at=1005)
    assert seen(*again, now_s=1005.0 + ADMITTED_WITHIN_S, translator=translator).refusal is None
    assert seen(*again, now_s=1005.0 + 2 * ADMITTED_WITHIN_S, translator=translator).refusal


def test_trainers_that_kueue_has_not_tried_are_not_taken_back_for_a_minute() -> None:
    """Kueue that needs six seconds for each would never admit one of which edl takes back what is older than five."""
    translator = Translator()
    objects = *BLUE, queued(), *admitted(2), own_workload(1, 1, state="waiting", at=940)
    assert seen(*objects, now_s=939.5 + ADMITTED_AT_LAST_S, translator=translator).refusal is None
    assert translator.valid_until_s == 940 + ADMITTED_AT_LAST_S
    late = seen(*objects, now_s=940.0 + ADMITTED_AT_LAST_S, translator=translator).refusal
    assert late
    assert "did not admit 3 trainers within 60 s" in late.message
    gated = {"type": "QuotaReserved", "status": "False", "reason": "PendingEvaluation", "message": "is pending"}
    named = own_workload(1, 1, state="waiting", at=940)
    named["status"]["conditions"] = [gated]
    assert seen(*BLUE, queued(), *admitted(2), named, now_s=999.0).refusal is None, "Kueue says that it has not"


def test_a_queue_that_does_not_exist_is_named() -> None:
    alone = seen(*NODES, flavor(), queued())
    assert alone.refusal
    assert "LocalQueue blue of namespace ads does not exist" in alone.refusal.message
    assert alone.problem == "", "the job waits and does not fail"


def test_a_job_grows_to_its_quota_once_its_base_is_admitted() -> None:
    snapshot = take(*BLUE, queued(), own_workload(0, 2))
    found = next(iter(snapshot.jobs))
    assert (found.queue, found.has_quota, found.is_barred) == ("blue/a", True, False)
    assert planned(snapshot).target == 10


def test_it_borrows_what_is_idle_and_gives_back_what_an_owner_claims() -> None:
    running = (*SHARED, queued(), *admitted(10), *pods(10))
    assert planned(take(*running)).target == 10
    owner = workload("owner", 5, queue="green")
    assert planned(take(*running, owner)).target == 5


def test_what_kueue_takes_back_for_an_owner_is_not_counted_twice() -> None:
    evicted = [own_workload(i, 1, state="evicted") for i in range(4, 9)]
    running = (*SHARED, queued(), *admitted(5), *evicted, *pods(5), workload("owner", 5, queue="green"))
    found = seen(*running)
    assert found.kueue
    assert found.kueue.reserved == 5
    assert planned(take(*running)).target == 5


@pytest.mark.parametrize("state", ["evicted", "waiting", "admitted"])
def test_a_workload_of_another_namespace_that_names_the_job_changes_nothing(state: str) -> None:
    """Whoever knows the UID of a job can write it into an owner reference."""
    running = (*SHARED, queued(), *admitted(5), *pods(5))
    forged = [elsewhere(own_workload(i, 2, state=state, queue="none"), f"a-{i}") for i in (0, 1, 7)]
    honest, beside = take(*running), take(*running, *forged)
    assert [one.kueue for one in beside.jobs] == [one.kueue for one in honest.jobs]
    assert planned(beside) == planned(honest)
    alone = take(*SHARED, queued(), *forged)
    assert planned(alone) == planned(take(*SHARED, queued())), "it waits for its own base"


def elsewhere(forged: Object, name: str) -> Object:
    """The Workload in another namespace."""
    return {**forged, "metadata": {**forged["metadata"], "namespace": "mallory", "name": name, "uid": f"uid-{name}"}}


def test_nobody_grows_into_what_an_evicted_workload_still_holds() -> None:
    evicted = workload("other", 6, queue="green", admitted=6)
    evicted["status"]["conditions"].append({"type": "Evicted", "status": "True"})
    assert planned(take(*SHARED, queued(), *admitted(4), *pods(4), evicted)).target == 4


def test_the_nodes_of_its_flavor_are_those_of_its_pods() -> None:
    spot = node("n2", metadata={"labels": {"pool": "spot"}}, **ROOM)
    objects = (*NODES, spot, flavor(pool="spot"), local_queue("blue"), cluster_queue("blue", "10250m"), queued())
    found = planned(take(*objects, own_workload(0, 2)))
    assert found.target == 10
    assert {name for name, _ in found.nodes} | {name for _, name in found.fixed_nodes} == {"n2"}


def test_a_master_on_another_flavor_takes_nothing_of_the_trainers_quota() -> None:
    both = resource_groups(small=[quota("1250m")], large=[quota(6)])
    queue = cluster_queue("blue", resourceGroups=both)
    base, other = own_workload(0, 2, flavor="large"), own_workload(1, 1, flavor="large")
    base["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"cpu": "small"}
    objects = (*NODES, flavor("small"), flavor("large"), local_queue("blue"), queue, queued())
    assert planned(take(*objects, base, other)).target == 6


def test_an_evicted_base_gets_nothing_and_claims_nothing_twice() -> None:
    gone = seen(*BLUE, queued(), own_workload(0, 2, state="evicted", message="preempted"))
    assert gone.is_barred
    assert gone.refusal
    assert gone.refusal.message == "Kueue has evicted Workload ads/ctr-0: preempted"


def test_a_stopped_base_says_so() -> None:
    gone = seen(*BLUE, queued(), own_workload(0, 2, state="waiting", active=False))
    assert gone.refusal
    assert gone.refusal.message == ("Workload ads/ctr-0 is stopped (spec.active is false); set it to true")


def test_a_stopped_surplus_keeps_the_job_from_growing() -> None:
    running = (*BLUE, queued(), *admitted(4), own_workload(9, 1, state="waiting", active=False), *pods(4))
    assert planned(take(*running)).target == 4


def test_what_is_not_admitted_in_time_is_taken_back() -> None:
    translator = Translator()
    tried = own_workload(8, 1, state="waiting", at=990, message="insufficient quota for cpu")
    objects = (*BLUE, queued(), *admitted(4), tried, *pods(4))
    assert planned(take(*objects, translator=translator, now_s=991.0)).target == 10
    late = take(*objects, translator=translator, now_s=991.0 + ADMITTED_WITHIN_S)
    assert planned(late).target == 4
    assert "Kueue did not admit 5 trainers within 5 s" in planned(late).message


def test_a_job_that_runs_before_kueue_admits_it_keeps_its_pods() -> None:
    found = seen(*BLUE, queued(), *pods(4))
    assert not found.is_barred
    assert found.refusal
    assert found.refusal.allowed == 4


def test_objects_that_cannot_be_read_change_nothing() -> None:
    found = seen(*BLUE, queued(), *admitted(4), *pods(4), cluster_queue("red", "ten"))
    assert found.kueue
    assert found.kueue.is_unknown
    assert found.problem == ""


def test_a_job_whose_own_workload_cannot_be_read_keeps_what_it_has() -> None:
    broken = own_workload(1, 1)
    broken["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] = {"cpu": "-1"}
    found = seen(*BLUE, queued(), own_workload(0, 2), broken, *pods(3))
    assert found.kueue
    assert found.kueue.is_unknown


def test_the_priority_class_is_read() -> None:
    found = seen(*BLUE, queued(labels={"kueue.x-k8s.io/priority-class": "high"}))
    assert found.kueue
    assert found.kueue.priority_class == "high"


def test_a_job_without_the_label_is_not_kueues_whatever_workloads_it_has_left() -> None:
    left = seen(*BLUE, job(), *admitted(4), *pods(4))
    assert left.kueue
    assert (left.kueue.local_queue, len(left.kueue.workloads), left.refusal) == ("", 3, None)
    assert seen(*BLUE, job(), *pods(4)).kueue is None
