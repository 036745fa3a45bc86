"""From trainers in step to their number: their goodput, the master, its client, policy `goodput`, `edl explain`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from edl.controller.planning import report_snapshot
from edl.explain.speeds.curve import Source, SpeedReport
from edl.model.limits import Limits
from edl.model.pods import Pod
from edl.worker import connect
from tests.worlds.builders import make_nodes
from tests.worlds.controller_with_masters import KEY, Linked, linked, sharded, until
from tests.worlds.in_step.learning import NOISE_SCALE, LearningReplica
from tests.worlds.in_step.lists import Wire
from tests.worlds.master_server import TOKEN, Served

BASE, LARGEST, RECORDS = 16, 256, 1000


@asynccontextmanager
async def trainers_of(here: Linked, served: Served, folder: Path) -> AsyncIterator[dict[str, LearningReplica]]:
    """A thread that trains for each trainer pod that the controller makes, until the block ends."""
    wire, is_over = Wire(), threading.Event()
    replicas: dict[str, LearningReplica] = {}
    threads: list[asyncio.Task[None]] = []

    def train(pod: Pod) -> None:
        environment = {"POD_NAME": pod.name, "POD_UID": pod.uid, "TRAINERS": "1", "EDL_GLOBAL_BATCH": str(BASE)}
        environment["EDL_GLOBAL_BATCH_MAX"] = str(LARGEST)
        replica = replicas[pod.name]
        with connect(served.url, token=TOKEN, environment=environment) as job:
            loop = job.steps(replica, f"at-{pod.name}", save_every=0, rate_rule="adascale")
            replica.tuner.begin(loop.settings)
            for _ in loop.pieces():
                if is_over.is_set():
                    job.leave()

    async def begin_new_ones() -> None:
        while True:
            for pod in here.job().live_trainers:
                if pod.ready and pod.name not in replicas:
                    replicas[pod.name] = LearningReplica(wire, folder)
                    threads.append(asyncio.create_task(asyncio.to_thread(train, pod)))
            await asyncio.sleep(0.05)

    starting = asyncio.create_task(begin_new_ones())
    try:
        yield replicas
    finally:
        starting.cancel()
        is_over.set()
        await asyncio.gather(starting, *threads, return_exceptions=True)


async def explained(here: Linked) -> SpeedReport:
    """What `edl explain` says of the job's speed now."""
    found = report_snapshot(await here.cluster.observe(), KEY, "goodput", Limits()).speeds
    assert found is not None
    return found


@pytest.mark.timeout(300)
async def test_the_count_follows_what_trainers_measure_and_their_batch_follows_the_count(tmp_path: Path) -> None:
    """One trainer fits at first. Then four would fit, and no more than twice of what was seen is planned at once."""
    job = replace(sharded(min_trainers=1, max_trainers=4), resize_cost_s=1.0, cooldown_s=1.0)
    one, many = make_nodes(1, cpu=1.5), make_nodes(1, cpu=8)
    planned: list[int] = []
    async with (
        linked(tmp_path, job, f"index:{RECORDS}", policy="goodput", nodes=one, epochs=10_000) as (here, served),
        trainers_of(here, served, tmp_path) as replicas,
    ):

        def has_measured(*counts: int) -> bool:
            planned.append(here.status().trainer.desired)
            found = here.status().measured.goodputs
            return {*counts} <= {one.trainers for one in found if one.is_measured}

        await until(lambda: has_measured(1), "one trainer has told its goodput")
        assert set(planned) == {1}
        alone = await explained(here)
        assert alone.flat_from == 2
        here.cluster.nodes = many
        here.cluster.touch()
        await until(lambda: has_measured(1, 2), "two have told their goodput")
        assert set(planned) == {1, 2}, "of four nothing was known"
        await until(lambda: has_measured(1, 2, 4), "four have told their goodput")
        four = await explained(here)
        sizes = {size for replica in replicas.values() for size in replica.sizes}
        batches = {plan.batch for plan in next(iter(replicas.values())).plans}
    assert {1, 2, 4} <= sizes
    assert len(batches) > 1, "the batch changes while they train"
    speeds = {one.trainers: one for one in four.counts}
    assert [speeds[n].source for n in (1, 2, 4)] == [Source.MEASURED] * 3
    assert speeds[1].per_s < speeds[2].per_s < speeds[4].per_s
    assert (speeds[1].batch or 0) < (speeds[4].batch or 0), "the best batch grows with the count"
    batch, useful = speeds[4].batch or 0, speeds[4].efficiency or 0.0
    assert NOISE_SCALE / 3 < (batch * useful - BASE) / (1 - useful) < 3 * NOISE_SCALE, "by the noise of the gradients"
    assert four.batch in batches
    assert four.change is not None
    assert four.change.cost_s == 1.0
