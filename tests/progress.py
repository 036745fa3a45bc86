"""Shows what a long run of pytest is doing, and which files took its time: `pytest --progress`, used by `make test`.

Instead of dots it prints a line for each end-to-end test that starts, every few seconds a line about the other tests,
and a line for each failure; at the end a table of the slowest files. Times count from EDL_STARTED (seconds since the
epoch), which the Makefile sets to its own start.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest

EVERY_S = 10.0
SHOWN_FILES = 12
END_TO_END = "tests/e2e/"


def file_of(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]


def is_end_to_end(test: str) -> bool:
    """True if the test needs a control plane."""
    return test.startswith(END_TO_END)


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Progress:
    """A pytest plugin; with xdist it runs in the process that shares out the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._started_s = float(os.environ.get("EDL_STARTED") or time.time())
        self._shown_s = 0.0
        self._total: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._running: dict[str, None] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._tests: defaultdict[str, set[str]] = defaultdict(set)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the tests of a run without xdist."""
        self._count(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Count the tests of a run with xdist, in which every process collects all of them."""
        self._total.clear()
        self._count(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Print no letter for a test that passes or fails; failures get a line of their own."""
        if report.passed:
            return ("passed" if report.when == "call" else "", "", "")
        return ("failed" if report.when == "call" else "error", "", "") if report.failed else None

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test starts."""
        self._running[nodeid] = None
        if is_end_to_end(nodeid) or time.monotonic() - self._shown_s >= EVERY_S:
            self._show()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test ends."""
        self._running.pop(nodeid, None)
        self._done[_kind(nodeid)] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A part of a test has ended: its preparation, the test, or its cleanup."""
        name = file_of(report.nodeid)
        self._seconds[name] += report.duration
        self._tests[name].add(report.nodeid)
        if report.failed:
            self._print(f"FAILED {report.nodeid}")

    def pytest_terminal_summary(self) -> None:
        """Print the table of the slowest files, before pytest's own last line."""
        slowest = sorted(self._seconds.items(), key=lambda entry: -entry[1])[:SHOWN_FILES]
        reporter = self._reporter()
        if reporter is None or len(slowest) < 2:
            return
        reporter.section("slowest files")
        for name, seconds in slowest:
            reporter.write_line(f"{seconds:7.1f} s  {len(self._tests[name]):4d} tests  {name}")
        reporter.write_line(f"{sum(self._seconds.values()):7.1f} s  in all {len(self._seconds)} files")

    def _count(self, tests: Iterable[str]) -> None:
        self._total.update(_kind(test) for test in tests)

    def _show(self) -> None:
        self._shown_s = time.monotonic()
        kinds = sorted(self._total, reverse=True)
        counts = [f"{kind} {self._done[kind]} of {self._total[kind]}" for kind in kinds]
        running = ", ".join(test if is_end_to_end(test) else file_of(test) for test in self._running)
        self._print(f"{', '.join(counts)}: {running}")

    def _print(self, text: str) -> None:
        reporter = self._reporter()
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(f"{clock(time.time() - self._started_s)}  {text}")
            reporter.flush()

    def _reporter(self) -> pytest.TerminalReporter | None:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        return reporter if isinstance(reporter, pytest.TerminalReporter) else None


def _kind(test: str) -> str:
    return "end-to-end" if is_end_to_end(test) else "unit"
