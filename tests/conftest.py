"""What all tests share: hypothesis profiles, options, the order of the files, and tests that run alone.

Hypothesis tries the same examples in each run, so that a failure comes from a change of the code.
`pytest --hypothesis-profile=thorough` tries five times as many of them, `quick` half of them; see
`tests.worlds.effort`.
`pytest --hypothesis-profile=explore` (or HYPOTHESIS_PROFILE=explore) tries new ones, and more of them.
`pytest --campaign full` runs the large end-to-end tests at the length of the experiments that they are compared with.
`pytest --on cluster` runs the end-to-end tests on the real control plane instead of the sandbox. A test
marked `cluster` runs only there, one marked `sandbox` only in the sandbox; elsewhere they are not selected.
Of the scenes that both can play, the real control plane plays every fifth one of each file; `--shared all` plays all.
`pytest --progress` shows what runs, and a table of the slowest files.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler.loadfile import LoadFileScheduling

from edl.planner import clock
from tests.collecting import import_share, no_searches
from tests.distribution import ByKind, longest_first, without_most_shared
from tests.e2e.control_plane.versions import cache_root
from tests.progress import Progress
from tests.side_by_side import turn

settings.register_profile("quick", derandomize=True, deadline=None, max_examples=10, print_blob=True)
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=20, print_blob=True)
settings.register_profile("thorough", derandomize=True, deadline=None, max_examples=100, print_blob=True)
settings.register_profile("explore", derandomize=False, deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# A shell that starts pytest in the background has it ignore Ctrl-C, and so would every command that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_BY_NAME_ONLY = (
    "browser",
    "chart",
    "drills",
    "karpenter",
    "kubeflow",
    "kuberay",
    "kueue",
    "lws",
    "prometheus",
    "real",
    "volcano",
)
_WITH_PACKAGES = tuple(Path(__file__).parent / name for name in _BY_NAME_ONLY)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the tests that need further programs, unless the command line names their folder."""
    if collection_path not in _WITH_PACKAGES:
        return None
    asked = any(Path(argument.split("::")[0]).resolve().is_relative_to(collection_path) for argument in config.args)
    return None if asked else True


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of these tests."""
    parser.addoption(
        "--campaign",
        choices=("short", "full"),
        default="short",
        help="how long the large end-to-end tests hold each step: just long enough (default), or as the experiments",
    )
    parser.addoption(
        "--on",
        choices=("sandbox", "cluster"),
        default="sandbox",
        help="where the end-to-end tests run: the sandbox (default), or a real control plane, which is built first",
    )
    parser.addoption(
        "--shared",
        choices=("some", "all"),
        default="some",
        help="with --on cluster: which scenes that the sandbox plays too: every fifth one of each file, or all",
    )
    parser.addoption("--progress", action="store_true", help="print what runs instead of dots, and the slowest files")


def pytest_configure(config: pytest.Config) -> None:
    """Time decisions by their own work, and show the progress where the results arrive.

    Other tests may hold the machine while one makes a plan, and a plan that was cut short is another plan.
    """
    clock.NOW_S = time.process_time
    if config.getoption("--progress") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """Share out whole files by what they do, see `distribution`."""
    return ByKind(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Import a share of the files before the rest, and search for garbage once, see `collecting`."""
    with no_searches():
        import_share(session.config)
        return (yield)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that only the other kind of cluster can serve; sort the tests, see `distribution`."""
    other = "cluster" if config.getoption("--on") == "sandbox" else "sandbox"
    kept = [item for item in items if item.get_closest_marker(other) is None]
    # A test that the command line names runs in any case.
    if other == "sandbox" and config.getoption("--shared") == "some" and not _are_named(config.args):
        kept = without_most_shared(kept)
    chosen = {id(item) for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = kept
    longest_first(items)


def _are_named(args: Sequence[str]) -> bool:
    """True if the command line names files or single tests, and not only folders."""
    return any(Path(argument.partition("::")[0]).is_file() for argument in args)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """If several processes run tests, a test marked `alone` waits until no other test runs; see `side_by_side`.

    The wait does not count towards the test's timeout, which starts afterwards.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with turn(cache_root() / "turns", alone=item.get_closest_marker("alone") is not None):
        return (yield)
