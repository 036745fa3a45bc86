"""Every history of two elastic Jobs that Kueue manages and edl sizes, beside models of Kueue and of what uses nodes.

Kueue admits each larger size as a Workload of its own, all or nothing, and evicts a job as a whole: for an owner of
the other ClusterQueue whose quota is borrowed, and for a higher priority. It evicts the newest first; of two that it
admitted in the same second, either. It decides on the size that it has read and writes later; all of a size that was
raised between runs. Between any two steps of edl everything else may happen, and plans may be old.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from edl.controller.planning import plan_snapshot
from edl.kube.translate.snapshot import Translator
from edl.lifecycle.resized_workload import workload_actions
from edl.model.actions import ResizeWorkload
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.plan import ScaleDecision
from tests.worlds.kueue.objects import GATE, cluster_queue, cohort, flavor, kueue_job, local_queue, workload
from tests.worlds.kueue.present import present_decision
from tests.worlds.kueue.surroundings import LOADS, Around
from tests.worlds.raw_objects import Object, batch_pod, container, take

LOW, HIGH, BLUE, GREEN = 1, 4, 2, 2
SHARED = (flavor(), cohort("all"), local_queue("blue"), local_queue("green"))
OTHERS = {"urgent": ("blue", 2, 10), "owner": ("green", 1, 0), "rightful": ("blue", 4, 0)}
"""Name -> (queue, pods, priority) of the jobs of others."""
_NOW_S = 1000
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"


class Sized(NamedTuple):
    """One Job.

    Attributes:
        asked: its parallelism.
        held: for how many pods it holds quota; 0 while it waits, and is suspended.
        wished: how many its Workload without a reservation asks for; 0 if there is none.
        granting: the size that Kueue has decided to admit and has not written; 0 for none.
        counted: how many its Workload asks for if that is more than `held`; 0 if it is not.
        live, ending: its pods that are not gated.
        is_evicted: Kueue takes the quota back once no pod is left.
        is_late: what it wishes has not been admitted for five seconds.
        is_paused: edl asks for no larger size for a while.
        floor: of how many pods Kueue admits it at least, if that is not `wished`; 0 if it is.
        plan: (current, target, is it admitted) of the last plan; None before the first.
    """

    name: str
    queue: str
    asked: int = LOW
    held: int = 0
    wished: int = 0
    live: int = 0
    ending: int = 0
    is_evicted: bool = False
    is_late: bool = False
    is_paused: bool = False
    floor: int = 0
    plan: tuple[int, int, bool] | None = None
    granting: int = 0
    counted: int = 0

    @property
    def size(self) -> int:
        """How many of its pods Kueue lets run."""
        return max(self.held, self.counted)


class State(NamedTuple):
    """One moment.

    Attributes:
        others: (name, is it admitted) of the jobs of others that are there.
        admitted: the names of all that hold quota, the newest last.
        nominal: the quota of each ClusterQueue.
        left: what may still happen once.
    """

    jobs: tuple[Sized, ...]
    others: tuple[tuple[str, bool], ...] = ()
    admitted: tuple[str, ...] = ()
    around: Around = Around()
    left: frozenset[str] = frozenset()
    nominal: tuple[tuple[str, int], ...] = (("blue", BLUE), ("green", GREEN))

    def with_job(self, job: Sized) -> State:
        """The same with another state of a Job."""
        return self._replace(jobs=tuple(job if one.name == job.name else one for one in self.jobs))

    def job(self, name: str) -> Sized | None:
        """The Job of that name; None for the job of somebody else."""
        return next((job for job in self.jobs if job.name == name), None)

    @property
    def trainers(self) -> int:
        """All pods of jobs that are not gated."""
        return sum(job.live + job.ending for job in self.jobs)

    def used(self, queue: str) -> int:
        """What is reserved in a ClusterQueue."""
        others = (OTHERS[name] for name, is_admitted in self.others if is_admitted)
        own = sum(max(job.held, job.granting) for job in self.jobs if job.queue == queue)
        return own + sum(other[1] for other in others if other[0] == queue)

    def leaving(self, queue: str) -> int:
        """What evicted jobs of a ClusterQueue still hold."""
        return sum(job.held for job in self.jobs if job.queue == queue and job.is_evicted)

    @property
    def unused(self) -> int:
        """What is unused in the cohort."""
        return sum(amount - self.used(queue) for queue, amount in self.nominal)

    def exceeds(self, queue: str, more: int = 0) -> bool:
        """True if a ClusterQueue would have more than is its own, without what it gives back."""
        return self.used(queue) - self.leaving(queue) + more > dict(self.nominal)[queue]

    def is_behind(self, queue: str, priority: int = 0) -> bool:
        """True if somebody of a higher priority waits in a ClusterQueue: nobody else is admitted to it then."""
        waiting = (OTHERS[name] for name, is_admitted in self.others if not is_admitted)
        return any(other[0] == queue and other[2] > priority for other in waiting)


class Preemptor(NamedTuple):
    """Who needs so much more quota of a queue."""

    name: str
    queue: str
    size: int
    priority: int = 0


class View(NamedTuple):
    """What edl has read, and what it would decide now, by the name of the Job."""

    snapshot: ClusterSnapshot
    jobs: Mapping[str, Job]
    decisions: Mapping[str, ScaleDecision]


@dataclass
class SizedHistories:
    """Finds every state.

    Attributes:
        reclaims: Kueue evicts a job that borrows for an owner.
        partial: larger sizes may be admitted in part, which edl refuses (`elastic-job-scale-up-strategy`): of a job
            that is evicted meanwhile, Kueue then admits no fewer pods than one more than it had.
        hasty: a size is raised although Kueue may be admitting another one, which edl does not do.
        broken: what was wrong, and the state before.
    """

    reclaims: bool
    partial: bool = False
    hasty: bool = False
    broken: list[tuple[str, State]] = field(default_factory=list)
    _views: dict[State, View] = field(default_factory=dict)

    def search(self, start: State, most: int) -> dict[State, tuple[str, ...]]:
        """Return the states that can be reached, each with the shortest way to it; about so many at most."""
        found: dict[State, tuple[str, ...]] = {start: ()}
        due = [start]
        while due and len(found) < most:
            later = []
            for state in due:
                for name, following in self.steps(state):
                    if following not in found:
                        if any(job.live > job.held for job in following.jobs):
                            self.broken.append((f"{name}: more pods than quota", state))
                        found[following] = (*found[state], name)
                        later.append(following)
            due = later
        return found

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Return what may happen next."""
        yield "plan", self._planned(state)
        for job in state.jobs:
            if (count := self.written(state, job)) is not None:
                self._judge(state, job, count)
                yield f"{job.name} acts", state.with_job(job._replace(asked=count))
            yield f"{job.name} reconciled", self._reconciled(state, job)
            if job.granting:
                yield f"{job.name} written", state.with_job(_written(job))
            if job.ending:
                yield f"{job.name} ends one", state.with_job(job._replace(ending=job.ending - 1))
            if job.wished > job.held and not job.is_late and job.held:
                yield f"{job.name} is late", state.with_job(job._replace(is_late=True))
            if job.is_paused:
                yield f"{job.name} goes on", state.with_job(job._replace(is_paused=False))
        for swapped in (False, True):
            if (following := self._admitted(state, swapped)) != state:
                yield f"admit{' the other' if swapped else ''}", following
        for name, around in state.around.steps(state.trainers):
            yield name, state._replace(around=around)
        for event in sorted(state.left):
            if (following := _happened(state, event)) != state:
                yield event, following._replace(left=state.left - {event})

    def _judge(self, state: State, job: Sized, count: int) -> None:
        """Check a write of edl, however old its plan is: it has the cluster as it is now before it."""
        if count < LOW:
            self.broken.append((f"edl takes {job.name} below its minimum", state))
        has = max(job.held, job.granting)
        if job.held and count - has > state.unused:
            self.broken.append((f"edl asks for {count} pods of {job.name} although others use that quota", state))
        if job.held and count > max(has, job.asked) and not all(is_admitted for _, is_admitted in state.others):
            self.broken.append((f"edl raises {job.name} beside one that waits", state))

    def rest(self, state: State, turns: int = 40) -> State | None:
        """Return where a state leads if nothing happens any more and everybody acts in turn; None if nowhere."""
        for _ in range(turns):
            before = state
            state = self._planned(state)
            for name in [job.name for job in state.jobs]:
                job = state.job(name)
                assert job is not None
                if (count := self.written(state, job)) is not None:
                    job = job._replace(asked=count)
                state = self._reconciled(state.with_job(job), _written(job)._replace(ending=0))
            state = self._admitted(state, swapped=False)
            state = state._replace(around=state.around.rested(state.trainers))
            if state == before:
                return state
        return None

    def written(self, state: State, job: Sized) -> int | None:
        """The count that edl writes now; None if it writes none."""
        if job.plan is None:
            return None
        view = self._view(state)
        old = [_as_planned(one, view.decisions[one.name]) for one in state.jobs if one.plan is not None]
        found = view.jobs[job.name]
        decision = present_decision(found, old, view.snapshot)
        if self.hasty and found.kueue is not None:
            found = replace(found, kueue=replace(found.kueue, is_pending=False))
        actions = workload_actions(found, decision, 8, float(_NOW_S))
        return next((one.count for one in actions if isinstance(one, ResizeWorkload)), None)

    def _planned(self, state: State) -> State:
        decisions = self._view(state).decisions
        for job in state.jobs:
            one = decisions[job.name]
            is_paused = job.is_paused or (job.is_late and one.target <= job.held)
            plan = one.current, one.target, one.admitted
            state = state.with_job(job._replace(plan=plan, is_paused=is_paused))
        return state

    def _view(self, state: State) -> View:
        key = state._replace(left=frozenset(), jobs=tuple(job._replace(plan=None) for job in state.jobs))
        if key not in self._views:
            snapshot = _snapshot(state)
            plan = plan_snapshot(snapshot, "maxmin", Limits())
            jobs = {job.key.object_name: job for job in snapshot.jobs}
            self._views[key] = View(snapshot, jobs, {one.job.object_name: one for one in plan.decisions})
        return self._views[key]

    def _reconciled(self, state: State, job: Sized) -> State:
        """Kueue follows the size, and releases what is evicted; the Job controller makes and ends pods."""
        if job.is_evicted:
            job = job._replace(live=0, ending=job.ending + job.live, granting=0, counted=0)
            if not job.ending:
                floor = job.held + 1 if self.partial and job.wished > job.held else 0
                job = job._replace(held=0, wished=job.asked, is_evicted=False, is_late=False, floor=floor)
                state = state._replace(admitted=tuple(one for one in state.admitted if one != job.name))
            return state.with_job(job)
        if not job.held:
            return state.with_job(job._replace(wished=job.asked, is_late=False))
        wished = job.asked if job.granting or job.asked > job.size else 0
        counted = min(job.asked, job.counted) if job.asked > job.held else 0
        is_late = job.is_late and wished == job.wished
        job = job._replace(held=min(job.asked, job.held), counted=counted, wished=wished, is_late=is_late)
        return state.with_job(job._replace(live=job.size, ending=job.ending + max(0, job.live - job.size)))

    def _admitted(self, state: State, swapped: bool) -> State:
        """One round of Kueue: others by priority, then jobs that wait, then larger sizes."""
        for name, (queue, size, priority) in OTHERS.items():
            if dict(state.others).get(name, True):
                continue
            if size <= state.unused:
                others = tuple((one, done or one == name) for one, done in state.others)
                state = state._replace(others=others, admitted=(*state.admitted, name))
            elif priority or (self.reclaims and not state.exceeds(queue, size)):
                state = _evicted(state, Preemptor(name, queue, size, priority), swapped)
        for job in sorted(state.jobs, key=lambda job: job.held > 0):
            more = job.wished - job.held
            if not job.wished or job.is_evicted or job.granting or more <= 0 or state.is_behind(job.queue):
                continue
            if job.floor:
                if state.unused >= job.floor:
                    held = max(job.floor, min(job.wished, state.unused))
                    state = state.with_job(job._replace(held=held, wished=0, floor=0))
                    state = state._replace(admitted=(*state.admitted, job.name))
            elif more <= state.unused:
                admitted = (*(one for one in state.admitted if one != job.name), job.name)
                state = state.with_job(job._replace(granting=job.wished))
                state = state._replace(admitted=admitted)
            elif self.reclaims and not state.exceeds(job.queue, more):
                state = _evicted(state, Preemptor(job.name, job.queue, more), swapped)
        return state


