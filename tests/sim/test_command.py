"""Standard output is for the report alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import ctypes, os
from edl.sim.command import stdout_for_the_report
with stdout_for_the_report():
    os.write(1, b"from a library\\n")
    ctypes.CDLL(None).puts(b"from C, buffered")
print("the report")
"""
FULL = """
from edl.errors import EdlError
from edl.sim.command import written_to_stdout
try:
    with written_to_stdout():
        print("the report")
except EdlError as error:
    raise SystemExit(str(error))
"""


def test_what_a_library_prints_goes_to_stderr() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "the report\n"
    assert done.stderr == "from a library\nfrom C, buffered\n"


def test_a_full_disk_is_named() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", FULL], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    reason = "the report cannot be written: No space left on device; free space there, or write elsewhere"
    assert (done.returncode, done.stderr) == (1, f"stdout: {reason}\n")
