"""Every history of Jobs whose Workloads edl makes, beside models of their controller and of Kueue.

Between any two steps of edl everything else may happen, and plans may be old. A crash after each of the writes of a
step is another history. States that are equal are visited once. The controller of a Job may act on a count that it
had before, but not once so much time has passed that edl relies on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from edl.controller.planning import plan_snapshot
from edl.lifecycle.resized_workload import workload_actions
from edl.model.actions import Action, ChangeWorkloads, Report, ReportWorkloads, ResizeWorkload
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.plan import ScaleDecision
from edl.model.times import text_of
from tests.worlds.kueue.objects import cluster_queue, cohort, flavor, local_queue, own_workload, workload
from tests.worlds.kueue.owned_jobs import owned_batch_job, reference_to
from tests.worlds.kueue.present import present_decision
from tests.worlds.kueue.surroundings import LOADS, NO_NODE, Around
from tests.worlds.raw_objects import Object, batch_pod, take

LOW, HIGH, BLUE, GREEN = 1, 4, 2, 2
SHARED = (
    *(flavor(), cohort("all"), local_queue("blue"), local_queue("green")),
    *(cluster_queue("blue", BLUE, cohort="all"), cluster_queue("green", GREEN, cohort="all")),
)
OTHERS = {"urgent": ("blue", BLUE + GREEN, 10), "owner": ("green", 1, 0)}
"""Name -> (queue, pods, priority) of the jobs of others."""
_NOW_S = 1000
"""No time passes: no Workload waits for so long that edl takes it back."""
SCALED = 3
"""The count that another writer sets."""


class Own(NamedTuple):
    """A Workload of edl; `state` is `waiting`, `admitted` or `evicted`."""

    job: str
    number: int
    pods: int
    digest: str
    state: str = "waiting"
    is_ready: bool = False


class Sized(NamedTuple):
    """One Job.

    Attributes:
        live, ending: its pods.
        asked: how many pods it asks for; 0 while it is suspended.
        seen: the count that its controller acts on.
        recorded: the count that edl has written last; -1 if none.
        unseen: the count in its record for which its controller may still make pods; 0 for none.
        plan: (current, target, is it admitted) of the last plan; None before the first.
    """

    name: str
    live: int = 0
    ending: int = 0
    asked: int = 0
    seen: int = 0
    recorded: int = -1
    unseen: int = 0
    plan: tuple[int, int, bool] | None = None


class State(NamedTuple):
    """One moment.

    Attributes:
        own: the Workloads that edl has made, the oldest first.
        others: (name, is it admitted) of the jobs of others that are there.
        around: what else uses the nodes.
        left: what may still happen once: `owner comes`, `owner goes`, `train scaled`, and those of `LOADS`.
    """

    jobs: tuple[Sized, ...]
    own: tuple[Own, ...] = ()
    others: tuple[tuple[str, bool], ...] = ()
    around: Around = Around()
    left: frozenset[str] = frozenset()

    def with_job(self, job: Sized) -> State:
        """The same with another state of a Job."""
        return self._replace(jobs=tuple(job if one.name == job.name else one for one in self.jobs))


class View(NamedTuple):
    """What edl has read, and what it would decide now, by the name of the Job."""

    snapshot: ClusterSnapshot
    jobs: Mapping[str, Job]
    decisions: Mapping[str, ScaleDecision]


@dataclass
class Histories:
    """Finds every state.

    Attributes:
        reclaims: Kueue evicts surplus pods for an owner.
        broken: what was wrong, with the names of the steps that led there.
    """

    reclaims: bool
    broken: list[str] = field(default_factory=list)
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
                        found[following] = (*found[state], name)
                        later.append(following)
                        self._judge(following, found[following])
            due = later
        return found

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Return what may happen next."""
        yield "plan", self._planned(state)
        for job in state.jobs:
            actions = self._actions(state, job)
            self._judge_count(state, job, actions)
            for number in range(1, len(actions) + 1):
                yield f"{job.name} acts {number}", _after(state, job.name, actions[:number])
            yield f"{job.name} controlled", state.with_job(_controlled(job))
            if job.seen != job.asked:
                yield f"{job.name} seen", state.with_job(job._replace(seen=job.asked))
            elif job.unseen:
                yield f"{job.name} waits", state.with_job(job._replace(unseen=0))
            if job.ending:
                yield f"{job.name} ends one", state.with_job(job._replace(ending=job.ending - 1))
        yield "admit", self._admitted(state)
        for name, around in state.around.steps(_trainers(state)):
            yield name, state._replace(around=around)
        for event in sorted(state.left):
            if (following := _happened(state, event)) is not None:
                yield event, following._replace(left=state.left - {event})

    def rest(self, state: State, turns: int = 16) -> State | None:
        """Return where a state leads if nothing happens any more and everybody acts in turn; None if nowhere."""
        for _ in range(turns):
            before = state
            state = self._planned(state)
            for name in [job.name for job in state.jobs]:
                state = _after(state, name, self._actions(state, _job(state, name)))
                seen = _job(state, name)._replace(seen=_job(state, name).asked)
                state = state.with_job(_controlled(seen)._replace(ending=0, unseen=0))
            state = self._admitted(state)
            state = state._replace(around=state.around.rested(_trainers(state)))
            if state == before:
                return state
        return None

    def _judge(self, state: State, way: tuple[str, ...]) -> None:
        for job in state.jobs:
            reserved = sum(one.pods for one in state.own if one.job == job.name and one.state != "waiting")
            if job.live + job.ending > reserved and f"{job.name} scaled" not in way:
                self.broken.append(f"{job.name}: {job.live} + {job.ending} pods of {reserved}: {', '.join(way)}")

    def _judge_count(self, state: State, job: Sized, actions: Sequence[Action]) -> None:
        base = next((one for one in state.own if one.job == job.name and not one.number), None)
        is_kept = base is not None and base.state == "admitted"
        if is_kept and any(isinstance(one, ResizeWorkload) and one.count < LOW for one in actions):
            self.broken.append(f"{job.name} below its minimum in {state}")
        more = sum(one.trainers for a in actions if isinstance(a, ChangeWorkloads) for one in a.new if one.index)
        asked = sum(one.pods for one in state.own if one.state == "waiting" and one.number)
        if more and more + asked > _unused(state):
            self.broken.append(f"{job.name} asks for {more} pods more although others use that quota in {state}")

    def _view(self, state: State) -> View:
        key = state._replace(left=frozenset(), jobs=tuple(job._replace(plan=None) for job in state.jobs))
        if key not in self._views:
            snapshot = take(*_objects(state), now_s=float(_NOW_S))
            plan = plan_snapshot(snapshot, "maxmin", Limits())
            jobs = {job.key.object_name: job for job in snapshot.jobs}
            decisions = {one.job.object_name: one for one in plan.decisions}
            self._views[key] = View(snapshot, jobs, decisions)
        return self._views[key]

    def _planned(self, state: State) -> State:
        decisions = self._view(state).decisions
        for job in state.jobs:
            one = decisions[job.name]
            state = state.with_job(job._replace(plan=(one.current, one.target, one.admitted)))
        return state

    def _actions(self, state: State, sized: Sized) -> list[Action]:
        view = self._view(state)
        job = view.jobs[sized.name]
        old = [_as_planned(one, view.decisions[one.name]) for one in state.jobs if one.plan is not None]
        decision = present_decision(job, old, view.snapshot)
        kinds = ChangeWorkloads | ReportWorkloads | ResizeWorkload
        return [a for a in workload_actions(job, decision, 8, float(_NOW_S)) if isinstance(a, kinds)]

    def _admitted(self, state: State) -> State:
        """One round of Kueue: others by priority, then the Workloads of edl by age; a base before surplus."""
        for name, (queue, size, priority) in OTHERS.items():
            if dict(state.others).get(name, True):
                continue
            lacking = size - _unused(state)
            if lacking <= 0:
                state = state._replace(others=tuple((one, done or one == name) for one, done in state.others))
            elif priority or (self.reclaims and queue == "green"):
                state = state._replace(own=_evicted(state.own, lacking, has_base=priority > 0))
        if any(OTHERS[name][2] > 0 and not is_admitted for name, is_admitted in state.others):
            return state  # nobody is admitted to a ClusterQueue in which a higher priority waits
        for one in sorted(state.own, key=lambda one: bool(one.number)):
            if one.state == "waiting" and one.pods <= _unused(state):
                own = tuple(each._replace(state="admitted") if each is one else each for each in state.own)
                state = state._replace(own=own)
        return state