def _as_planned(job: Sized, fresh: ScaleDecision) -> ScaleDecision:
    """The decision of the last plan, with the reason of a new one."""
    current, target, is_admitted = job.plan or (0, 0, False)
    return ScaleDecision(fresh.job, 1, current, target, LOW, HIGH, is_admitted, fresh.reason, fresh.message)


def _written(job: Sized) -> Sized:
    """Kueue writes the size that it has read, and leaves the count of the Workload as it is."""
    if not job.granting:
        return job
    count = job.wished or min(job.asked, job.granting)
    counted = count if count > job.granting else 0
    return job._replace(held=min(job.granting, count), counted=counted, granting=0, wished=0, is_late=False)


def _evicted(state: State, one: Preemptor, swapped: bool) -> State:
    """Evict what borrows, or has a lower priority in the same queue, as a whole: by priority, and then the newest."""
    newest = list(reversed(state.admitted))
    if swapped:
        newest = [*newest[1::-1], *newest[2:]]
    for name in sorted(newest, key=lambda name: OTHERS[name][2] if name in OTHERS else 0):
        job = state.job(name)
        queue = OTHERS[name][0] if job is None else job.queue
        is_taken = (
            state.exceeds(queue) if queue != one.queue else one.priority > (OTHERS[name][2] if job is None else 0)
        )
        if (
            not is_taken
            or name == one.name
            or one.size <= state.unused + state.leaving("blue") + state.leaving("green")
        ):
            continue
        if job is not None:
            state = state.with_job(job._replace(is_evicted=True))
        else:  # its pods end at once
            others = tuple((other, done and other != name) for other, done in state.others)
            state = state._replace(others=others, admitted=tuple(x for x in state.admitted if x != name))
    return state


