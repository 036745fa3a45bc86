"""A mix under the real controller and planner on a simulated cluster, wave by wave, with every count on the way.

The simulated owners of the pods are in `job_owner`; what real adapters write is not part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from edl.model.actions import ResizeWorkload
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role, WorkloadKind
from tests.worlds.builders import make_job, make_nodes, make_shape
from tests.worlds.job_owner import make_batch, make_volcano
from tests.worlds.mixes.random_mix import CORES, Member, Mix, Wave
from tests.worlds.mixes.rules import Bounds, unfair
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living
from tests.worlds.simulated_objects import GRACE_S

STEP_S = 1.0
WITHOUT_DEADLINE = Limits(deadline_s=1e9)
"""A plan that is cut short by the time it takes differs between runs."""

OWNER_S = GRACE_S
"""How much longer serving may wait beside pods that other controllers delete: for the end of one more pod."""

AFTER_COOLDOWN_S = 61.0
"""Shares may be uneven until the cooldowns of all jobs are over."""
_MOST_STEPS = 240
_QUIET_STEPS = 16


@dataclass(frozen=True, slots=True)
class Played:
    """What became of a mix.

    Attributes:
        broken: the rules that were broken; empty after a good mix.
        waited_s: for each wave, how long until its last serving pod had a node, in seconds.
        resizes: how often edl changed the count of a workload that is no TrainingJob.
    """

    broken: tuple[str, ...]
    waited_s: tuple[float, ...]
    resizes: int


def play(mix: Mix) -> Played:
    """Play a mix from its beginning to its end."""
    with closing(Living(make_nodes(mix.nodes, cpu=CORES), WITHOUT_DEADLINE)) as living:
        return _Stage(mix, living).play()


class _Stage:
    def __init__(self, mix: Mix, living: Living) -> None:
        self._mix, self._living = mix, living
        self._bounds = Bounds()
        self._broken: list[str] = []
        self._here: list[Member] = []

    def play(self) -> Played:
        waited = []
        for number, wave in enumerate(self._mix.waves):
            for member in (one for one in self._mix.members if one.wave == number):
                self._here.append(member)
                self._living.do(partial(World.add, job=_job(member)))
            self._rest(f"before wave {number}", Wave(0, 1))
            waited.append(self._rise(number, wave))
            self._rest(f"wave {number}", wave)
            self._living.do(lambda world: world.serving.clear())
        self._rest("after the last wave", Wave(0, 1))
        world = self._living.world
        restarts = [f"{key} started again {count} times" for key, count in world.job_owner.restarts.items()]
        broken = (*self._bounds.broken, *self._broken, *restarts, *world.violations, *self._living.broken)
        resizes = sum(isinstance(action, ResizeWorkload) for action in world.writes)
        return Played(broken, tuple(waited), resizes)

    def _rise(self, number: int, wave: Wave) -> float:
        """Serving asks for room; returns how long it waited, in seconds."""
        for pod in range(wave.pods):
            self._living.do(partial(World.serve, name=f"web-{number}-{pod}", cpu=wave.cores))
        since_s = self._now_s()
        for _ in range(_MOST_STEPS):
            if all(pod.node for pod in self._living.world.serving.values()):
                return self._now_s() - since_s
            self._step()
        self._broken.append(f"serving of wave {number} has no capacity")
        return self._now_s() - since_s

    def _rest(self, when: str, wave: Wave) -> None:
        """Come to rest, let the cooldowns pass, come to rest again, and judge the shares."""
        self._settle(when)
        self._living.wait(AFTER_COOLDOWN_S)
        self._settle(when)
        room = self._mix.nodes * CORES - wave.pods * wave.cores
        counts = {member: self._live(member) for member in self._here}
        self._broken += [f"{when}: {line}" for line in unfair(counts, room)]
        self._broken += [f"{when}: {line}" for line in self._unfinished()]

    def _unfinished(self) -> Iterator[str]:
        for member in self._here:
            job = self._living.world.job(_key(member))
            if not self._live(member):
                yield f"{member.name} does not run"
            fixed = sum(pod.role is not Role.TRAINER and pod.is_live for pod in job.pods)
            if fixed != sum(one.count for one in job.fixed):
                yield f"{member.name} has {fixed} pods besides its trainers"
            yield from (f"{pod.name} has no node" for pod in job.pods if not pod.node)

    def _settle(self, when: str) -> None:
        """Steps until nothing has changed for some time."""
        quiet, before = 0, None
        for _ in range(_MOST_STEPS):
            self._step()
            now = len(self._living.world.writes), set(self._living.world.pods)
            quiet, before = (quiet + 1 if now == before else 0), now
            if quiet == _QUIET_STEPS:
                return
        self._broken.append(f"{when}: the cluster does not come to rest")

    def _step(self) -> None:
        """A round of the controller, then what the cluster does, with a look at the counts after each."""
        self._living.round()
        self._look()
        self._living.wait(STEP_S)
        self._living.do(World.live)
        self._look()

    def _look(self) -> None:
        for member in self._here:
            self._bounds.see(member, self._live(member))

    def _live(self, member: Member) -> int:
        return len(self._living.world.job(_key(member)).live_trainers)

    def _now_s(self) -> float:
        return float(self._living.runner.get_loop().time())


def _key(member: Member) -> JobKey:
    return JobKey.of(member.kind, "default", member.name)


def _job(member: Member) -> Job:
    """The job as the planner sees it, with its minimum."""
    if member.kind is WorkloadKind.BATCH_JOB:
        return make_batch(member.name, member.low, low=member.low, high=member.high)
    if member.kind is WorkloadKind.VOLCANO_JOB:
        return make_volcano(member.name, member.low, low=member.low, high=member.high, pservers=member.pservers)
    fixed = [FixedPods(Role.MASTER, make_shape(1), 1), FixedPods(Role.PSERVER, make_shape(1), member.pservers)]
    job = make_job(member.name, min_trainers=member.low, max_trainers=member.high)
    return replace(job, fixed=tuple(one for one in fixed if one.count))
