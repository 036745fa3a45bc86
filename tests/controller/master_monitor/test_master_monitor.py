"""The controller and real masters: rosters, progress, the end of the data, restores, masters that do not answer."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from edl.controller.ports import MasterAddress, MasterClient
from edl.lifecycle.data_progress import MasterReport, RosterEntry
from edl.model.actions import Action, CreatePod, Outcome, PatchStatus, Result
from edl.model.names import JobKey
from edl.model.progress import LOST_MODEL
from edl.model.status import JobPhase
from tests.worlds.builders import make_nodes
from tests.worlds.controller_with_masters import KEY, Linked, Trainer, controller_token, linked, sharded, until, wired
from tests.worlds.fakes import FakeLease, PodWorld
from tests.worlds.master_server import Served, serving

TTL_S = 30.0


async def test_the_leases_of_a_pod_that_is_gone_end_at_once(tmp_path: Path) -> None:
    async with linked(tmp_path, sharded(), "index:20", ttl_s=TTL_S) as (here, served):
        one, two = (Trainer(served, here.pod(f"a-trainer-{i}")) for i in (0, 1))
        await one.sync(2)
        await one.move(4)
        assert [(x["start"], x["end"]) for x in one.leases] == [(0, 10), (10, 20)]
        assert (await two.sync(1))["leases"] == []
        began_s = asyncio.get_running_loop().time()
        here.take("a-trainer-0")
        answer = await two.sync(2, 20.0)
        took_s = asyncio.get_running_loop().time() - began_s
        assert answer["leases"][0]["start"] == 4, "the reported part is done"
        assert sum(x["end"] - x["start"] for x in answer["leases"]) == 16
        assert took_s < TTL_S / 2, took_s
        print(f"leases of a pod that is gone were given out again after {took_s:.2f} s; the TTL is {TTL_S:g} s")
        assert (await one.sync(1))["status"] == "wait", "a trainer that is not on the roster gets no lease"


async def test_a_terminating_trainer_may_still_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with linked(tmp_path, sharded(), "index:20") as (here, served):
        one = Trainer(served, here.pod("a-trainer-0"))
        await one.sync(1)
        before = (await served.ask("GET", "/v1/status"))[1]["roster"]
        monkeypatch.setattr(here.world, "step", lambda *_: None)  # the kubelet takes its time
        here.world.change(KEY, "a-trainer-0", terminating=True, ready=False)
        here.cluster.touch()
        await until(lambda: here.status().trainer.ready == 1, "the controller has seen it")
        await asyncio.sleep(0.5)
        assert (await served.ask("GET", "/v1/status"))[1]["roster"]["pods"] >= before["pods"]
        assert (await one.work())["results"] == ["accepted"]


async def test_without_changes_nothing_is_published_and_nothing_is_written(tmp_path: Path) -> None:
    async with linked(tmp_path, sharded()) as (here, served):
        await asyncio.sleep(0.5)
        before, writes = (await served.ask("GET", "/v1/status"))[1], len(here.world.writes)
        await asyncio.sleep(2.0)
        after = (await served.ask("GET", "/v1/status"))[1]
        assert after["roster"] == before["roster"]
        assert after["records"] == before["records"]
        assert len(here.world.writes) == writes


async def test_progress_reaches_the_status_at_once_and_then_at_a_bounded_rate(tmp_path: Path) -> None:
    async with linked(tmp_path, sharded(), "index:1000", shard_size=1) as (here, served):
        one = Trainer(served, here.pod("a-trainer-0"))
        await one.work()
        await until(lambda: here.progress().done == 1, "the first position is reported at once")
        writes = len(here.world.writes)
        for _ in range(10):
            await one.work(5)
            await asyncio.sleep(0.25)
        assert (await served.ask("GET", "/v1/status"))[1]["done"] == 51
        assert len(here.world.writes) - writes <= 2
        assert here.progress().total == 1000


async def test_the_end_of_the_data_ends_the_job(tmp_path: Path) -> None:
    async with linked(tmp_path, sharded(), "index:40", epochs=2) as (here, served):
        trainers = [Trainer(served, here.pod(f"a-trainer-{i}")) for i in (0, 1)]
        await asyncio.gather(*(t.end() for t in trainers))
        await until(lambda: here.progress().done == 40, "the end of the last epoch is reported")
        assert here.progress().epoch == 1
        assert here.phase() is not JobPhase.SUCCEEDED
        here.take("a-trainer-1")
        await asyncio.sleep(1.0)
        assert set(here.world.pods(KEY)) == {"a-master-0", "a-trainer-0"}, "no new trainer is started"
        here.finish("a-trainer-0")
        await until(lambda: here.phase() is JobPhase.SUCCEEDED, "the job is complete")
        assert (here.progress().epoch, here.progress().done, here.progress().total) == (1, 40, 40)


async def test_the_last_report_reaches_the_status_even_if_the_trainers_end_right_after_it(tmp_path: Path) -> None:
    async with linked(tmp_path, sharded(), "index:40") as (here, served):
        here.masters._pace = replace(here.pace, interval_s=30.0)
        here.masters._client = SlowWire(here.wire)
        await asyncio.sleep(1.2)
        await Trainer(served, here.pod("a-trainer-0")).end()
        for name in ("a-trainer-0", "a-trainer-1"):
            here.finish(name)
        await until(lambda: here.phase() is JobPhase.SUCCEEDED, "the job is complete")
        written = [a.status for a in here.world.writes if isinstance(a, PatchStatus)]
        last = next(s for s in written if s.phase is JobPhase.SUCCEEDED)
        assert last.dataset is not None
        assert last.dataset.done == 40, "no master is left once the end is stored"


class SlowWire:
    """Masters that answer slowly."""

    def __init__(self, wire: MasterClient) -> None:
        self.wire = wire

    async def report(self, master: MasterAddress) -> MasterReport:
        await asyncio.sleep(0.5)
        return await self.wire.report(master)

    async def publish(self, master: MasterAddress, generation: int, roster: Sequence[RosterEntry]) -> None:
        await self.wire.publish(master, generation, roster)

    async def restore(self, master: MasterAddress) -> int:
        return await self.wire.restore(master)


async def lose_pserver(here: Linked, *, and_wait: bool = True) -> None:
    before = here.pod("a-pserver-0").uid
    here.take("a-pserver-0")
    if and_wait:
        await until(
            lambda: here.world.pods(KEY).get("a-pserver-0") and here.pod("a-pserver-0").uid != before,
            "it is replaced",
        )


async def test_the_master_goes_back_to_the_last_checkpoint_if_a_pserver_is_lost(tmp_path: Path) -> None:
    async with linked(tmp_path, sharded(pservers=2), "index:100") as (here, served):
        one = Trainer(served, here.pod("a-trainer-0"))
        await one.work(4)
        session = {"pod_uid": one.pod.uid, "incarnation": 1, "name": one.pod.name}
        saved = (await served.ask("POST", "/v1/checkpoint/begin", {"session": session, "step": 1}))[1]["id"]
        await served.ask("POST", "/v1/checkpoint/commit", {"id": saved})
        await one.work(3)
        await one.sync(1)
        held = one.leases[0]
        await until(lambda: here.progress().is_begun, "progress is reported")
        before = here.progress().model
        await lose_pserver(here)
        await until(lambda: here.progress().model not in {before, ""}, "other pservers hold the model")
        status = (await served.ask("GET", "/v1/status"))[1]
        assert (status["done"], status["committed"], status["leased"]) == (40, 40, 0)
        answer = await one.sync(1, 2.0, done=[{k: held[k] for k in ("epoch", "start", "end", "fence")}])
        assert answer["results"] == ["stale"]
        assert answer["leases"], "training continues"
        assert any("the master went back to checkpoint" in said for said in here.log)


def no_pod(action: Action) -> Outcome | None:
    """Every creation of a pod fails."""
    return Outcome(action, Result.FAILED, "Unavailable", "503") if isinstance(action, CreatePod) else None


async def test_no_trainer_gets_a_lease_while_a_pserver_is_missing(tmp_path: Path) -> None:
    async with linked(tmp_path, sharded(pservers=1), "index:100") as (here, served):
        one = Trainer(served, here.pod("a-trainer-0"))
        await one.work(2)
        await until(lambda: here.progress().is_begun, "progress is reported")
        here.cluster.policies = no_pod
        await lose_pserver(here, and_wait=False)  # it does not come back yet
        published = here.masters._masters[here.job().uid]
        await until(lambda: published.published == (ANY, ()), "the roster is empty", timeout_s=10.0)
        assert here.pod("a-trainer-0").is_live, "the trainer runs, and still gets nothing"
        assert (await one.sync(1))["status"] == "wait"
        assert (await served.ask("GET", "/v1/status"))[1]["done"] == 20, "nothing is restored yet"


async def test_the_master_of_a_suspended_job_goes_back_to_the_start_of_the_epoch(tmp_path: Path) -> None:
    async with linked(tmp_path, sharded(), "index:100") as (here, served):
        await Trainer(served, here.pod("a-trainer-0")).work(3)
        await until(lambda: here.progress().is_begun, "progress is reported")
        here.world.add(replace(here.job(), suspended=True, generation=2))
        here.cluster.touch()
        await until(lambda: here.progress().model == LOST_MODEL and not here.job().pods, "the pods are gone")
        here.world.add(replace(here.job(), suspended=False, generation=3))
        here.cluster.touch()
        await until(lambda: here.progress().model == "trainers", "the master went back")
        assert (await served.ask("GET", "/v1/status"))[1]["done"] == 0


async def test_a_suspended_job_goes_on_from_what_its_trainers_saved_when_they_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with linked(tmp_path, sharded(), "index:100") as (here, served):
        one = Trainer(served, here.pod("a-trainer-0"))
        await one.work(3)
        await until(lambda: here.progress().is_begun, "progress is reported")
        step = here.world.step
        monkeypatch.setattr(here.world, "step", lambda *_: None)  # the kubelet waits for the trainers
        here.world.add(replace(here.job(), suspended=True, generation=2))
        here.cluster.touch()
        await until(lambda: here.progress().model == LOST_MODEL and here.pod("a-trainer-0").terminating, "they end")
        assert not here.pod("a-master-0").terminating, "the save would be lost with the master"
        master, reports = here.masters._masters[here.job().uid], list[MasterReport | None]()

        def is_called() -> bool:
            if not any(master.report is one for one in reports):
                reports.append(master.report)
            return len(reports) > 3

        here.cluster.touch()
        await until(is_called, "the controller calls the master, and must not take it back")
        session = {"pod_uid": one.pod.uid, "incarnation": 1, "name": one.pod.name}
        status, begun = await served.ask("POST", "/v1/checkpoint/begin", {"session": session, "step": 1})
        assert status == 200, begun
        await served.ask("POST", "/v1/checkpoint/commit", {"id": begun["id"]})
        monkeypatch.setattr(here.world, "step", step)
        here.cluster.touch()
        await until(lambda: not here.job().pods, "the master ends after the trainers")
        here.world.add(replace(here.job(), suspended=False, generation=3))
        here.cluster.touch()
        await until(lambda: here.progress().model == "trainers", "the job goes on")
        assert (await served.ask("GET", "/v1/status"))[1]["done"] == 30


async def test_a_master_that_does_not_answer_delays_no_other_job(tmp_path: Path) -> None:
    b = JobKey("default", "b")
    async with linked(tmp_path, sharded(max_trainers=4)) as (here, served):
        here.ip = lambda key: "127.0.0.1" if key == KEY else "127.9.9.9"
        here.world.add(sharded("b"))
        here.cluster.touch()
        await until(lambda: any("to the master failed" in log for log in here.log), "b's master does not answer")
        await until(lambda: len(here.job(b).live_trainers) == 2, "b starts anyway")
        here.take("a-trainer-0")
        await until(lambda: len(here.job().live_trainers) >= 2, "a is monitored")
        await Trainer(served, here.job().live_trainers[0]).work()
        await until(lambda: here.progress().done == 10, "the report of a's master is read")
        here.recorder.seconds.clear()
        await asyncio.sleep(1.5)
        assert max(here.recorder.seconds) < 1.0, "plans are not delayed"
        assert here.recorder.failures == []


async def test_only_the_leader_publishes_rosters(tmp_path: Path) -> None:
    job = sharded()
    async with linked(tmp_path, job) as (here, served), wired(tmp_path, served.port) as wire:
        here.lease.held = False
        await asyncio.sleep(1.2)
        before = (await served.ask("GET", "/v1/status"))[1]["roster"]
        here.take("a-trainer-0")
        await asyncio.sleep(1.0)
        assert (await served.ask("GET", "/v1/status"))[1]["roster"] == before
        other = Linked(here.world, wire, lease=FakeLease())
        other.start()
        try:
            await until(lambda: len(here.job().live_trainers) == 2, "the other replica leads")
            await asyncio.sleep(0.5)
            after = (await served.ask("GET", "/v1/status"))[1]["roster"]
            assert after["generation"] > before["generation"]
            newest = Trainer(served, other.pod("a-trainer-0"))
            assert (await newest.sync(1, 2.0))["leases"]
        finally:
            await other.stop()


async def test_only_the_leader_monitors_masters(tmp_path: Path) -> None:
    async with linked(tmp_path, sharded()) as (here, _):
        assert here.masters.master_view(here.job()) is not None
        here.lease.held = False
        await until(lambda: here.masters.master_view(here.job()) is None, "a follower does not monitor")


async def test_a_master_with_a_roster_newer_than_the_clock_gets_a_newer_one(tmp_path: Path) -> None:
    async with linked(tmp_path, sharded()) as (here, served):
        await served.master.set_roster(2**50, ["somebody"])
        here.take("a-trainer-0")
        await until(lambda: len(here.job().live_trainers) == 2, "it is replaced")
        one = Trainer(served, here.pod("a-trainer-0"))
        for _ in range(40):
            if (await one.sync(1, 0.2))["leases"]:
                break
        assert one.leases


async def test_a_master_that_refuses_the_token_is_not_trusted(tmp_path: Path) -> None:
    job = sharded()
    async with (
        serving(tmp_path / "journal", "index:100", controller="another token") as served,
        wired(tmp_path, served.port) as wire,
    ):
        here = Linked(PodWorld(), wire)
        here.world.add(job)
        here.start()
        try:
            await until(lambda: any("403" in said for said in here.log), "the master rejects us")
            await until(lambda: here.phase() is JobPhase.RUNNING, "the job runs anyway")
            assert here.status().dataset is None
        finally:
            await here.stop()


@pytest.mark.parametrize("policy", ["utility"])
async def test_measured_speed_and_cost_survive_a_restart_of_the_controller(tmp_path: Path, policy: str) -> None:
    job = sharded(min_trainers=1, max_trainers=4, pinned=1)
    async with linked(tmp_path, job, "index:1000000", shard_size=100_000, policy=policy) as (here, served):
        busy = asyncio.create_task(keep_busy(here, served))
        try:
            await until(lambda: here.status().measured.speeds, "one trainer was measured", 15)
            here.world.add(replace(here.job(), pinned=2, generation=2))
            here.cluster.touch()
            await until(lambda: len(here.status().measured.speeds) == 2, "two were measured", 15)
        finally:
            busy.cancel()
        await until(lambda: here.status().measured.resize_s is not None, "and the resize")
        found = here.status()
        assert [s.trainers for s in found.measured.speeds] == [1, 2]
        slow, fast = (s.per_s for s in found.measured.speeds)
        assert 1.4 < fast / slow < 2.8
        assert found.last_resize is not None
        assert found.last_resize.lost_s is not None
        await here.stop()
        async with wired(tmp_path, served.port) as wire:
            other = Linked(here.world, wire)
            other.start()
            await asyncio.sleep(1.0)
            assert other.status().measured == found.measured
            await other.stop()


async def keep_busy(here: Linked, served: Any) -> None:
    """Each live trainer moves its cursor by 20 positions every 0.2 s."""
    known: dict[str, Trainer] = {}
    while True:
        for pod in here.job().live_trainers:
            trainer = known.setdefault(pod.uid, Trainer(served, pod))
            if not trainer.leases:
                await trainer.sync(1)
            else:
                await trainer.move(20)
        await asyncio.sleep(0.2)


def test_each_job_has_its_own_token() -> None:
    assert controller_token(sharded("a")) != controller_token(sharded("b"))


async def test_a_job_that_does_not_scale_gets_no_more_trainers(tmp_path: Path) -> None:
    """Both jobs are measured with two and with four trainers; then capacity is added that both can use."""
    flat, steep = sharded("flat", min_trainers=1, max_trainers=12), sharded("steep", min_trainers=1, max_trainers=12)
    job_of = {"127.0.0.1": flat, "127.0.0.2": steep}
    async with AsyncExitStack() as stack:
        served, port = {}, 0
        for host, job in job_of.items():
            world = serving(
                tmp_path / host,
                "index:10000000",
                controller=controller_token(job),
                shard_size=100_000,
                host=host,
                port=port,
            )
            one = await stack.enter_async_context(world)
            served[job.key], port = one, one.port
        here = Linked(PodWorld(), await stack.enter_async_context(wired(tmp_path, port)), policy="utility")
        here.ip = lambda key: next(ip for ip, job in job_of.items() if job.key == key)
        here.nodes = here.cluster.nodes = make_nodes(2, cpu=4)
        for job in job_of.values():
            here.world.add(replace(job, pinned=2, cooldown_s=0.0))
        here.start()
        stack.push_async_callback(here.stop)
        speeds = {flat.key: lambda _: 40, steep.key: lambda n: 40 * n}
        busy = [asyncio.create_task(move_together(here, served[key], key, speeds[key])) for key in served]
        stack.callback(lambda: [task.cancel() for task in busy])
        await measure_at(here, served, 2)
        here.nodes = here.cluster.nodes = make_nodes(3, cpu=4)
        await measure_at(here, served, 4)
        for key in served:
            here.world.add(replace(here.job(key), pinned=0, generation=9))
        here.nodes = here.cluster.nodes = make_nodes(4, cpu=4)
        here.cluster.touch()
        await until(lambda: len(here.job(steep.key).live_trainers) >= 10, "the job that scales gets the trainers", 20)
        assert len(here.job(flat.key).live_trainers) <= 4


def is_measured(here: Linked, key: JobKey, count: int) -> bool:
    return count in {speed.trainers for speed in here.status(key).measured.speeds}


async def measure_at(here: Linked, served: Mapping[JobKey, Served], count: int) -> None:
    """Pin the trainers of every job and wait until the status has the speed with that many."""
    for key in served:
        here.world.add(replace(here.job(key), pinned=count, generation=here.job(key).generation + 1))
    here.cluster.touch()
    for key in served:
        await until(functools.partial(is_measured, here, key, count), f"{key}", 25)


async def move_together(here: Linked, served: Served, key: JobKey, per_step: Callable[[int], int]) -> None:
    """All trainers of a job together advance by that many positions every 0.2 s."""
    known: dict[str, Trainer] = {}
    while True:
        live = here.job(key).live_trainers
        for pod in live:
            trainer = known.setdefault(pod.uid, Trainer(served, pod))
            if not trainer.leases:
                await trainer.sync(1)
            else:
                await trainer.move(per_step(len(live)) // len(live))
        await asyncio.sleep(0.2)
