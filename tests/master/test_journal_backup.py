"""A journal that is copied while its master writes and restored later, as docs/operations.md describes it."""

from __future__ import annotations

import shutil
from pathlib import Path

from edl.master.journal_audit import audit
from tests.master.test_master_recovery import train
from tests.worlds.master_server import serving


async def test_a_journal_copied_while_the_master_writes_can_be_restored(tmp_path: Path) -> None:
    journal, backup = tmp_path / "journal", tmp_path / "backup"
    async with serving(journal, shard_size=1) as served:
        assert await train(served, "a", 30) == 30
        shutil.copytree(journal, backup)
        assert await train(served, "b", 20) == 20
    copied = audit(backup)
    assert copied.problems == ()
    shutil.rmtree(journal)
    shutil.copytree(backup, journal)
    async with serving(journal, shard_size=1) as served:
        assert served.master.status()["done"] == 30, "the work after the copy is leased again"
        assert await train(served, "c", 70) == 70
        assert served.master.status()["state"] == "finished"
    restored = audit(journal)
    assert restored.problems == ()
    assert [(epoch.done, epoch.total) for epoch in restored.epochs] == [(100, 100)]
