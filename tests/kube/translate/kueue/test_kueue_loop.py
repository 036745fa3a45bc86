"""edl beside a small model of Kueue: jobs grow and give back while owners come and go, and everything comes to rest.

The model admits what waits by age, all or nothing, and preempts nobody. A larger size of a running job is a Workload
of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edl.kube.translate.snapshot import Translator
from edl.model.quota_trees import Pool, PoolLimits, QuotaNode
from edl.planner.queues.pool_tree import PoolTree
from tests.kube.translate.kueue.test_kueue_reader import SHARED, pods, sizes
from tests.worlds.kueue.objects import kueue_job, workload
from tests.worlds.raw_objects import Object, take

POOL = Pool("a", "cpu")
QUOTAS = tuple(
    QuotaNode(name, parent, ((POOL, PoolLimits(nominal)),))
    for name, parent, nominal in (("blue", "all", 10), ("green", "all", 10), ("all", "", 0))
)
REPLACES = {"kueue.x-k8s.io/workload-slice-replacement-for": "ads/w"}
ROUNDS = 12


@dataclass
class Sized:
    """A job of edl's: the size that it asks for, and the size that is admitted; 0 while it waits."""

    queue: str
    asked: int
    created: int
    admitted: int = 0


@dataclass
class Model:
    """One cohort of two ClusterQueues of 10 cpus."""

    jobs: dict[str, Sized] = field(default_factory=dict)
    others: dict[str, tuple[str, int, int, bool]] = field(default_factory=dict)  # queue, size, created, admitted
    now: int = 100
    translator: Translator = field(default_factory=Translator)

    def tree(self) -> PoolTree:
        tree = PoolTree(QUOTAS, POOL)
        for job in self.jobs.values():
            tree.take(job.queue, job.admitted)
        for queue, size, _, is_admitted in self.others.values():
            tree.take(queue, size if is_admitted else 0)
        return tree

    def admit(self) -> None:
        """One round of Kueue: a smaller size counts at once; what waits is admitted, the oldest first."""
        for job in self.jobs.values():
            job.admitted = min(job.admitted, job.asked)
        waiting = [(other[2], name, False) for name, other in self.others.items() if not other[3]]
        waiting += [(job.created, name, True) for name, job in self.jobs.items() if job.admitted < job.asked]
        for _, name, is_sized in sorted(waiting):
            tree = self.tree()
            if not is_sized:
                queue, size, created, _ = self.others[name]
                self.others[name] = queue, size, created, size <= tree.available(queue)
            elif (job := self.jobs[name]).asked - job.admitted <= tree.available(job.queue):
                job.admitted = job.asked

    def objects(self) -> list[Object]:
        found: list[Object] = [*SHARED]
        for name, job in self.jobs.items():
            found.append(kueue_job(name, job.queue, size=job.asked, spec={"suspend": not job.admitted}))
            found += pods(job.admitted, name)
            more: dict[str, Any] = {"queue": job.queue, "job": name}
            if job.admitted:
                size = min(job.asked, job.admitted)
                found.append(workload(f"w-{name}", size, admitted=job.admitted, at=job.created, **more))
            if job.admitted < job.asked:
                annotations = REPLACES if job.admitted else {}
                found.append(workload(f"n-{name}", job.asked, at=self.now, annotations=annotations, **more))
        for name, (queue, size, created, is_admitted) in self.others.items():
            found.append(workload(name, size, queue=queue, admitted=size if is_admitted else None, at=created))
        return found

    def size(self) -> bool:
        """One round of edl; True if it changed a size."""
        found = sizes(take(*self.objects(), now_s=float(self.now), translator=self.translator))
        changed = False
        for name, job in self.jobs.items():
            assert found[name] >= 2, "no job below its minimum"
            if found[name] != job.asked:
                grows = found[name] > job.asked and job.admitted
                assert not grows or found[name] - job.admitted <= self.tree().available(job.queue)
                job.asked, changed = found[name], True
        return changed

    def settle(self) -> None:
        """Rounds of both until nothing changes any more."""
        for _ in range(ROUNDS):
            self.now += 1
            before = self.size()
            self.admit()
            if not before and not self.size():
                return
        raise AssertionError(f"no rest: {self}")


EVENTS = st.lists(
    st.tuples(st.sampled_from(["job", "owner", "leaves"]), st.sampled_from(["blue", "green"]), st.integers(2, 10)),
    min_size=1,
    max_size=7,
)


@settings(deadline=None, max_examples=25)
@given(EVENTS)
def test_sizes_come_to_rest_owners_are_served_and_no_size_is_stuck(events: list[tuple[str, str, int]]) -> None:
    model = Model()
    for number, (kind, queue, size) in enumerate(events):
        model.now += 10
        if kind == "job" and len(model.jobs) < 3:
            model.jobs[f"job-{number}"] = Sized(queue, size, model.now)
        elif kind == "owner":
            model.others[f"owner-{number}"] = queue, size, model.now, False
        elif kind == "leaves" and model.others:
            model.others.pop(next(iter(model.others)))
        model.admit()
        model.settle()
        tree = model.tree()
        waits = {name for name, other in model.others.items() if not other[3]}
        for name in waits:
            other_queue, other_size, _, _ = model.others[name]
            least = sum(2 for job in model.jobs.values() if job.queue == other_queue)
            held = sum(one[1] for one in model.others.values() if one[0] == other_queue and one[3])
            borrowed = sum(2 for job in model.jobs.values() if job.queue != other_queue)
            assert least + held + other_size > 10 or borrowed + least + held + other_size > 20 - sum(
                one[1] for one in model.others.values() if one[0] != other_queue and one[3]
            ), f"{name} waits although its queue has its own: {model}"
        stuck = {name for name, job in model.jobs.items() if job.admitted and job.admitted < job.asked}
        assert not stuck, f"sizes that nobody admits: {model}"
        if not waits and all(job.admitted for job in model.jobs.values()):
            hungry = [job for job in model.jobs.values() if job.admitted < 20]
            assert not hungry or tree.available(hungry[0].queue) == 0, f"idle quota: {model}"
