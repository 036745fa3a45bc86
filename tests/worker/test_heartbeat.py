"""A trainer counts as silent only if its process is: a loop that is busy for long is not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edl.ledger.group_values import GroupSettings
from tests.worlds.master_server import TOKEN, Served, serving
from tests.worlds.waiting import wait_until

ROOT = Path(__file__).parents[2]
UNWATCHED_S = 3.0  # a sign of life comes each second, on a busy machine some of them late
TRAINER = textwrap.dedent(
    """
    import ctypes, sys, time
    from pathlib import Path
    from edl.worker import connect
    from tests.worlds.in_step.lists import ListReplica, Wire
    with connect(sys.argv[1], token=sys.argv[2]) as job:
        loop = job.steps(ListReplica(Wire(), Path(sys.argv[3])), "here", global_batch=10)
        for number, piece in enumerate(loop.pieces()):
            if number == 3:
                print("busy", flush=True)
                ctypes.PyDLL(None).sleep(int(sys.argv[4]))  # in this call no other thread of Python runs
    print("complete", loop.is_complete, loop.counts.worlds, flush=True)
    """
)


def start(served: Served, folder: Path, busy_s: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TRAINER, served.url, TOKEN, str(folder), str(busy_s)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "POD_NAME": "a", "POD_UID": "uid-a"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


async def until(ready: Callable[[], Any], what: str) -> None:
    await asyncio.to_thread(wait_until, ready, what, 60)


async def test_a_trainer_in_a_long_call_that_lets_no_thread_run_is_not_lost(tmp_path: Path) -> None:
    async with serving(tmp_path / "j", "index:100", group=GroupSettings(unwatched_s=UNWATCHED_S)) as served:
        process = start(served, tmp_path, 7)
        out, _ = await asyncio.to_thread(process.communicate, timeout=60)
        group = served.master.status()["group"]
    assert out.splitlines() == ["busy", "complete True 1"]
    assert [loss for loss in group["losses"] if loss["reason"] != "left"] == []


async def test_a_trainer_that_is_stopped_is_silent(tmp_path: Path) -> None:
    async with serving(tmp_path / "j", "index:100", group=GroupSettings(unwatched_s=UNWATCHED_S)) as served:
        process = start(served, tmp_path, 60)
        assert process.stdout is not None
        try:
            assert await asyncio.to_thread(process.stdout.readline) == "busy\n"
            process.send_signal(signal.SIGSTOP)
            await until(lambda: served.master.status()["group"]["losses"], "it is lost")
            assert [loss["reason"] for loss in served.master.status()["group"]["losses"]] == ["silent"]
        finally:
            process.kill()
            await asyncio.to_thread(process.communicate)


async def test_nothing_is_left_of_a_trainer_that_is_killed(tmp_path: Path) -> None:
    def helpers(parent: int) -> list[int]:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
                command = (stat.parent / "cmdline").read_bytes()
            except OSError:
                continue
            if b"heartbeat.py" in command and int(fields[1]) == parent:
                found.append(int(stat.parent.name))
        return found

    async with serving(tmp_path / "j", "index:100") as served:
        process = start(served, tmp_path, 60)
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "busy\n"
        (helper,) = helpers(process.pid)
        process.kill()
        await asyncio.to_thread(process.communicate)
        await until(lambda: not Path(f"/proc/{helper}").exists() or _is_ended(helper), "the helper has ended")


def _is_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
