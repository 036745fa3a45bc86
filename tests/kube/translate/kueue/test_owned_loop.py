"""A TrainingJob beside a small model of Kueue: owners come and go, the job grows and gives back one by one.

The model admits what waits by priority and age. With `reclaim` it takes trainers of the job back for an owner, the
newest first; without it the owner waits until edl has given them back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from edl.controller.planning import plan_snapshot
from edl.kube.translate.snapshot import Translator
from edl.lifecycle.desired_state import desired_state
from edl.model.actions import Action, ChangeWorkloads, CreatePod, DeletePod, PatchStatus, Report, ReportWorkloads
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.quota_trees import Pool, PoolLimits, QuotaNode
from edl.model.status import JobStatus
from edl.planner.queues.pool_tree import PoolTree
from tests.kube.translate.kueue.test_owned import KEY, SHARED, pods, queued
from tests.worlds.kueue.objects import own_workload, workload
from tests.worlds.raw_objects import Object, container, owned_by, pod, take

POOL = Pool("a", "cpu")
BLUE, GREEN = "ClusterQueue blue", "ClusterQueue green"
QUOTAS = (
    QuotaNode(BLUE, "Cohort all", ((POOL, PoolLimits(4250)),)),
    QuotaNode(GREEN, "Cohort all", ((POOL, PoolLimits(6000)),)),
    QuotaNode("Cohort all"),
)
LOW, HIGH, ROUNDS = 2, 20, 7


@dataclass
class Own:
    """A Workload of the job."""

    index: int
    trainers: int
    at: int
    state: str = "waiting"

    @property
    def cpu(self) -> int:
        return self.trainers * 1000 + (0 if self.index else 250)


@dataclass
class Model:
    """The job, its Workloads and its pods, and the owners of the other queue."""

    reclaims: bool
    own: dict[int, Own] = field(default_factory=dict)
    trainers: dict[int, bool] = field(default_factory=dict)  # by index: True while it ends
    has_master: bool = False
    owners: dict[str, tuple[int, int, bool]] = field(default_factory=dict)  # size, created, admitted
    now: int = 100
    status: JobStatus | None = None
    translator: Translator = field(default_factory=Translator)

    def tree(self) -> PoolTree:
        tree = PoolTree(QUOTAS, POOL)
        for one in self.own.values():
            tree.take(BLUE, one.cpu if one.state != "waiting" else 0)
        for size, _, is_admitted in self.owners.values():
            tree.take(GREEN, size * 1000 if is_admitted else 0)
        return tree

    def admit(self) -> None:
        """One round of Kueue."""
        waiting = [(0, created, name) for name, (_, created, done) in self.owners.items() if not done]
        waiting += [(1 if i else 0, one.at, str(i)) for i, one in self.own.items() if one.state == "waiting"]
        for _, _, name in sorted(waiting):
            tree = self.tree()
            if name in self.owners:
                size, created, _ = self.owners[name]
                if size * 1000 <= tree.available(GREEN):
                    self.owners[name] = size, created, True
                elif self.reclaims and tree.used(GREEN) + size * 1000 <= tree.nominal(GREEN):
                    self.take_back(size * 1000 - tree.available(GREEN))
            elif self.own[int(name)].cpu <= tree.available(BLUE):
                self.own[int(name)].state = "admitted"

    def take_back(self, lacking: int) -> None:
        """Evict as many trainers as an owner needs, with those that are evicted already."""
        lacking -= sum(one.cpu for one in self.own.values() if one.state == "evicted")
        for one in sorted(self.own.values(), key=lambda one: -one.at):
            if lacking > 0 and one.index and one.state == "admitted":
                one.state = "evicted"
                lacking -= one.cpu

    def objects(self) -> list[Object]:
        found = [*SHARED, queued(HIGH)]
        found += [own_workload(one.index, one.trainers, state=one.state, at=one.at) for one in self.own.values()]
        for index, ends in self.trainers.items():
            (body,) = [one for one in pods(index + 1) if one["metadata"]["name"] == f"ctr-trainer-{index}"]
            if ends:
                body["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:00Z"
            found.append(body)
        if self.has_master:
            labels = {"paddlepaddle.org/job": "ctr", "paddlepaddle.org/role": "master", "paddlepaddle.org/index": "0"}
            metadata = {"labels": labels, "ownerReferences": [owned_by("uid-ctr")]}
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            found.append(
                pod(
                    "ctr-master-0",
                    metadata=metadata,
                    spec={"nodeName": "n1", "containers": [container("250m")]},
                    status=status,
                )
            )
        for name, (size, created, done) in self.owners.items():
            found.append(workload(name, size, queue="green", at=created, admitted=size if done else None))
        return found

    def turn(self) -> None:
        """Edl plans and acts once, then pods end, then Kueue admits."""
        self.now += 1
        snapshot = take(*self.objects(), translator=self.translator, now_s=float(self.now))
        jobs = tuple(replace(job, status=self.status) if job.key == KEY else job for job in snapshot.jobs)
        snapshot = replace(snapshot, jobs=jobs)
        job = next(job for job in jobs if job.key == KEY)
        plan = plan_snapshot(snapshot, "maxmin", Limits())
        slots = [(role, "n1") for role in Role for _ in range(30)]
        self.trainers = {index: ends for index, ends in self.trainers.items() if not ends}
        _, actions = desired_state(job, plan.decision(KEY), slots, float(self.now))
        for action in actions:
            self.carry_out(action)
        reserved = sum(one.trainers for one in self.own.values() if one.state != "waiting")
        assert len(self.trainers) <= reserved, "no pod above what holds quota"
        self.admit()

    def carry_out(self, action: Action) -> None:
        match action:
            case CreatePod():
                if action.role is Role.TRAINER:
                    self.trainers[action.index] = False
                else:
                    self.has_master = True
            case DeletePod():
                index = action.pod.rpartition("-")[2]
                assert "trainer" in action.pod
                self.trainers[int(index)] = True
            case ChangeWorkloads():
                for name, _ in action.gone:
                    del self.own[int(name.rpartition("-")[2])]
                for one in action.new:
                    self.own[one.index] = Own(one.index, one.trainers, self.now)
            case ReportWorkloads():
                assert not any(one.report is Report.RELEASED for one in action.reports), "no base is evicted here"
            case PatchStatus():
                self.status = action.status

    def settle(self) -> None:
        for _ in range(ROUNDS):
            self.turn()


EVENTS = st.lists(st.one_of(st.integers(1, 4), st.just(0)), min_size=1, max_size=5)


@given(reclaims=st.booleans(), events=EVENTS)
@settings(max_examples=10, deadline=None)
def test_owners_get_their_own_and_the_job_has_all_that_is_left(reclaims: bool, events: list[int]) -> None:
    model = Model(reclaims)
    model.settle()
    assert len(model.trainers) == 10
    for number, size in enumerate(events):
        total = sum(one[0] for one in model.owners.values())
        if not size or total + size > 6:
            model.owners = dict(list(model.owners.items())[1:])
        else:
            model.owners[f"owner-{number}"] = size, model.now, False
        before = {index for index, ends in model.trainers.items() if not ends}
        model.settle()
        left = 10 - sum(one[0] for one in model.owners.values())
        assert all(done for _, _, done in model.owners.values())
        assert (len(model.trainers), len(model.own)) == (left, left - LOW + 1)
        assert before <= set(model.trainers) or set(model.trainers) <= before, "none ended to start again"
        assert {one.state for one in model.own.values()} == {"admitted"}
