"""The entrypoint under the launcher, with real processes: exit codes, signals, and background processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worlds.launcher_processes import ROOT, run, start, termination_log
from tests.worlds.waiting import wait_until


def is_alive(pid: int) -> bool:
    """True if the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("entry", "code", "meaning"),
    [
        ("exit 0", 0, ""),
        ("exit 1", 1, "General Error"),
        ("exit 128", 128, ""),
        ("exit 3", 3, ""),
        ("exit 136", 136, "Error Arithmetic Operation(Floating Point Exception)"),
        ("kill -FPE $$", 136, "Error Arithmetic Operation(Floating Point Exception)"),
        ("exit 139", 139, "Segmentation Fault"),
        ("kill -SEGV $$", 139, "Segmentation Fault"),
        ("sh -c 'kill -SEGV $$'; exit $?", 139, "Segmentation Fault"),
        ("exit 134", 134, "Program Abort"),
        ("kill -ABRT $$", 134, "Program Abort"),
        ("kill -KILL $$", 137, "Killed: out of memory, or still running at the end of the grace period"),
        ("./no-such-program", 127, "Entrypoint Not Found"),
    ],
)
def test_the_exit_code_is_kept_and_explained(tmp_path: Path, entry: str, code: int, meaning: str) -> None:
    ended, out, _ = run(tmp_path, entry)
    assert ended == code
    assert termination_log(tmp_path) == (f"{meaning}\n" if code > 128 else ""), "else the end of the log says more"
    assert out.splitlines()[-1] == f"the entrypoint exited with code {code}{': ' + meaning if meaning else ''}"


TAKES_THE_SIGNAL = """
import os, threading, time
from edl.pod import entrypoint

threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
start = entrypoint._start

def start_and_dawdle(*given):
    child = start(*given)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    time.sleep(0.2)  # so that the other thread takes the signal
    return child

entrypoint._start = start_and_dawdle
raise SystemExit(entrypoint.run_entrypoint("exit 3", dict(os.environ)))
"""


def test_the_end_of_the_entrypoint_is_noticed_if_another_thread_takes_the_signal() -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", TAKES_THE_SIGNAL], env=environment, timeout=90, check=False)
    assert done.returncode == 3


def test_a_termination_message_of_the_program_is_not_overwritten(tmp_path: Path) -> None:
    code, _, _ = run(tmp_path, 'echo "loss is nan" > $EDL_TERMINATION_LOG; exit 134')
    assert (code, termination_log(tmp_path)) == (134, "loss is nan\nProgram Abort\n")


def test_without_a_termination_log_the_exit_code_is_kept_and_no_file_is_created(tmp_path: Path) -> None:
    code, _, err = run(tmp_path, "exit 139", EDL_TERMINATION_LOG=str(tmp_path / "none" / "log"))
    assert (code, err) == (139, "")
    code, _, err = run(tmp_path, "exit 139", EDL_TERMINATION_LOG=str(tmp_path / "absent"))
    assert (code, err, (tmp_path / "absent").exists()) == (139, "", False)


PRINTER = "import ctypes, time; ctypes.CDLL(None).puts(b'from C'); print('from Python'); time.sleep(600)"


def test_lines_of_python_and_of_c_are_not_buffered(tmp_path: Path) -> None:
    """In a file, for which Python and C buffer their output by default."""
    (tmp_path / "printer.py").write_text(PRINTER)
    process = start(tmp_path, "exec python3 printer.py > out", PYTHONUNBUFFERED="")
    try:
        wait_until((tmp_path / "out").exists, "the program starts")
        wait_until(lambda: len((tmp_path / "out").read_text().splitlines()) == 2, "both lines are there", 20)
    finally:
        process.terminate()
        process.communicate(timeout=90)