def _as_planned(job: Sized, fresh: ScaleDecision) -> ScaleDecision:
    """The decision of the last plan, with the reason of a new one."""
    current, target, is_admitted = job.plan or (0, 0, False)
    return ScaleDecision(fresh.job, 1, current, target, LOW, HIGH, is_admitted, fresh.reason, fresh.message)


def _job(state: State, name: str) -> Sized:
    return next(job for job in state.jobs if job.name == name)


def _trainers(state: State) -> int:
    return sum(job.live + job.ending for job in state.jobs)


def _happened(state: State, event: str) -> State | None:
    """The state after an event; None if it cannot happen now."""
    if event in LOADS:
        return state._replace(around=state.around._replace(load=LOADS[event]))
    name, _, verb = event.partition(" ")
    if verb == "comes":
        return state._replace(others=(*state.others, (name, False)))
    if verb == "goes" and name in dict(state.others):
        return state._replace(others=tuple(one for one in state.others if one[0] != name))
    if verb == "scaled" and (job := _job(state, name)).asked:
        return state.with_job(job._replace(asked=SCALED))
    return None


def _after(state: State, name: str, actions: Sequence[Action]) -> State:
    """The state after some actions for a Job."""
    for action in actions:
        match action:
            case ChangeWorkloads():
                gone = {one for one, _ in action.gone}
                kept = tuple(one for one in state.own if f"{one.job}-{one.number}" not in gone)
                new = tuple(Own(name, one.index, one.trainers, one.digest) for one in action.new)
                state = state._replace(own=(*kept, *new))
            case ReportWorkloads():
                for report in action.reports:
                    own = tuple(_told(one, report.name, report.report) for one in state.own)
                    state = state._replace(own=own)
            case ResizeWorkload():
                job = _job(state, name)
                unseen = action.resize.unseen.count if action.resize.unseen is not None else 0
                state = state.with_job(job._replace(asked=action.count, recorded=action.count, unseen=unseen))
    return state


