"""Containers as processes: how they start, how they end, and that nothing is left of them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from edl.sandbox.kubelet import supervisor
from edl.sandbox.kubelet.runtime import Process, ProcessSpec, Runtime, StartError

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read():
    time.sleep(0.01)
"""
WAIT_S = 60.0


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    made = await Runtime.open()
    yield made
    await made.close()


def spec(folder: Path, *argv: str, name: str = "pod/main/0", memory: int = 0, nice: int = 0) -> ProcessSpec:
    env = {"PATH": os.environ["PATH"]}
    return ProcessSpec(name, list(argv), env, folder, folder / "log", nice=nice, memory=memory)


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-S", "-c", code, *map(str, arguments)]


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


async def end_of(process: Process) -> tuple[int, int, bool]:
    async with asyncio.timeout(WAIT_S):
        ended = await process.ended
    return ended.code, ended.signal, ended.is_oom


async def test_a_container_has_its_exit_code_and_its_output(runtime: Runtime, tmp_path: Path) -> None:
    process = await runtime.start(spec(tmp_path, "sh", "-c", "echo out; echo err >&2; exit 7"))
    assert await end_of(process) == (7, 0, False)
    assert (tmp_path / "log").read_text() == "out\nerr\n"


async def test_a_signal_counts_as_128_more(runtime: Runtime, tmp_path: Path) -> None:
    process = await runtime.start(spec(tmp_path, "sleep", "600"))
    await runtime.signal(process, signal.SIGTERM)
    assert await end_of(process) == (143, 15, False)


async def test_a_program_that_does_not_exist_is_an_error_with_its_name(runtime: Runtime, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no-such-program"):
        await runtime.start(spec(tmp_path, "no-such-program"))


@pytest.mark.parametrize("program", ["no-such-program", "sleep"])
async def test_a_start_that_nobody_waits_for_any_more_leaves_nothing(
    runtime: Runtime, tmp_path: Path, program: str
) -> None:
    unseen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    mark = f"600.{os.getpid()}"
    start = asyncio.create_task(runtime.start(spec(tmp_path, program, mark)))
    await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start

    # What is sent later is done later, so the supervisor has done all by the end of this.
    assert await end_of(await runtime.start(spec(tmp_path, "true", name="pod/main/1"))) == (0, 0, False)
    gc.collect()
    assert unseen == []
    await asyncio.to_thread(until, lambda: mark.encode() not in command_lines())


def command_lines() -> bytes:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return b"".join(found)


async def test_a_daemon_ends_with_its_container(runtime: Runtime, tmp_path: Path) -> None:
    process = await runtime.start(spec(tmp_path, *python(DAEMON, tmp_path / "pid")))
    assert await end_of(process) == (0, 0, False)
    assert not is_alive(int((tmp_path / "pid").read_text()))


async def test_a_daemon_of_another_container_lives_on(runtime: Runtime, tmp_path: Path) -> None:
    forever = f"{DAEMON}\ntime.sleep(600)"
    await runtime.start(spec(tmp_path, *python(forever, tmp_path / "pid"), name="pod/other/0"))
    await asyncio.to_thread(until, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    process = await runtime.start(spec(tmp_path, "true"))
    assert await end_of(process) == (0, 0, False)
    assert is_alive(int((tmp_path / "pid").read_text()))


async def test_processes_that_use_too_much_memory_together_are_killed(runtime: Runtime, tmp_path: Path) -> None:
    half = "import os, time; os.fork(); data = bytearray(48 << 20); time.sleep(600)"
    process = await runtime.start(spec(tmp_path, *python(half), memory=80 << 20))
    assert await end_of(process) == (137, 9, True)


async def test_memory_below_the_limit_is_no_reason_to_be_killed(runtime: Runtime, tmp_path: Path) -> None:
    some = "import time; data = bytearray(32 << 20); time.sleep(1.5)"
    process = await runtime.start(spec(tmp_path, *python(some), memory=80 << 20))
    assert await end_of(process) == (0, 0, False)


async def test_niceness_is_that_of_the_spec(runtime: Runtime, tmp_path: Path) -> None:
    process = await runtime.start(spec(tmp_path, *python("import os; print(os.nice(0))"), nice=7))
    await end_of(process)
    assert int((tmp_path / "log").read_text()) == os.nice(0) + 7


async def test_nothing_is_left_after_close(tmp_path: Path) -> None:
    runtime = await Runtime.open(tmp_path / "owned")
    (tmp_path / "owned").mkdir()
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    process = await runtime.start(spec(tmp_path, *python(stubborn)))
    await runtime.close()
    assert not is_alive(process.pid)
    assert not (tmp_path / "owned").exists()


KUBELET = """
import asyncio, os, sys
from contextlib import suppress
from pathlib import Path
from edl.sandbox.kubelet.runtime import ProcessSpec, Runtime

async def main(folder, daemon):
    runtime = await Runtime.open(folder / "owned")
    argv = [sys.executable, "-S", "-c", daemon + "\\ntime.sleep(600)", str(folder / "daemon")]
    spec = ProcessSpec("pod/main/0", argv, dict(os.environ), folder, folder / "log")
    process = await runtime.start(spec)
    (folder / "pids").write_text(f"{process.pid} {runtime.supervisor_pid}")
    await runtime.lost
    (folder / "lost").touch()

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


def start_kubelet(folder: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A process with a runtime and a container that has left a daemon; its pids: container, supervisor, daemon."""
    (folder / "owned").mkdir()
    kubelet = subprocess.Popen([sys.executable, "-c", KUBELET, str(folder), DAEMON], start_new_session=True)
    deadline = time.monotonic() + WAIT_S
    pids: list[int] = []
    while len(pids) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        texts = [path.read_text() for path in (folder / "pids", folder / "daemon") if path.exists()]
        pids = [int(word) for text in texts for word in text.split()]
    return kubelet, pids


def wait_gone(pids: list[int]) -> list[int]:
    deadline = time.monotonic() + WAIT_S
    while (left := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def test_a_kubelet_killed_with_sigkill_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    kubelet, pids = start_kubelet(tmp_path)
    assert all(map(is_alive, pids))
    kubelet.kill()
    kubelet.wait()
    assert wait_gone(pids) == []
    deadline = time.monotonic() + WAIT_S
    while (tmp_path / "owned").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_whole_process_group_killed_with_sigkill_leaves_no_process(tmp_path: Path) -> None:
    kubelet, pids = start_kubelet(tmp_path)
    os.killpg(kubelet.pid, signal.SIGKILL)
    kubelet.wait()
    assert wait_gone(pids) == []


def test_a_killed_supervisor_leaves_no_process_and_the_kubelet_knows(tmp_path: Path) -> None:
    kubelet, pids = start_kubelet(tmp_path)
    os.kill(pids[1], signal.SIGKILL)
    assert kubelet.wait(WAIT_S) == 0
    assert (tmp_path / "lost").exists()
    assert wait_gone(pids) == []


def test_memory_of_a_process_that_has_ended_is_nothing() -> None:
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    assert supervisor.memory_of(ended.pid) == 0
