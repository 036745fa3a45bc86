"""One run: a scenario under one policy with one seed, from its parts to its figures.

The production controller runs on the virtual loop: the same turns, life cycle and `decide` as on a cluster.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from edl.controller.loop import Controller, Partners
from edl.controller.pace import Pace
from edl.controller.plan_maker import Planner
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import SERVING_GRACE_S, UNTRIED_S, LendingLimits, Limits, ServingLimits, SharingLimits
from edl.model.names import JobKey
from edl.model.resources import CPU
from edl.planner.guard import check
from edl.planner.starts import startable
from edl.sim.baselines.base import JobFacts
from edl.sim.deployments import Deployment
from edl.sim.headroom import advisor_of
from edl.sim.kubelet import SERVING, Kubelet
from edl.sim.masters import SimulatedMasters
from edl.sim.measures import measure, slots_of
from edl.sim.meter import Decisions, Meter, Sample
from edl.sim.native import NativeJobs
from edl.sim.policies import NATIVES, Native, decider
from edl.sim.port import SimulatedCluster, remove_job
from edl.sim.scenario import DeploymentSpec, JobGroup, Scenario, Series
from edl.sim.scheduler import Scheduler
from edl.sim.shapes import job_of, nodes_of
from edl.sim.training import JobRun, Training, complete
from edl.sim.virtual_time import InlineRunner, LoopClock, Timeline, VirtualLoop
from edl.sim.world import Engine, World

AFTERWARDS_S = 60.0
"""How long a run goes on after its last job is done."""

SETTLE_S = 120.0
"""Virtual time for the serving of second 0 to come to rest, before the scenario; more while pods still start."""


BeforeRise = Callable[[World, DeploymentSpec, int], None]


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run.

    Attributes:
        figures: by name; docs/simulator.md explains them.
        samples: the cluster over time; trainers: by job, (second, running trainers).
        gaps: (second, gap) of each plan; waits_s: of each job, until its first trainer ran.
        completions_s: by job, from its creation to its end, of those that were done.
        prices: by job, the price of lending that the controller had learned last.
        problems: what the controller could not do; empty unless edl has a bug.
        cpu_s, decision_s: processor seconds of the run, and those of them that decisions took.
    """

    policy: str
    seed: int
    figures: dict[str, float]
    samples: tuple[Sample, ...] = ()
    trainers: dict[str, tuple[tuple[float, int], ...]] = field(default_factory=dict)
    gaps: tuple[tuple[float, float], ...] = ()
    waits_s: tuple[float, ...] = ()
    completions_s: dict[str, float] = field(default_factory=dict)
    prices: dict[str, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    cpu_s: float = 0.0
    decision_s: float = 0.0


def simulate(scenario: Scenario, policy: str, seed: int, before_rise: BeforeRise | None = None) -> Run:
    """Run a scenario once.

    Args:
        scenario: what runs.
        policy: under which policy.
        seed: the seed of everything that chance decides.
        before_rise: called with the cluster, the Deployment and the pods to come, before each rise of serving.

    Raises:
        ConfigError: the policy does not exist.
    """
    began_s = time.process_time()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        if isinstance(loop, VirtualLoop):
            loop.ignore_threads()
        try:
            live = runner.run(_live(scenario, policy, seed, before_rise))
        finally:
            if isinstance(loop, VirtualLoop):
                loop.watch_threads()
    run = live.result(policy, seed)
    cpu_s = time.process_time() - began_s
    return Run(
        policy,
        seed,
        run.figures,
        run.samples,
        run.trainers,
        run.gaps,
        run.waits_s,
        run.completions_s,
        run.prices,
        run.problems,
        cpu_s,
        run.decision_s,
    )


async def _live(scenario: Scenario, policy: str, seed: int, before_rise: BeforeRise | None) -> _Simulation:
    simulation = _Simulation(scenario, policy, seed, before_rise)
    await simulation.run()
    return simulation


class _Simulation:
    """The parts of one run, in a running loop."""

    def __init__(self, scenario: Scenario, policy: str, seed: int, before_rise: BeforeRise | None) -> None:
        self._scenario, self._before_rise = scenario, before_rise
        loop = asyncio.get_running_loop()
        self._rng = random.Random(f"{scenario.name} {seed}")  # noqa: S311 - a simulation, no secret
        self._engine = Engine(loop.time, loop.call_later, self._rng)
        pairs = list(nodes_of(scenario.nodes))
        self._world = World((node for node, _ in pairs), (system for _, system in pairs))
        self._kubelet = Kubelet(self._world, self._engine, scenario.latency)
        self._scheduler = Scheduler(self._world, self._engine, scenario.scheduler)
        self._training = Training(self._world, self._engine, self._done)
        self._decisions = Decisions()
        self._native = self._native_jobs(policy)
        self._decide = None if self._native is not None else decider(policy, self._facts)
        self._deployments = [
            Deployment(
                self._world,
                self._engine,
                spec,
                scenario.latency.create_per_s,
                youngest_first=scenario.scheduler.retry == "backoff",
            )
            for spec in scenario.serving
        ]
        self._all_done = asyncio.Event()
        self._left = sum(group.count for group in scenario.jobs)
        self._slots: dict[str, int] = {}
        self._start_s = 0.0
        self._meter: Meter | None = None
        self._masters = self._simulated_masters(seed)

    def _simulated_masters(self, seed: int) -> SimulatedMasters | None:
        """Make the simulated masters, which learn the price of lending; None without lending."""
        if self._scenario.controller.surplus_cpu_request >= 1.0:
            return None
        rng = random.Random(f"{self._scenario.name} {seed} masters")  # noqa: S311 - a simulation, no secret
        return SimulatedMasters(self._training, LoopClock(), _AlwaysHeld(), rng)

    def _native_jobs(self, policy: str) -> NativeJobs | None:
        if policy not in NATIVES:
            return None
        native: Native = NATIVES[policy]
        return NativeJobs(
            self._world, self._engine, is_elastic=native.is_elastic, has_priorities=native.has_priorities
        )

    async def run(self) -> None:
        """Let serving reach its state, then let the scenario and the controller run to its end."""
        if self._scenario.settled:
            await self._settle()
        self._start_s = self._engine.now_s()
        self._meter = Meter(self._world, self._engine, self._training, self._start_s)
        self._meter.adopt(self._deployments)
        self._schedule()
        stop = asyncio.Event()
        controller = None
        if self._native is not None:
            self._native.start()
        else:
            controller = asyncio.create_task(self._controller().run(stop))
        await self._until_the_end()
        self._training.advance_all()
        self._meter.close()
        if controller is not None:
            controller.cancel()
            await asyncio.gather(controller, return_exceptions=True)
        if self._masters is not None:
            await self._masters.close()

    async def _until_the_end(self) -> None:
        """Wait until the scenario is over, or earlier until all work is done if no serving goes on."""
        try:
            async with asyncio.timeout(self._scenario.duration_s):
                await self._all_done.wait()
                await asyncio.sleep(AFTERWARDS_S)
        except TimeoutError:
            return

    def _controller(self) -> Controller:
        spec = self._scenario.controller
        limits = Limits(
            deadline_s=spec.deadline_s,
            sharing=SharingLimits(max_load_desired=spec.max_load_desired),
            serving=ServingLimits(
                headroom=spec.serving_headroom if isinstance(spec.serving_headroom, int) else 0,
                grace_s=SERVING_GRACE_S,
                untried_s=UNTRIED_S,
            ),
            lending=LendingLimits(
                surplus_cpu_request=spec.surplus_cpu_request,
                running=spec.lend_by_resize,
                clear_after_s=spec.clear_lending_after_s,
            ),
        )
        if self._decide is None:
            raise AssertionError("policies of 2017 run without a controller")
        return Controller(
            cluster=SimulatedCluster(
                self._world, self._engine, self._scenario.latency, lends_by_resize=spec.lend_by_resize
            ),
            clock=LoopClock(),
            lease=_AlwaysHeld(),
            recorder=self._decisions,
            planner=Planner(self._decide, lambda s, plan: check(s, plan, limits.quotas), startable, self._runner),
            limits=limits,
            pace=Pace(interval_s=spec.interval_s),
            partners=Partners(masters=self._masters, advisor=advisor_of(self._scenario, self._start_s)),
        )

    def _runner(self) -> InlineRunner:
        low_s, high_s = self._scenario.latency.decide_s
        return InlineRunner(partial(self._rng.uniform, low_s, high_s)) if high_s else InlineRunner()

    async def _settle(self) -> None:
        for deployment in self._deployments:
            deployment.scale(next((n for at_s, n in reversed(deployment.spec.replicas) if at_s == 0), 0))
        latency = self._scenario.latency
        pause_s = max(SETTLE_S, latency.start_of(SERVING)[1] + 2 / latency.create_per_s)
        await asyncio.sleep(SETTLE_S)
        before = -1
        while before < (here := sum(one.made + one.ready for one in self._deployments)) and any(
            one.ready < one.target for one in self._deployments
        ):
            before = here
            await asyncio.sleep(pause_s)

    # --- What the scenario does

    def _schedule(self) -> None:
        scenario, timeline = self._scenario, Timeline()
        for deployment in self._deployments:
            for at_s, replicas in deployment.spec.replicas:
                timeline.add(at_s, partial(self._scale, deployment, replicas))
        for group in scenario.jobs:
            arrivals = self._moments(group.arrival, group.count)
            for number, at_s in enumerate(arrivals):
                timeline.add(at_s, partial(self._submit, group, number))
            if group.removal is not None:
                for number, at_s in enumerate(self._moments(group.removal, group.count)):
                    timeline.add(max(at_s, arrivals[number]), partial(self._remove, group, number))
        for event in scenario.node_events:
            what = self._lose if event.event == "lost" else self._return
            timeline.add(event.at_s, partial(what, event.node))
        timeline.start(self._engine.later)

    def _moments(self, series: Series, count: int) -> list[float]:
        return [
            max(0.0, at_s + self._rng.uniform(-series.jitter_s, series.jitter_s)) for at_s in series.moments(count)
        ]

    def _scale(self, deployment: Deployment, replicas: int) -> None:
        more = replicas - deployment.target
        if self._before_rise is not None and more > 0:
            self._before_rise(self._world, deployment.spec, more)
        deployment.scale(replicas)
        if self._meter is not None:
            self._meter.sample()

    def _submit(self, group: JobGroup, number: int) -> None:
        job = job_of(group, number, self._engine.now_s())
        self._training.add(job.key, job.uid, group)
        if self._native is None:
            self._world.put_job(job)
        elif self._decide is None:
            elastic = self._native.is_elastic
            self._native.submit(job, (group.start or group.min) if elastic else (group.fixed or group.max))

    def _remove(self, group: JobGroup, number: int) -> None:
        key = job_of(group, number, 0.0).key
        run = self._training.runs.get(key)
        if run is not None and not run.is_over:
            self._training.end(run, is_done=False)
            self._delete(key)
            self._one_less()

    def _delete(self, key: JobKey) -> None:
        if self._native is not None:
            self._native.forget(key)
        remove_job(self._world, key)

    def _done(self, run: JobRun) -> None:
        if self._native is not None:
            self._delete(run.key)
        else:
            complete(self._world, run)
        self._one_less()

    def _one_less(self) -> None:
        """Count a job as over; the run ends soon after the last one if there is no serving."""
        self._left -= 1
        if not self._left and not self._deployments:
            self._all_done.set()

    def _lose(self, name: str) -> None:
        self._world.remove_node(name)

    def _return(self, name: str) -> None:
        self._world.return_node(name)
        self._scheduler.node_came(name)

    # --- What baselines know, and what comes out

    def _facts(self, snapshot: ClusterSnapshot) -> tuple[Sequence[JobFacts], float]:
        """The facts of the jobs that have not ended; the capacity is what serving and masters leave of the cores."""
        self._training.advance_all()
        facts, used = [], 0.0
        total = snapshot_cpu(snapshot)
        for job in snapshot.jobs:
            run = self._training.runs[job.key]
            if run.is_over or not job.is_schedulable:
                continue
            slots = self._slots.get(run.group.name)
            if slots is None:
                slots = self._slots[run.group.name] = slots_of(run, self._scenario)
            used += sum(fixed.shape.request[CPU] * fixed.count for fixed in job.fixed) / max(1, total)
            facts.append(
                JobFacts(
                    key=job.key,
                    min_trainers=job.min_trainers,
                    max_trainers=min(job.max_trainers, slots),
                    fixed=run.group.fixed or run.group.max,
                    current=len(job.live_trainers),
                    age_s=self._engine.now_s() - run.created_s,
                    remaining=run.remaining,
                    attained_s=run.attained_s,
                    curve=run.curve,
                    slots=slots,
                    resize_s=run.group.resize.cost_s,
                )
            )
        used += sum(pod.shape.request[CPU] for pod in snapshot.pods) / max(1, total)
        return facts, max(0.0, 1.0 - used)

    def result(self, policy: str, seed: int) -> Run:
        """The figures, once the run is over."""
        if self._meter is None:
            raise AssertionError("the run has not begun")
        runs, start_s = list(self._training.runs.values()), self._start_s
        column = self._world.resources.index(CPU)
        cores = (int(self._world.allocatable[:, column].sum()) + self._world.system_milli) / 1000
        waits = [r.first_running_s - r.created_s for r in runs if r.first_running_s is not None]
        return Run(
            policy,
            seed,
            measure(self._scenario, self._meter, runs, self._decisions, start_s=start_s, cores=cores),
            tuple(self._meter.samples),
            {key.name: tuple(steps) for key, steps in self._meter.trainers.items()},
            tuple((at_s - start_s, gap) for at_s, gap in self._decisions.gaps),
            tuple(waits),
            {run.key.name: run.ended_s - run.created_s for run in runs if run.is_done and run.ended_s is not None},
            {key.name: price for key, price in self._meter.prices.items()},
            tuple(self._decisions.problems),
            decision_s=self._decide.cpu_s if self._decide is not None else 0.0,
        )


def snapshot_cpu(snapshot: ClusterSnapshot) -> int:
    """Add up the allocatable millicores of all nodes."""
    return sum(node.allocatable[CPU] for node in snapshot.nodes)


class _AlwaysHeld:
    """A lease that no other replica wants."""

    def is_held(self) -> bool:
        """Return True: the simulated controller always holds the lease."""
        return True