def _told(one: Own, name: str, report: Report) -> Own:
    if f"{one.job}-{one.number}" != name:
        return one
    if report is Report.RELEASED:
        return one._replace(state="waiting", is_ready=False)
    return one._replace(is_ready=True) if report is Report.READY else one


def _controlled(job: Sized) -> Sized:
    """The Job controller makes pods although others still end, and ends those beyond the count that it has seen."""
    return job._replace(live=job.seen, ending=job.ending + max(0, job.live - job.seen))


def _unused(state: State) -> int:
    others = sum(OTHERS[name][1] for name, is_admitted in state.others if is_admitted)
    return BLUE + GREEN - others - sum(one.pods for one in state.own if one.state != "waiting")


def _evicted(own: tuple[Own, ...], lacking: int, *, has_base: bool) -> tuple[Own, ...]:
    """Evict the newest surplus first, with what is evicted already, and bases last."""
    lacking -= sum(one.pods for one in own if one.state == "evicted")
    chosen = set()
    newest = own[::-1]
    for one in sorted(newest, key=lambda one: not one.number):
        if lacking > 0 and one.state == "admitted" and (one.number or has_base):
            chosen.add((one.job, one.number))
            lacking -= one.pods
    return tuple(one._replace(state="evicted") if (one.job, one.number) in chosen else one for one in own)


def _objects(state: State) -> list[Object]:
    found: list[Object] = [*SHARED, *state.around.objects()]
    trainers = state.around.placed
    for one in state.own:
        owner = reference_to(_body(_job(state, one.job)))
        more: dict[str, Any] = {"owner": owner, "name": one.job, "ready": one.is_ready, "digest": one.digest}
        found.append(own_workload(one.number, one.pods, state=one.state, at=_NOW_S - 1, **more))
    for job in state.jobs:
        found.append(_body(job))
        for number in range(job.live + job.ending):
            pod = batch_pod(f"{job.name}-{number}", job=job.name, ready_at=number)
            if (on := state.around.node_of(trainers)) != "n1":
                pod["spec"] |= {"nodeName": on}
                pod["status"] |= {} if on else {"phase": "Pending", "conditions": [NO_NODE]}
            trainers += 1
            if number >= job.live:
                pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:10:00Z"
            found.append(pod)
    for name, is_admitted in state.others:
        queue, size, priority = OTHERS[name]
        admitted: dict[str, Any] = {"admitted": size} if is_admitted else {}
        found.append(workload(name, size, queue=queue, priority=priority, at=50, **admitted))
    return found


def _body(job: Sized) -> Object:
    asks = {"paddlepaddle.org/min-instance": str(LOW), "paddlepaddle.org/max-instance": str(HIGH)}
    body = owned_batch_job(asks, suspend=not job.asked, parallelism=job.asked or LOW)
    metadata = body["metadata"]
    metadata |= {"name": job.name, "uid": f"uid-{job.name}"}
    if job.recorded >= 0:
        record: Object = {"time": "1970-01-01T00:10:00Z", "from": 1, "to": job.recorded, "reason": "AtMax"}
        if job.unseen:
            record["unseen"] = {"count": job.unseen, "until": text_of(_NOW_S + 1)}
        metadata["annotations"]["paddlepaddle.org/last-resize"] = json.dumps(record)
    return body