def test_an_image_without_stdbuf_runs_the_entrypoint_too(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    code, out, _ = run(tmp_path, "echo $PYTHONUNBUFFERED; exit 5", PATH=str(tmp_path))
    assert (code, out.splitlines()[0]) == (5, "1")


def test_an_image_without_a_shell_is_refused_with_a_message(tmp_path: Path) -> None:
    code, _, err = run(tmp_path, "exit 5", PATH=str(tmp_path))
    assert code == 2
    missing = f"this image has no shell sh on PATH '{tmp_path}'; use an image that has one"
    assert err == f"paddle_k8s: entrypoint 'exit 5': {missing}\n"
    assert "has no shell" in termination_log(tmp_path)


SAVER = """
import os, signal, sys, time
def save(*_):
    time.sleep(0.3)
    open("saved", "w").write(str(os.getppid()))
    sys.exit(7)
signal.signal(signal.SIGTERM, save)
open("up", "w").close()
time.sleep(60)
"""


@pytest.mark.parametrize(("entry", "code"), [("exec python3 saver.py", 7), ("cd . && python3 saver.py && :", 143)])
def test_sigterm_reaches_the_program_and_lets_it_finish(tmp_path: Path, entry: str, code: int) -> None:
    """Also behind a shell, although the signal kills the shell at once."""
    (tmp_path / "saver.py").write_text(SAVER)
    process = start(tmp_path, entry)
    wait_until((tmp_path / "up").exists, "the program starts")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=90) == code
    saved_under = (tmp_path / "saved").read_text()
    assert saved_under == str(process.pid), "when the first process ends, the container ends, so it was still there"
    process.communicate(timeout=90)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 138)])
def test_a_program_that_a_signal_kills_exits_with_128_plus_its_number(tmp_path: Path, number: int, code: int) -> None:
    process = start(tmp_path, "touch up; exec sleep 60")
    wait_until((tmp_path / "up").exists, "the program starts")
    process.send_signal(number)
    process.communicate(timeout=90)
    assert process.returncode == code


def test_a_program_that_ignores_sigterm_runs_to_its_end(tmp_path: Path) -> None:
    process = start(tmp_path, "trap '' TERM; echo $$ > pid; touch up; sleep 1; exit 9")
    wait_until((tmp_path / "up").exists, "the program starts")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=90)
    assert process.returncode == 9


def test_orphans_are_reaped_while_the_entrypoint_runs(tmp_path: Path) -> None:
    """Forty processes whose parents end first; none may stay a zombie of the launcher."""
    spawn = "i=0; while [ $i -lt 40 ]; do sh -c 'sleep 0.05 &'; i=$((i+1)); done; sleep 0.3; touch up; exec sleep 60"
    process = start(tmp_path, spawn)
    wait_until((tmp_path / "up").exists, "the program starts")

    def children() -> list[str]:
        return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()

    wait_until(lambda: len(children()) == 1, f"only the entrypoint is left: {children()}")
    assert is_alive(int(children()[0]))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=90)
    assert process.returncode == 143


def test_background_processes_end_with_the_entrypoint(tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, "sleep 60 & echo $! > pid; exit 4")
    assert code == 4
    assert not is_alive(int((tmp_path / "pid").read_text()))
    assert out.splitlines()[-1] == "the entrypoint exited with code 4"


def test_a_background_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code, _, _ = run(tmp_path, "(trap '' TERM; echo $$ > pid; touch up; sleep 60; sleep 60) & sleep 0.3; exit 4")
    assert code == 4
    assert not [process for process in Path("/proc").glob("[0-9]*") if _runs_in(process, tmp_path)]


DAEMON = """
import os, sys, time
if os.fork():
    sys.exit()
os.setsid()
if os.fork():
    os._exit(0)
open("pid", "w").write(str(os.getpid()))
time.sleep(60)
"""


def test_a_daemon_outside_the_process_group_ends_too_and_the_log_names_it(tmp_path: Path) -> None:
    (tmp_path / "daemon.py").write_text(DAEMON)
    code, out, _ = run(tmp_path, "python3 daemon.py; until [ -s pid ]; do sleep 0.05; done; exit 4")
    assert code == 4
    assert not is_alive(int((tmp_path / "pid").read_text()))
    assert out.splitlines() == [
        "the entrypoint left processes running in the background, which end now; to keep them, let the entrypoint"
        " wait for them",
        "the entrypoint exited with code 4",
    ]


def test_an_entrypoint_without_background_processes_logs_only_its_exit_code(tmp_path: Path) -> None:
    _, out, _ = run(tmp_path, "sh -c 'sleep 0.1 & wait'; exit 0")
    assert out == "the entrypoint exited with code 0\n"


def _runs_in(process: Path, folder: Path) -> bool:
    try:
        return (process / "cwd").readlink() == folder
    except OSError:
        return False


def test_sigterm_before_the_entrypoint_runs_ends_the_launcher(tmp_path: Path) -> None:
    """The launcher waits for pservers that do not exist."""
    process = start(tmp_path, "touch ran", "start_new_trainer")
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting for 2 running pods (selector paddle-job-pserver=job)\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=90)
    assert process.returncode == 143
    assert not (tmp_path / "ran").exists()
