"""Growth that a plan grants to a job of Kueue is sent only as far as its quota is unused when it is sent."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from edl.controller.allotment import Start
from edl.controller.backoff import Backoff
from edl.controller.core import Core
from edl.controller.job_writes import JobWrites
from edl.controller.planning import plan_snapshot
from edl.kube.translate.snapshot import Translator
from edl.model.actions import EmitEvent, ResizeWorkload
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import Role
from tests.controller.core.core_stage import Moment, of_type
from tests.kube.translate.kueue.test_kueue_reader import ALONE, SHARED, pods, running
from tests.worlds.fakes import FakeRecorder
from tests.worlds.kueue.objects import kueue_job, workload
from tests.worlds.raw_objects import Object, container, pod, take

REPLACES = {"kueue.x-k8s.io/workload-slice-replacement-for": "ads/w-train"}


@dataclass
class Stage:
    """The state machine beside objects of Kueue."""

    clock: Moment = field(default_factory=Moment)
    translator: Translator = field(default_factory=Translator)

    def __post_init__(self) -> None:
        backoff = Backoff()
        writes = JobWrites(self.clock, FakeRecorder(), backoff, Limits(), lambda _: None)
        self.core = Core(self.clock, writes, backoff)

    def see(self, *objects: Object) -> None:
        """Let the cache show these objects."""
        self.core.seen(take(*objects, now_s=self.clock.at_s, translator=self.translator), frozenset())

    def begin(self, *objects: Object) -> ClusterSnapshot:
        """A plan begins when the cache shows these objects."""
        self.see(*objects)
        return self.core.plan_begins()

    def publish(self, view: ClusterSnapshot) -> None:
        """Publish a plan; all of its growth may start at once."""
        plan = plan_snapshot(view, "maxmin", Limits())
        self.core.published(
            plan, [Start(d.job, Role.TRAINER, n) for d in plan.decisions for n, k in d.nodes for _ in range(k)]
        )

    def counts(self) -> dict[str, int]:
        """The counts that are sent now; their writes do not end."""
        writes = []
        while (write := self.core.take()) is not None:
            writes.append(write)
        self.sent = writes
        return {one.job.object_name: one.count for one in of_type(ResizeWorkload, writes)}


@pytest.mark.parametrize("when", ["while a plan is made", "once it is published"])
def test_no_count_is_raised_beside_an_owner_that_the_plan_does_not_know(when: str) -> None:
    """Its Workload would be newer than that of the owner, so Kueue would evict the whole job."""
    stage, owner = Stage(), workload("owner", 9, at=999)
    view = stage.begin(*ALONE, *running(3))
    if when == "while a plan is made":
        stage.see(*ALONE, *running(3), owner)
    stage.publish(view)
    stage.see(*ALONE, *running(3), owner)
    assert stage.counts() == {}
    stage.see(*ALONE, *running(3))
    assert stage.counts() == {"train": 10}, "the owner has gone before the next plan"


def test_a_count_that_is_not_admitted_goes_back_at_once_if_an_owner_comes() -> None:
    stage = Stage()
    view = stage.begin(*ALONE, *running(3))
    stage.publish(view)
    assert stage.counts() == {"train": 10}
    for write in stage.sent:
        stage.core.ended(write, [])
    asked = kueue_job(size=10, spec={"suspend": False})
    size = workload("w2", 10, job="train", at=1000, annotations=REPLACES)
    stage.see(*ALONE, asked, workload("w-train", 3, admitted=3, job="train"), size, *pods(3), workload("owner", 9))
    assert stage.counts() == {"train": 3}
    (event,) = of_type(EmitEvent, stage.sent)
    assert "Workload ads/owner waits for 9 cores" in event.message


def test_what_others_hold_by_now_is_not_asked_for() -> None:
    """A Workload of a lower priority stops no growth, and Kueue would evict it for the larger size."""
    stage, low = Stage(), workload("low", 4, admitted=4, priority=-10, at=999)
    view = stage.begin(*ALONE, *running(3))
    stage.see(*ALONE, *running(3), low)
    stage.publish(view)
    assert stage.counts() == {"train": 6}
    (event,) = of_type(EmitEvent, stage.sent)
    assert event.message.endswith("from 3 to 6: others have come to use the quota of Kueue that it was to get")


def test_two_jobs_do_not_ask_for_the_same_quota() -> None:
    both = *running(2), *running(2, "next", "green")
    stage, low = Stage(), workload("low", 10, queue="green", admitted=10, priority=-10, at=999)
    view = stage.begin(*SHARED, *both)
    stage.publish(view)
    stage.see(*SHARED, *both, low)
    found = stage.counts()
    assert sum(found.get(name, 2) for name in ("train", "next")) == 10, found


def test_growth_that_is_held_back_for_a_pod_asks_for_less_once_others_have_the_quota() -> None:
    stage, low = Stage(), workload("low", 4, admitted=4, priority=-10, at=999)
    web = pod("web-1", spec={"containers": [container("1", "1Gi")]}, status={"phase": "Pending"})
    view = stage.begin(*ALONE, *running(3))
    stage.see(*ALONE, *running(3), web)
    stage.publish(view)
    assert stage.counts() == {}, "held back for the pod"
    stage.see(*ALONE, *running(3), low)
    assert stage.counts() == {"train": 6}


def test_quota_that_comes_back_is_used_without_another_plan() -> None:
    stage, low = Stage(), workload("low", 8, admitted=7, priority=-10, at=999)
    view = stage.begin(*ALONE, *running(3))
    stage.see(*ALONE, *running(3), low)
    stage.publish(view)
    assert stage.counts() == {}
    stage.see(*ALONE, *running(3))
    assert stage.counts() == {"train": 10}
