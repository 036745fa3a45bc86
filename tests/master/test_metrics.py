"""The metrics of a master follow its ledger."""

from __future__ import annotations

from pathlib import Path

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
