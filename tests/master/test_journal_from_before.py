"""A journal that was written before the modules moved: it is audited and recovered as if this edl had written it.

It holds a data set of 100 positions, two sessions, a roster, a committed checkpoint, a report that failed, a lease in
work, and one snapshot with the records before and after it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.master_server import serving

OLD = Path(__file__).parent / "journals" / "before-the-move"
# What the edl that wrote the journal answered after a restart.
STATUS = {
    "state": "running",
    "dataset": {
        "source": "index:100",
        "version": "",
        "total": 100,
        "block": 1024,
        "epochs": 2,
        "seed": 7,
        "shardSize": 10,
        "maxQuarantinedFraction": 0.01,
    },
    "epoch": 0,
    "total": 100,
    "todo": 40,
    "leased": 20,
    "reported": 10,
    "committed": 30,
    "done": 40,
    "consumed": 40,
    "quarantined": 0,
    "quarantined_ranges": [],
    "quarantined_records": [],
    "redispatched": 10,
    "checkpoint": {"id": 15, "step": 300, "epoch": 0},
    "roster": {"generation": 1767607200000, "pods": 2},
    "closed": [],
    "blocked": None,
    "records": 11,
}
HOLDERS = [
    {"name": f"ctr-trainer-{i}", "pod_uid": f"uid-ctr-trainer-{i}", "leases": 1, "positions": 10, "done": done}
    for i, done in ((0, 30), (1, 10))
]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "journal"))


def test_the_sample_has_a_snapshot_and_records_before_and_after_it() -> None:
    assert sorted(path.name for path in OLD.iterdir()) == [
        f"journal-{0:015d}",
        f"journal-{6:015d}",
        f"snapshot-{6:015d}",
    ]


def test_an_old_journal_passes_the_audit(journal: Path) -> None:
    command = [sys.executable, "-c", "from edl.cli.main import main; main()", "audit", str(journal), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["ok"] is True
    (epoch,) = report["epochs"]
    assert (epoch["epoch"], epoch["total"], epoch["done"], epoch["redispatched"]) == (0, 100, 40, 10)
    assert epoch["quarantined"] == []


async def test_a_master_recovers_from_an_old_journal_with_the_same_status(journal: Path) -> None:
    async with serving(journal, source=None) as served:
        status: dict[str, Any] = (await served.ask("GET", "/v1/status"))[1]
        assert {key: status[key] for key in STATUS} == STATUS
        assert [{key: holder[key] for key in HOLDERS[0]} for holder in status["holders"]] == HOLDERS


async def test_training_resumes_on_an_old_journal(journal: Path) -> None:
    async with serving(journal, source=None) as served:
        lease = {"epoch": 0, "start": 60, "end": 70, "fence": 24}
        _, answer = await served.sync("ctr-trainer-0", 6, done=[lease], want=0)
        assert answer["results"] == ["accepted"]
        assert served.master.status()["done"] == 50
