"""The controller is killed at each write and at each call to a master: in the end ledger and model agree.

Virtual time; the master is a fake of our own port, which remembers with which pserver each position was worked on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from edl.controller.master_monitor.monitor import MasterMonitor
from edl.controller.master_monitor.pace import CallPace
from edl.controller.ports import MasterAddress
from edl.errors import ConflictError, TemporaryError
from edl.lifecycle.data_progress import MasterReport, MasterState, RosterEntry, model_of
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role
from edl.model.pods import PodPhase
from edl.model.status import JobPhase
from edl.sim.virtual_time import LoopClock
from tests.worlds.builders import make_job, make_nodes, make_shape
from tests.worlds.effort import some
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living

A = JobKey("default", "a")
FIXED = (FixedPods(Role.MASTER, make_shape(0.25), 1), FixedPods(Role.PSERVER, make_shape(0.5), 1))
STEPS, HAPPENS = 36, 8
PACE = CallPace(interval_s=1.0, retry_s=0.2, retry_at_most_s=1.0, report_wait_s=5.0)


class FakeMaster:
    """A master whose ledger only counts finished positions.

    Attributes:
        work: for each position that counts as done, the UID of the pserver that has it in its model.
        is_away: the controller cannot reach it; trainers can.
        kill_at: (number of a call that changes something, whether it still does): there the controller is killed.
    """

    def __init__(self) -> None:
        self.work: list[str] = []
        self.roster: tuple[int, Sequence[RosterEntry]] | None = None
        self.restores = 0
        self.calls = 0
        self.kill_at: tuple[int, bool] | None = None
        self.is_disconnected = self.is_away = False
        self.kill: Callable[[], None] = lambda: None

    async def report(self, _: MasterAddress) -> MasterReport:
        self._listen()
        done, roster = len(self.work), self.roster
        working = frozenset(seat.uid for seat in roster[1]) if roster else frozenset[str]()
        in_force = (roster[0], len(roster[1])) if roster else None
        return MasterReport(MasterState.RUNNING, 0, done, 1000, done, 1000 - done, working=working, roster=in_force)

    async def publish(self, master: MasterAddress, generation: int, roster: Sequence[RosterEntry]) -> None:
        if self.roster is not None and generation < self.roster[0]:
            raise ConflictError(f"roster of {master.job}: older")
        with self._call():
            self.roster = (generation, tuple(roster))

    async def restore(self, master: MasterAddress) -> int:
        assert master.job == A
        with self._call():
            self.work.clear()
            self.restores += 1
        return 0

    def _listen(self) -> None:
        if self.is_disconnected or self.is_away:
            raise TemporaryError("no answer")

    @contextmanager
    def _call(self) -> Iterator[None]:
        self._listen()
        is_killed = self.kill_at is not None and self.calls == self.kill_at[0]
        self.calls += 1
        if is_killed and self.kill_at is not None:
            self.is_disconnected = True
            self.kill()
            if self.kill_at[1]:
                yield
            raise TemporaryError("the controller is killed")
        yield


class Linked(Living):
    """A living world whose controller calls the fake master."""

    def __init__(self) -> None:
        self.master = FakeMaster()
        self.masters: MasterMonitor | None = None
        super().__init__(make_nodes(2, cpu=6))

    async def _new(self) -> None:
        await super()._new()
        self.master.is_disconnected = False
        self.master.kill = functools.partial(setattr, self.access, "alive", False)
        self.masters = MasterMonitor(self.master, LoopClock(), self.lease, lambda *_: None, PACE)
        self.controller._masters = self.masters

    def crash(self) -> None:
        if self.masters is not None:
            self.run(self.masters.close())
        super().crash()

    def train(self) -> None:
        """A step of the cluster, then every trainer with a lease works."""
        self.step(1.0)
        if self.master.is_disconnected:
            self.crash()
        self.do(self._work)

    def _work(self, world: World) -> None:
        for (namespace, name), owned in list(world.pods.items()):
            if name == "a-master-0" and owned.pod.phase is PodPhase.RUNNING and not owned.pod.ip:
                world.change(name, namespace, ip="10.0.0.1")
        live = {o.pod.uid for o in world.pods.values() if o.pod.role is Role.TRAINER and o.pod.ready}
        seats = self.master.roster[1] if self.master.roster is not None else ()
        holder = world.pods.get(("default", "a-pserver-0"))
        if holder is not None and holder.pod.ready:
            self.master.work += [holder.pod.uid for seat in seats if seat.uid in live]

    def close(self) -> None:
        if self.masters is not None:
            self.run(self.masters.close())
        super().close()


def sharded() -> Job:
    return replace(make_job("a", min_trainers=2, max_trainers=3), fixed=FIXED, uid="job-1", has_dataset=True)


def lose_pserver(living: Linked, step: int) -> None:
    if step == HAPPENS:
        living.do(lambda world: world.vanish("a-pserver-0"))


def lose_pserver_while_the_master_is_away(living: Linked, step: int) -> None:
    living.master.is_away = HAPPENS <= step < HAPPENS + 8
    lose_pserver(living, step)


def suspend_and_resume(living: Linked, step: int) -> None:
    if step in {HAPPENS, HAPPENS + 8}:
        living.do(lambda world: world.edit(A, suspended=step == HAPPENS))


SCENARIOS: dict[str, Callable[[Linked, int], None]] = {
    "lost": lose_pserver,
    "lost while away": lose_pserver_while_the_master_is_away,
    "suspended": suspend_and_resume,
}


def play(name: str, write: tuple[int, bool] | None = None, call: tuple[int, bool] | None = None) -> tuple[int, int]:
    """Play a scenario; returns the number of writes and of calls after the event."""
    living = Linked()
    try:
        living.do(lambda world: world.add(sharded()))
        for step in range(STEPS):
            if step == HAPPENS:
                assert living.master.work, "some work is done"
                living.access.effects.clear()
                living.access.kill_at, living.master.calls, living.master.kill_at = write, 0, call
            SCENARIOS[name](living, step)
            living.train()
        judge(living)
        return len(living.access.effects), living.master.calls
    finally:
        living.close()


def judge(living: Linked) -> None:
    """The model contains what counts as done, and training continues."""
    job = living.world.job(A)
    status, holder = job.status, living.world.pods["default", "a-pserver-0"].pod
    assert living.master.restores >= 1
    assert set(living.master.work) == {holder.uid}
    assert status is not None
    assert status.phase is JobPhase.RUNNING
    assert status.dataset is not None
    assert status.dataset.model == model_of(job)
    assert status.dataset.done > 0
    assert living.master.roster is not None
    assert {seat.uid for seat in living.master.roster[1]} == {p.uid for p in job.live_trainers}
    assert living.world.violations == []
    assert living.recorder.failures == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_ledger_and_model_agree_in_the_end_wherever_the_controller_is_killed(name: str) -> None:
    writes, calls = play(name)
    assert writes >= 4
    assert calls >= 3
    for write in some([(number, after) for number in range(writes) for after in (False, True)]):
        play(name, write=write)
    for call in some([(number, after) for number in range(calls) for after in (False, True)]):
        play(name, call=call)
