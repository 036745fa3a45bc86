"""Random events for jobs, pods, nodes and watches: the rules hold after each step, and the cluster becomes quiet.

The controller runs with its real planner over a cluster in virtual time (`tests.worlds.simulated_controller`).
`make campaign` plays many more examples, new ones each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import methodcaller
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edl.controller.pauses.unstarted_growth import LONGEST_S
from edl.lifecycle.pod_events import STEADY_AFTER_S
from edl.lifecycle.status import ended_as, is_over
from edl.lifecycle.step import Stage
from edl.model.actions import Action, EmitEvent, Outcome, Result
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import FixedPods, Job, RolePolicy
from edl.model.names import JobKey, Role
from edl.model.pods import Pod
from edl.model.status import Condition, JobPhase
from tests.worlds.builders import make_job, make_nodes, make_shape
from tests.worlds.effort import examples
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living

A, G = JobKey("default", "a"), JobKey("default", "g")
NODES = make_nodes(4, cpu=8)
MASTER = FixedPods(Role.MASTER, make_shape(0.25), 1)
PICK = st.integers(0, 1000)
EVENTS = (JobEvent.POD_FAILED, JobEvent.POD_EVICTED, JobEvent.TASK_COMPLETED)
ANSWERS = st.lists(
    st.builds(RolePolicy, st.sampled_from(Role), st.sampled_from(EVENTS), st.sampled_from(JobAction)), max_size=2
).map(tuple)


def pservers(count: int) -> FixedPods:
    return FixedPods(Role.PSERVER, make_shape(0.5), count)


class LifeMachine(RuleBasedStateMachine):
    """Two jobs, one in each mode, on four nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.living = Living(NODES)
        self.made = 0
        self.ends: dict[str, Stage] = {}
        self.ceiling: dict[str, int] = {}

    @property
    def world(self) -> World:
        return self.living.world

    @initialize(policies=ANSWERS, gang=st.booleans())
    def begin(self, *, policies: tuple[RolePolicy, ...], gang: bool) -> None:
        self.add(replace(self.elastic(), policies=policies, gang=gang))
        self.add(self.gang())
        for _ in range(3):
            self.living.step()

    def elastic(self) -> Job:
        return replace(make_job("a", min_trainers=2, max_trainers=5), fixed=(MASTER, pservers(2)), backoff_limit=3)

    def gang(self) -> Job:
        return replace(
            make_job("g", min_trainers=3, max_trainers=3),
            fixed=(pservers(1),),
            fault_tolerant=False,
            backoff_limit=3,
            tier=1,
        )

    def add(self, job: Job) -> None:
        self.made += 1
        job = replace(job, uid=f"job-{self.made}")
        self.living.do(lambda w: w.add(job))

    def pick(self, which: int, among: Callable[[Pod], bool]) -> Pod | None:
        pods = [o.pod for _, o in sorted(self.world.pods.items()) if among(o.pod)]
        return pods[which % len(pods)] if pods else None

    # --- Time and the controller

    @rule(rounds=st.integers(1, 3), pause_s=st.sampled_from([0.5, 1.0, 5.0]))
    def steps(self, rounds: int, pause_s: float) -> None:
        for _ in range(rounds):
            self.living.step(pause_s)

    @rule()
    def round(self) -> None:
        self.living.round()

    @rule(duration_s=st.sampled_from([2.0, 40.0, 3700.0]))
    def time_passes(self, duration_s: float) -> None:
        self.living.wait(duration_s)
        self.living.do(World.live)

    @rule(effect=st.integers(0, 6), happens=st.booleans())
    def the_controller_is_killed(self, effect: int, *, happens: bool) -> None:
        self.living.access.kill_at = (len(self.living.access.effects) + effect, happens)
        self.living.step()

    @rule(happens=st.booleans(), every=st.integers(1, 3))
    def the_server_fails(self, *, happens: bool, every: int) -> None:
        """Some writes fail in one round: they did not happen, or they did and the answer was lost."""
        count = 0

        def fail(action: Action) -> tuple[bool, Outcome] | None:
            nonlocal count
            count += 1
            is_hit = count % every == 0 and not isinstance(action, EmitEvent)
            return (happens, Outcome(action, Result.FAILED, "Unavailable", "503")) if is_hit else None

        self.world.fault = fail
        self.living.step()
        self.world.fault = lambda _: None

    @rule(reason=st.sampled_from(["Forbidden", "Conflict"]))
    def the_server_refuses(self, reason: str) -> None:
        result = Result.REFUSED if reason == "Forbidden" else Result.CONFLICT
        self.world.fault = lambda action: (False, Outcome(action, result, reason, "no"))
        self.living.step()
        self.world.fault = lambda _: None

    # --- The watch

    @rule(holds=st.booleans())
    def the_watch_is_slow(self, *, holds: bool) -> None:
        self.world.holds_back = holds
        if not holds:
            self.living.do(World.deliver)

    @precondition(lambda self: self.world.watch)
    @rule(count=st.integers(1, 5))
    def some_events_arrive(self, count: int) -> None:
        self.living.do(lambda w: w.deliver(count))

    @precondition(lambda self: self.world.watch)
    @rule()
    def an_event_is_lost(self) -> None:
        self.living.do(World.lose_event)

    @precondition(lambda self: self.world.watch)
    @rule()
    def an_event_comes_twice(self) -> None:
        self.living.do(World.repeat_event)

    @rule()
    def everything_is_listed_again(self) -> None:
        self.living.do(World.list_again)

    # --- Pods and nodes

    @rule(which=PICK, code=st.sampled_from([0, 1, 137]))
    def a_pod_ends(self, which: int, code: int) -> None:
        pod = self.pick(which, lambda p: p.is_live and bool(p.started_s) and (code > 0 or p.role is not Role.MASTER))
        if pod is not None:
            self.living.do(lambda w: w.finish(pod.name, code))

    @rule(job=st.sampled_from([A, G]))
    def every_trainer_ends(self, job: JobKey) -> None:
        for owned in list(self.world.pods.values()):
            pod = owned.pod
            if pod.job == job and pod.role is Role.TRAINER and pod.is_live and pod.started_s:
                self.living.do(methodcaller("finish", pod.name))

    @rule(which=PICK, why=st.sampled_from(["", "PreemptionByScheduler", "EvictionByEvictionAPI"]))
    def a_pod_is_taken_away(self, which: int, why: str) -> None:
        pod = self.pick(which, lambda p: not p.terminating)
        if pod is not None:
            self.living.do(lambda w: w.take_away(pod.name, why))

    @rule(which=PICK)
    def a_pod_vanishes(self, which: int) -> None:
        pod = self.pick(which, lambda _: True)
        if pod is not None:
            self.living.do(lambda w: w.vanish(pod.name))

    @rule(which=st.integers(0, 3), ready=st.booleans())
    def a_node_changes(self, which: int, *, ready: bool) -> None:
        self.living.do(lambda w: w.nodes.update({NODES[which].name: replace(NODES[which], ready=ready)}))

    @rule(which=st.integers(0, 3))
    def a_node_is_lost(self, which: int) -> None:
        self.living.do(lambda w: w.lose_node(NODES[which].name))

    @rule(cpu=st.sampled_from([2, 4]), comes=st.booleans())
    def serving(self, cpu: int, *, comes: bool) -> None:
        if comes:
            self.living.do(lambda w: w.serve("web", cpu))
        else:
            self.world.serving.clear()

    # --- Users

    @rule(
        fields=st.sampled_from(
            [
                {"max_trainers": 3},
                {"max_trainers": 6},
                {"min_trainers": 1},
                {"min_trainers": 3},
                {"pinned": 3},
                {"pinned": 0},
                {"fixed": (MASTER, pservers(1))},
                {"fixed": (MASTER, pservers(3))},
                {"trainer": make_shape(2)},
                {"tier": 2},
            ]
        )
    )
    def the_elastic_job_is_edited(self, fields: dict[str, Any]) -> None:
        if A in self.world.jobs:
            self._edit(A, fields)

    @rule(size=st.integers(2, 4))
    def the_gang_is_edited(self, size: int) -> None:
        if G in self.world.jobs:
            self._edit(G, {"min_trainers": size, "max_trainers": size})

    def _edit(self, key: JobKey, fields: dict[str, Any]) -> None:
        job = self.world.job(key)
        self.ceiling[job.uid] = max(job.max_trainers, len(job.live_trainers), self.ceiling.get(job.uid, 0))
        self.living.do(lambda w: w.edit(key, **fields))

    @rule(key=st.sampled_from([A, G]), suspended=st.booleans())
    def a_job_is_suspended_or_resumed(self, key: JobKey, *, suspended: bool) -> None:
        if key in self.world.jobs and self.world.jobs[key].job.suspended is not suspended:
            self.living.do(lambda w: w.edit(key, suspended=suspended))

    @rule(key=st.sampled_from([A, G]))
    def a_job_is_deleted_and_made_again(self, key: JobKey) -> None:
        self.living.do(lambda w: w.delete_job(key))
        self.add(self.elastic() if key == A else self.gang())

    @rule(
        key=st.sampled_from([A, G]),
        fields=st.sampled_from(
            [
                {"phase": JobPhase.SUCCEEDED},
                {"phase": JobPhase.RUNNING},
                {"completion_s": 5.0},
                {"conditions": ()},
                {"conditions": (Condition("Complete", "True", "Finished", "forged", 0.0, 1),)},
                {"reason": "Forged", "explanation": "forged", "selector": "forged", "observed_generation": 99},
            ]
        ),
    )
    def a_status_is_forged(self, key: JobKey, fields: dict[str, Any]) -> None:
        """Never so that it reads as the end of a job that goes on, or the other way round: nobody can see that."""
        if key not in self.world.jobs:
            return
        job = self.world.job(key)
        forged = replace(job, status=replace(job.status, **fields)) if job.status is not None else job
        if is_over(forged) is is_over(job) and ended_as(forged).stage is ended_as(job).stage:
            self.living.do(lambda w: w.forge(key, **fields))

    # --- What always holds

    @invariant()
    def nobody_did_what_nobody_may(self) -> None:
        assert not self.world.violations
        assert not [f for f in self.living.recorder.failures if not f.startswith("plan")]

    @invariant()
    def no_job_has_more_trainers_than_its_maximum(self) -> None:
        """A lower maximum counts from the moment that the controller answers it."""
        for key in self.world.jobs:
            job = self.world.job(key)
            live = len(job.live_trainers)
            assert live <= max(job.max_trainers, self.ceiling.get(job.uid, 0))
            is_answered = job.status is not None and job.status.observed_generation == job.generation
            if live <= job.max_trainers and is_answered:
                self.ceiling.pop(job.uid, None)

    @invariant()
    def what_has_ended_stays_so(self) -> None:
        for key in self.world.jobs:
            job = self.world.job(key)
            if is_over(job) or job.uid in self.ends:
                assert is_over(job)
                assert self.ends.setdefault(job.uid, ended_as(job).stage) is ended_as(job).stage

    @invariant()
    def only_failures_are_counted(self) -> None:
        for stored in self.world.jobs.values():
            status = stored.job.status
            assert status is None or status.failures <= self.world.failed[stored.job.uid]

    @invariant()
    def no_node_holds_more_than_it_has(self) -> None:
        for name, node in self.world.nodes.items():
            assert self.world._held(name).fits(node.allocatable)

    def teardown(self) -> None:
        """Once nothing happens any more, everything is as it should be, and nothing more is written."""
        try:
            self._rest()
        finally:
            self.living.close()

    def _rest(self) -> None:
        if not self.world.jobs:
            return
        self.world.holds_back = False
        self.world.serving.clear()
        self.living.do(lambda w: w.nodes.update({n.name: n for n in NODES}))
        self.living.do(World.list_again)
        for _ in range(int(LONGEST_S // 60) + 1):  # the longest pause before growth that did not start
            self.living.step(60)
        for _ in range(2):  # what starts meanwhile is steady after the second wait
            self.living.wait(STEADY_AFTER_S)
            self.living.settle()
        for key in self.world.jobs:
            self._is_as_it_should_be(self.world.job(key))
        writes = len(self.world.writes)
        for _ in range(10):
            self.living.step(60)
        assert self.world.writes[writes:] == []
        self.nobody_did_what_nobody_may()

    def _is_as_it_should_be(self, job: Job) -> None:
        assert job.status is not None
        assert job.status.observed_generation == job.generation
        assert {c.observed_generation for c in job.status.conditions} == {job.generation}
        assert job.status.selector.startswith("paddlepaddle.org/job=")
        if job.suspended and not is_over(job):
            assert not job.pods
        elif is_over(job):
            assert not [p for p in job.pods if not p.is_finished]
        else:
            assert job.status.phase is JobPhase.RUNNING, job.status.explanation
            live = {role: sorted(p.index or 0 for p in job.pods if p.role is role) for role in Role}
            for fixed in job.fixed:
                assert live[fixed.role] == list(range(fixed.count))
            if not job.fault_tolerant:  # of a trainer that completed, the pod may be gone
                assert sorted({*live[Role.TRAINER], *job.completed_indexes}) == list(range(job.min_trainers))


LifeMachine.TestCase.settings = examples(60, stateful_step_count=50)
TestLife = LifeMachine.TestCase