def _happened(state: State, event: str) -> State:
    """The state after an event; the same if it cannot happen now."""
    if event in LOADS:
        return state._replace(around=state.around._replace(load=LOADS[event]))
    name, _, verb = event.partition(" ")
    if verb == "comes":
        return state._replace(others=(*state.others, (name, False)))
    others = tuple(one for one in state.others if one[0] != name)
    return state._replace(others=others, admitted=tuple(one for one in state.admitted if one != name))


def _snapshot(state: State) -> ClusterSnapshot:
    """What edl reads; a size that was late before has been seen by the same translator."""
    translator = Translator()
    if any(job.is_paused for job in state.jobs):
        late = [job._replace(wished=HIGH, held=job.held or LOW, is_late=True) for job in state.jobs if job.is_paused]
        kept = [job for job in state.jobs if not job.is_paused]
        take(*_objects(state._replace(jobs=(*kept, *late))), now_s=float(_NOW_S - 1), translator=translator)
    return take(*_objects(state), now_s=float(_NOW_S), translator=translator)


def _objects(state: State) -> list[Object]:
    found: list[Object] = [*SHARED, *state.around.objects()]
    found += [cluster_queue(name, nominal, cohort="all") for name, nominal in state.nominal]
    number = state.around.placed
    for job in state.jobs:
        body = kueue_job(job.name, job.queue, size=job.asked, spec={"suspend": not job.held}, annotations=_ASKS)
        found += [body, *_workloads(job)]
        for index in range(job.live + job.ending):
            pod = batch_pod(f"{job.name}-{index}", job=job.name, ready_at=index)
            pod["spec"]["nodeName"] = state.around.node_of(number)
            if not pod["spec"]["nodeName"]:
                del pod["spec"]["nodeName"]
                pod["status"] = {"phase": "Pending"}
            if index >= job.live:
                pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:10:00Z"
            found.append(pod)
            number += 1
        for index in range(job.size, job.asked if job.held else 0):
            gated = batch_pod(f"{job.name}-gated-{index}", job=job.name, status={"phase": "Pending"})
            gated["spec"] = {"containers": [container("1", "1Gi")], **GATE}
            found.append(gated)
    for name, is_admitted in state.others:
        queue, size, priority = OTHERS[name]
        admitted: dict[str, Any] = {"admitted": size} if is_admitted else {}
        found.append(workload(name, size, queue=queue, priority=priority, at=50, **admitted))
    return found


_ASKS = {"paddlepaddle.org/min-instance": str(LOW), "paddlepaddle.org/max-instance": str(HIGH)}


def _workloads(job: Sized) -> Iterator[Object]:
    more: dict[str, Any] = {"queue": job.queue, "job": job.name}
    if job.held:
        evicted = {"type": "Evicted", "status": "True", "reason": "Preempted"}
        size = job.counted or min(job.asked, job.held)
        body = workload(f"w-{job.name}", size, admitted=job.held, at=60, **more)
        body["status"]["conditions"] += [evicted] if job.is_evicted else []
        yield body
    if job.wished:
        annotations = {REPLACES: f"ads/w-{job.name}"} if job.held else {}
        at = _NOW_S - (60 if job.is_late else 1)
        yield workload(f"n-{job.name}", job.wished, at=at, annotations=annotations, **more)
