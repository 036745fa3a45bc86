"""The metrics of a master follow its ledger."""

from __future__ import annotations

from pathlib import Path

from edl.master.metrics import MasterMetrics
from tests.worlds.master_server import Served, serving


async def value(served: Served, name: str) -> float:
    async with served.client.get(f"{served.url}/metrics") as page:
        lines = (await page.text()).splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


async def test_positions_that_a_trainer_gives_back_are_dispatched_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        _, reply = await served.sync("t", 1, want=1)
        (lease,) = reply["leases"]
        item = {name: lease[name] for name in ("epoch", "start", "end", "fence")}
        assert await value(served, "edl_master_redispatched_positions") == 0
        await served.sync("t", 2, failed=[{**item, "error": ""}])
        assert await value(served, "edl_master_redispatched_positions") == item["end"] - item["start"] > 0


async def test_trainers_that_hang_are_counted(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        status = served.master.status()
    hung = {"pod_uid": "uid-b", "name": "b", "reason": "silent", "seconds": 7.0}
    page = MasterMetrics()
    assert b"edl_master_hung_trainers 1.0" in page.render({**status, "group": {"hung": [hung]}})
    assert b"edl_master_hung_trainers 0.0" in page.render({**status, "group": None})


async def test_the_epoch_and_a_full_disk_are_those_of_the_status(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        status = served.master.status()
    page = MasterMetrics()
    for epoch, blocked in ((0, None), (1, "no space"), (2, None)):
        lines = page.render({**status, "epoch": epoch, "blocked": blocked}).decode().splitlines()
        assert f"edl_master_epoch {float(epoch)}" in lines
        assert f"edl_master_journal_blocked {float(blocked is not None)}" in lines
