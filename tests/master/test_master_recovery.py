"""A restarted master: the state that it recovers, the journals that it refuses, and the audit."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from edl.errors import ConfigError
from edl.ledger.events import Done, Event, Granted, JournalError, encode_events
from edl.ledger.snapshot import state_to_json
from edl.master.journal_audit import audit, audit_text
from edl.master.journal_files import frame
from edl.master.master import ExpectedProgress, LedgerLostError
from tests.worlds.ledger.simulation import replayed, run
from tests.worlds.master_processes import TOKEN, cluster, free_port
from tests.worlds.master_server import Served, serving
from tests.worlds.waiting import wait_until

ITEM = ("epoch", "start", "end", "fence")


async def train(served: Served, name: str, tasks: int) -> int:
    """Take leases and report them; returns how many reports were accepted."""
    done: list[object] = []
    accepted = 0
    for seq in range(1, tasks + 2):
        _, answer = await served.sync(name, seq, done=done, want=1 if seq <= tasks else 0)
        accepted += answer["results"].count("accepted")
        done = [{k: lease[k] for k in ("epoch", "start", "end", "fence")} for lease in answer["leases"]]
    return accepted


async def test_a_restarted_master_continues_where_it_stopped(tmp_path: Path) -> None:
    async with serving(tmp_path, shard_size=1) as served:
        assert await train(served, "a", 40) == 40
    async with serving(tmp_path, shard_size=1) as served:
        assert served.master.status()["done"] == 40
        assert await train(served, "b", 60) == 60
        assert served.master.status()["state"] == "finished"


async def test_a_call_writes_only_its_changes_and_not_the_whole_state(tmp_path: Path) -> None:
    """The original master wrote its whole state at every call."""
    async with serving(tmp_path, "index:100000", shard_size=1) as served:
        sizes = [0]
        for number in range(300):
            _, answer = await served.sync(f"t{number}", 1, want=1)
            if number % 2:  # so that the positions to do are many separate ranges
                await served.sync(f"t{number}", 2, done=[{k: answer["leases"][0][k] for k in ITEM}])
            sizes.append(sum(path.stat().st_size for path in tmp_path.glob("journal-*")))  # noqa: ASYNC240 one name
    grown = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(grown[-50:]) < 1.2 * max(grown[:50])
    assert max(grown) < 1000


@pytest.mark.parametrize(("kept_bytes", "files"), [(10**9, 4), (0, 1)])
async def test_snapshots_agree_with_the_records_and_keep_restarts_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int, files: int
) -> None:
    monkeypatch.setattr("edl.master.master.SNAPSHOT_EVENTS", 50)
    monkeypatch.setattr("edl.master.journal._KEPT_BYTES", kept_bytes)
    async with serving(tmp_path, shard_size=1) as served:
        await train(served, "a", 60)
        before = served.master.status()
    journals = list(tmp_path.glob("journal-*"))  # noqa: ASYNC240 a few names
    assert len(journals) == files if kept_bytes == 0 else len(journals) >= files
    assert audit(tmp_path).problems == ()
    async with serving(tmp_path, shard_size=1) as served:
        after = served.master.status()
        assert {k: after[k] for k in ("done", "todo", "leased")} == {k: before[k] for k in ("done", "todo", "leased")}
        assert served.master._events_since_snapshot < 100


async def test_a_lost_ledger_is_refused_or_begins_its_epoch_again(tmp_path: Path) -> None:
    with pytest.raises(LedgerLostError, match="120 positions of epoch 3 were done"):
        async with serving(tmp_path / "a", expected=ExpectedProgress(3, 120)):
            pass
    async with serving(tmp_path / "b", epochs=5, expected=ExpectedProgress(3, 120), restarts_epoch=True) as served:
        status = served.master.status()
        assert (status["epoch"], status["todo"]) == (3, 100)
    async with serving(tmp_path / "b", epochs=5, expected=ExpectedProgress(4, 1)) as served:  # not lost
        assert served.master.status()["epoch"] == 3


def test_the_command_exits_1_for_a_lost_ledger_and_for_a_damaged_journal(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)

    def start(*flags: str) -> subprocess.CompletedProcess[str]:
        command = ["master", "--listen", f"127.0.0.1:{free_port()}", "--journal", str(tmp_path / "j"), *flags]
        command += ["--token-file", str(tmp_path / "token")]
        call = [sys.executable, "-c", "from edl.cli.main import main; main()", *command]
        return subprocess.run(call, capture_output=True, text=True, check=False, timeout=60)

    lost = start("--expect-progress", "3:120")
    assert (lost.returncode, lost.stdout) == (1, "")
    assert lost.stderr.startswith("edl: LedgerLost")
    (tmp_path / "j" / f"journal-{0:015d}").write_bytes(b"xxxx" + frame(0, [b"[]"]))
    damaged = start()
    assert damaged.returncode == 1
    assert "damaged at byte 0" in damaged.stderr
    assert "Traceback" not in lost.stderr + damaged.stderr
    (tmp_path / "empty").write_text("\n")
    for flags, remedy in (
        (["--controller-token-file", str(tmp_path / "empty")], "write the job's token into it"),
        (["--dataset", "{"], 'give a JSON object such as {"source": "index:100000", "shardSize": 1000}'),
        (["--tls-cert", "x"], ""),
        (["--lease-ttl-s", "-1"], ""),
        (["--expect-progress", "x"], ""),
    ):
        refused = start(*flags)
        assert refused.returncode == 2, flags
        assert remedy in refused.stderr


FAILING_DISK = """
import os, pathlib, sys
from edl.cli.main import main
sync, broken = os.fdatasync, pathlib.Path(sys.argv.pop(1))
def fdatasync(file):
    if broken.exists():
        raise OSError(5, "Input/output error")
    sync(file)
