"""Runs the test of a bug with the bug in place, and tells what came of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.planted import Bug
from tests.planted.install import BROKEN, BUG, NOTES, REACHED

ROOT = Path(__file__).parents[2]
_TESTS_FAILED = 1  # exit code of pytest


class Verdict(StrEnum):
    """What came of a bug."""

    CAUGHT = "caught"
    MISSED = "MISSED"
    BROKEN = "BROKEN"


@dataclass(frozen=True)
class Result:
    """A verdict.

    Attributes:
        why: what is wrong, if the bug was not caught.
        seconds: how long its test took, with the start of pytest.
    """

    bug: Bug
    verdict: Verdict
    why: str
    seconds: float


def run_with(bug: Bug) -> Result:
    """Run the test that must catch a bug.

    Returns:
        CAUGHT if it fails; MISSED if it passes; BROKEN if there is no such test, if it does not reach the bug, or if
        the bug no longer fits the function that it replaces.
    """
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="edl-planted-") as folder:
        notes = Path(folder) / "notes"
        done = pytest(
            [f"tests/{bug.caught_by}"], {BUG: bug.name, NOTES: str(notes)}, "-x", "-p", "tests.planted.plugin"
        )
        lines = notes.read_text().splitlines() if notes.exists() else []
    verdict, why = judge(bug, done, lines)
    return Result(bug, verdict, why, time.monotonic() - began_s)


def run_without(bugs: Sequence[Bug]) -> str:
    """Run the tests of bugs without any bug: they must pass; returns what pytest printed if they do not."""
    done = pytest(sorted({f"tests/{bug.caught_by}" for bug in bugs}), {})
    return done.stdout + done.stderr if done.returncode else ""


def pytest(tests: Sequence[str], environment: dict[str, str], *flags: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a process of its own."""
    sources = {test.partition("::")[0] for test in tests}
    if not any("schemathesis" in (ROOT / source).read_text() for source in sources):
        flags = ("-p", "no:schemathesis", *flags)  # it takes longer to import than most tests take
    if any(test.startswith("tests/e2e/calls/") for test in tests):
        flags = (
            "--campaign",
            "full",
            *flags,
        )  # else there is only a sample of the cases
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *flags, *tests]
    given = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    given.pop("PYTEST_XDIST_WORKER", None)  # else it would wait for the turn of the test that started it
    return subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)


def judge(bug: Bug, done: subprocess.CompletedProcess[str], notes: Sequence[str]) -> tuple[Verdict, str]:
    """(verdict, what is wrong) by what pytest and the bug itself have left."""
    broken = next((line for line in notes if line.startswith(BROKEN)), "")
    if broken:
        return Verdict.BROKEN, f"the bug no longer fits {bug.target}: {broken.removeprefix(BROKEN).strip()}"
    if done.returncode not in {0, _TESTS_FAILED}:
        last = (done.stderr + done.stdout).strip().splitlines()[-1:]
        return Verdict.BROKEN, f"pytest exits with {done.returncode}: {''.join(last)}"
    is_constant = bug.target.rpartition(":")[2].isupper()  # nobody sees when it is read
    if REACHED not in notes and not is_constant:
        return Verdict.BROKEN, f"the test does not reach {bug.target}"
    return (Verdict.CAUGHT, "") if done.returncode else (Verdict.MISSED, "its test passes")
