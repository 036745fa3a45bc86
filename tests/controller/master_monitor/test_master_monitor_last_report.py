"""A job whose trainers have ended waits for the last report of its master, but not for ever; in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from edl.controller.master_monitor.monitor import MasterMonitor
from edl.controller.ports import MasterAddress
from edl.errors import PermanentError, TemporaryError
from edl.lifecycle.data_progress import MasterReport, MasterState, RosterEntry
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role
from edl.model.pods import PodPhase
from edl.model.status import JobPhase, JobStatus
from edl.sim.virtual_time import LoopClock
from tests.worlds.builders import make_job, make_nodes, make_shape
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living

A = JobKey("default", "a")
RECORDS = 20_000
BOUND_S, FIRST_BOUND_S, ROUND_S = 60, 15, 10
FINISHED = MasterReport(MasterState.FINISHED, 0, RECORDS, RECORDS, RECORDS)


class ScriptedMaster:
    """A master that gives one answer: a report, or an error. It counts the calls."""

    def __init__(self) -> None:
        self.answer: MasterReport | Exception = TemporaryError("connection refused")
        self.calls = 0

    async def report(self, _: MasterAddress) -> MasterReport:
        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def publish(self, _: MasterAddress, generation: int, roster: Sequence[RosterEntry]) -> None:
        if isinstance(self.answer, MasterReport):
            self.answer = replace(self.answer, roster=(generation, len(roster)))

    async def restore(self, _: MasterAddress) -> int:
        raise AssertionError("no model is lost")


class Linked(Living):
    """A living world whose controller calls the scripted master."""

    def __init__(self) -> None:
        self.master = ScriptedMaster()
        self.masters: MasterMonitor | None = None
        super().__init__(make_nodes(1, cpu=6))

    async def _new(self) -> None:
        await super()._new()
        self.masters = MasterMonitor(self.master, LoopClock(), self.lease, lambda *_: None)
        self.controller._masters = self.masters

    def crash(self) -> None:
        self._disconnect()
        super().crash()

    def close(self) -> None:
        self._disconnect()
        super().close()

    def _disconnect(self) -> None:
        if self.masters is not None:
            self.run(self.masters.close())

    def pass_time(self, duration_s: int) -> None:
        for _ in range(duration_s):
            self.step(1.0)
            self.do(give_master_an_address)

    def train(self, job: Job) -> None:
        """Run the job until its trainers have been ready for a while, then end all of them."""
        self.do(lambda world: world.add(job))
        self.pass_time(20)
        self.do(end_trainers)

    @property
    def status(self) -> JobStatus:
        status = self.world.job(A).status
        assert status is not None
        return status

    @property
    def progress(self) -> tuple[int, int] | None:
        dataset = self.status.dataset
        return (dataset.done, dataset.total) if dataset is not None else None

    def is_complete(self) -> bool:
        return self.status.phase is JobPhase.SUCCEEDED

    def message(self) -> str:
        complete = self.status.condition("Complete")
        assert complete is not None
        return complete.message


def give_master_an_address(world: World) -> None:
    for (namespace, name), owned in list(world.pods.items()):
        if name == "a-master-0" and owned.pod.phase is PodPhase.RUNNING and not owned.pod.ip:
            world.change(name, namespace, ip="10.0.0.1")


def end_trainers(world: World) -> None:
    for _, name in [key for key, owned in world.pods.items() if owned.pod.role is Role.TRAINER]:
        world.finish(name)


def fill_the_node(world: World) -> None:
    world.serve("web-0", 5.5)


def lose_master(world: World) -> None:
    world.vanish("a-master-0")


def sharded(*, has_dataset: bool = True, fault_tolerant: bool = True) -> Job:
    job = make_job("a", min_trainers=2, max_trainers=2, fixed=(FixedPods(Role.MASTER, make_shape(0.25), 1),))
    return replace(job, uid="job-1", has_dataset=has_dataset, fault_tolerant=fault_tolerant)


@pytest.fixture
def living() -> Iterator[Linked]:
    living = Linked()
    yield living
    assert living.recorder.failures == []
    assert living.world.violations == []
    living.close()


@pytest.mark.parametrize("fault_tolerant", [True, False])
def test_a_job_that_ends_before_its_master_answers_waits_for_the_accounts(
    living: Linked, *, fault_tolerant: bool
) -> None:
    living.train(sharded(fault_tolerant=fault_tolerant))
    living.pass_time(BOUND_S - ROUND_S)
    assert not living.is_complete()
    assert {p.phase for p in living.world.job(A).pods if p.role is Role.TRAINER} == {PodPhase.SUCCEEDED}
    living.master.answer = FINISHED
    living.pass_time(2 * ROUND_S)
    assert living.is_complete()
    assert living.progress == (RECORDS, RECORDS)
    assert "unknown" not in living.message()


@pytest.mark.parametrize("fault_tolerant", [True, False])
def test_a_silent_master_does_not_hold_a_job_for_ever(living: Linked, *, fault_tolerant: bool) -> None:
    living.train(sharded(fault_tolerant=fault_tolerant))
    living.pass_time(BOUND_S + ROUND_S)
    assert living.is_complete()
    assert living.progress is None
    assert "the final accounts of the data are unknown (the last reported positions: none)" in living.message()


def test_a_master_that_is_lost_at_the_end_leaves_the_last_report(living: Linked) -> None:
    living.master.answer = MasterReport(MasterState.RUNNING, 0, 500, RECORDS, 500, RECORDS - 500)
    living.do(lambda world: world.add(sharded()))
    living.pass_time(20)
    living.master.answer = TemporaryError("timeout")
    living.do(end_trainers)
    living.pass_time(BOUND_S // 2)
    assert not living.is_complete()
    living.do(lose_master)
    living.pass_time(BOUND_S // 2 + ROUND_S)
    assert living.is_complete(), "a new master does not start the wait again"
    assert living.progress == (500, RECORDS)
    assert f"unknown (the last reported positions: 500 of {RECORDS} positions of epoch 0)" in living.message()


def test_a_new_controller_waits_for_the_last_report_too(living: Linked) -> None:
    living.train(sharded())
    living.pass_time(5)
    living.do(lambda world: world.change("a-master-0", ip="", phase=PodPhase.PENDING))
    living.crash()
    living.step(1.0)
    assert not living.is_complete()
    living.master.answer = FINISHED
    living.do(lambda world: world.change("a-master-0", phase=PodPhase.RUNNING))
    living.pass_time(2 * ROUND_S)
    assert living.is_complete()
    assert living.progress == (RECORDS, RECORDS)


def test_a_waiting_job_keeps_its_ended_pods_while_others_take_its_capacity(living: Linked) -> None:
    living.train(sharded())
    living.do(fill_the_node)
    living.pass_time(BOUND_S // 2)
    assert len(living.world.job(A).completed(Role.TRAINER)) == 2
    living.master.answer = FINISHED
    living.pass_time(2 * ROUND_S)
    assert living.is_complete()
    assert living.progress == (RECORDS, RECORDS)


def test_the_end_of_the_trainers_wakes_the_call_of_a_master_that_did_not_answer(living: Linked) -> None:
    living.do(lambda world: world.add(sharded()))
    living.pass_time(60)
    living.master.answer = FINISHED
    living.do(end_trainers)
    living.pass_time(3)
    assert living.is_complete()
    assert living.progress == (RECORDS, RECORDS)


def test_a_master_that_becomes_ready_is_called_at_once(living: Linked) -> None:
    living.do(lambda world: world.add(sharded()))
    living.pass_time(2)
    living.do(lambda world: world.change("a-master-0", ready=False))
    living.pass_time(60)
    calls = living.master.calls
    living.do(lambda world: world.change("a-master-0", ready=True))
    living.step(0.5)
    assert living.master.calls > calls


@pytest.mark.parametrize(
    ("answer", "within_s"),
    [
        (PermanentError("404"), ROUND_S),
        (TemporaryError("connection refused"), FIRST_BOUND_S + ROUND_S),
        (MasterReport(MasterState.EMPTY), ROUND_S),
    ],
    ids=["another program", "no answer", "no data set"],
)
def test_a_job_without_a_data_set_hardly_waits(
    living: Linked, answer: MasterReport | Exception, within_s: int
) -> None:
    living.master.answer = answer
    living.train(sharded(has_dataset=False))
    living.pass_time(within_s)
    assert living.is_complete()
    assert "unknown" not in living.message()


def test_a_data_set_that_the_trainers_declare_is_accounted_for(living: Linked) -> None:
    living.train(sharded(has_dataset=False))
    living.pass_time(5)
    assert not living.is_complete()
    living.master.answer = FINISHED
    living.pass_time(ROUND_S)
    assert living.is_complete()
    assert living.progress == (RECORDS, RECORDS)
