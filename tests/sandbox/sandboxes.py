"""Starts `edl sandbox` as a person would, and looks for what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.control_plane.kube import Kube
from tests.e2e.control_plane.processes import die_with_parent, heed_interrupts

START_S = 180.0
STOP_S = 90.0


def launch(folder: Path, *flags: str) -> subprocess.Popen[str]:
    """Start a sandbox whose files are all below a folder; its output goes to `out` and `err` there."""
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONUNBUFFERED": "1"}

    def prepare() -> None:
        die_with_parent()
        heed_interrupts()

    command = [str(Path(sys.executable).with_name("edl")), "sandbox", *flags]
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        return subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, text=True, preexec_fn=prepare
        )


def wait_until_ready(process: subprocess.Popen[str], folder: Path) -> Path:
    """Wait for the line `KUBECONFIG=PATH`; returns the path."""
    deadline = time.monotonic() + START_S
    while True:
        lines = (folder / "out").read_text().splitlines()
        if lines and lines[0].startswith("KUBECONFIG=") and len(lines) > 1:
            return Path(lines[0].partition("=")[2])
        assert process.poll() is None, (folder / "err").read_text()
        assert time.monotonic() < deadline, "the sandbox is not ready"
        time.sleep(0.05)


@contextmanager
def sandbox(folder: Path, *flags: str) -> Iterator[Kube]:
    """A sandbox that is ready, and a client of it; it must stop with 0 and leave nothing behind."""
    process = launch(folder, *flags)
    try:
        path = wait_until_ready(process, folder)
        with Kube(path) as kube:
            yield kube
    finally:
        process.terminate()
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert code == 0, (folder / "err").read_text()
    assert leftovers(folder) == []


def leftovers(folder: Path) -> list[str]:
    """Processes whose environment names a folder, and files in its `tmp`."""
    found = [str(path) for path in (folder / "tmp").iterdir()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(folder / "tmp").encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found