os.fdatasync = fdatasync
main()
"""


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1):
        return True
    return False


def test_a_master_whose_disk_fails_to_sync_acknowledges_nothing_more_and_ends(tmp_path: Path) -> None:
    """What it has acknowledged before is there after a restart, and the rest is given out again."""
    token, broken, port = tmp_path / "token", tmp_path / "broken", free_port()
    token.write_text(TOKEN)
    command = [
        "master",
        "--listen",
        f"127.0.0.1:{port}",
        "--journal",
        str(tmp_path / "j"),
        "--token-file",
        str(token),
    ]
    command += ["--dataset", '{"source": "index:100", "shardSize": 10}']
    call = [sys.executable, "-c", FAILING_DISK, str(broken), *command]

    def sync(seq: int, **said: object) -> dict[str, Any]:
        session = {"pod_uid": "uid-a", "incarnation": 1, "name": "a"}
        body = json.dumps({"session": session, "seq": seq, "want": 1, **said}).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/sync", body, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True) as master, contextlib.ExitStack() as ending:
        ending.callback(master.kill)  # one that goes on would keep the test waiting
        wait_until(lambda: answers(port), "the master answers")
        first = [{k: sync(1)["leases"][0][k] for k in ITEM}]
        second = [{k: sync(2, done=first)["leases"][0][k] for k in ITEM}]
        broken.touch()
        with pytest.raises((urllib.error.URLError, OSError)):
            sync(3, done=second)
        _, said = master.communicate(timeout=60)
        assert master.returncode == 1
    assert "Input/output error" in said
    assert "Traceback" not in said
    report = audit(tmp_path / "j")
    assert not report.problems
    assert report.epochs[0].done in {10, 20}, "what was acknowledged is there; what was only written may be"


async def test_an_audit_reads_a_live_journal_and_a_copy_of_it(tmp_path: Path) -> None:
    async with serving(tmp_path / "j", shard_size=10) as served:
        await train(served, "a", 4)
        shutil.copytree(tmp_path / "j", tmp_path / "copy")
        for folder in ("j", "copy"):
            report = audit(tmp_path / folder)
            assert report.problems == ()
            assert [(e.epoch, e.total, e.done, dict(e.done_by), e.is_closed) for e in report.epochs] == [
                (0, 100, 40, {"a": 40}, False)
            ]
        await train(served, "b", 6)
    (epoch,) = audit(tmp_path / "j").epochs
    assert (epoch.done, epoch.is_closed, epoch.done_by) == (100, True, {"a": 40, "b": 60})


@pytest.mark.parametrize("broken", ["granted twice", "reported twice", "never granted"])
async def test_an_audit_finds_events_that_lose_or_double_positions(tmp_path: Path, broken: str) -> None:
    async with serving(tmp_path, shard_size=10) as served:
        await train(served, "a", 2)
    (file,) = tmp_path.glob("journal-*")  # noqa: ASYNC240 one name
    wrong: dict[str, Event] = {
        "granted twice": Granted(2, 5, 15),
        "reported twice": Done(3),
        "never granted": Done(10**6),
    }
    records = file.read_bytes().count(b"\n") + file.read_bytes().count(b"edlJ")
    with file.open("ab") as journal:
        journal.write(frame(records, [encode_events([wrong[broken]])]))
    report = audit(tmp_path)
    assert report.problems
    assert "BROKEN" in audit_text(report)


def write_journal(folder: Path, records: list[bytes]) -> Path:
    """A journal with these records, each in its own frame."""
    folder.mkdir()
    data = b"".join(frame(number, [record]) for number, record in enumerate(records))
    (folder / f"journal-{0:015d}").write_bytes(data)
    return folder


@pytest.mark.parametrize("seed", range(8))
def test_an_audit_follows_every_history_of_faults_to_its_end(tmp_path: Path, seed: int) -> None:
    world = run(seed)
    report = audit(write_journal(tmp_path / "j", world.journal))
    assert report.problems == ()
    total = world.ledger.state.total
    assert [(e.epoch, e.done + sum(b - a for a, b in e.quarantined), e.is_closed) for e in report.epochs] == [
        (0, total, True),
        (1, total, True),
    ]


async def test_after_a_crash_at_any_sync_the_master_serves_again(tmp_path: Path) -> None:
    records = run(3, steps=80).journal
    for number in range(1, len(records) + 1):
        folder = write_journal(tmp_path / str(number), records[:number])
        report = audit(folder)
        assert report.problems == ()
        async with serving(folder, None, ttl_s=0.1) as served:
            state = served.master._ledger.state
            leased = {session.name: session.leases.values() for session in state.sessions.values()}
            assert report.leased == {
                name: sum(lease.end - lease.start for lease in leases) for name, leases in leased.items() if leases
            }
            assert state_to_json(state) == state_to_json(replayed(records[:number]))
        shutil.rmtree(folder)


def test_an_audit_of_an_empty_folder_or_an_unknown_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no journal"):
        audit(tmp_path)
    (tmp_path / f"journal-{0:015d}").write_bytes(frame(0, [b'[["unknown", 1]]']))
    with pytest.raises(JournalError, match="cannot read the record"):
        audit(tmp_path)


def test_status_and_audit_work_with_a_running_master(tmp_path: Path) -> None:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from edl.cli.main import main; main()", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    with cluster(tmp_path, '{"source": "index:100"}') as world:
        token = str(tmp_path / "token")
        table = call("master", "status", world.url, "--token-file", token)
        assert table.returncode == 0
        assert table.stdout.startswith("running: epoch 0 of 1, index:100")
        shown = json.loads(call("master", "status", world.url, "--token-file", token, "-o", "json").stdout)
        assert (shown["todo"], shown["state"]) == (100, "running")
        (tmp_path / "wrong").write_text("a-token-of-another-job")
        assert call("master", "status", world.url, "--token-file", str(tmp_path / "wrong")).returncode == 1
        assert world.audit().returncode == 0
        assert world.master is not None
        world.master.terminate()
        assert world.master.wait(timeout=60) == 0
    assert "msg=stopped" in world.master_log
    assert call("master", "status", world.url, "--token-file", token).returncode == 1
