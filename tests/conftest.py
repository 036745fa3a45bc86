"""What every test shares: hypothesis tries the same examples each time, so that a failure is a change of ours.

`HYPOTHESIS_PROFILE=explore pytest` (or `pytest --hypothesis-profile=explore`) tries new ones, and more of them.
`pytest --campaign full` holds the waves of the large end-to-end tests as long as the experiments did that they are
held against.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.e2e.control_plane.versions import cache_root
from tests.side_by_side import turn

settings.register_profile("steady", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", derandomize=False, deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

_REAL = Path(__file__).parent / "real"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the tests that need root and a machine's packages, unless they are asked for by their path."""
    asked = any(Path(argument.split("::")[0]).resolve().is_relative_to(_REAL) for argument in config.args)
    return True if collection_path == _REAL and not asked else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the end-to-end tests."""
    parser.addoption(
        "--campaign",
        choices=("short", "full"),
        default="short",
        help="how long the large end-to-end tests hold each step: as short as shows the effect (default), or in full",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Where several processes share the tests, one marked `alone` has the machine for itself; see `side_by_side`.

    The time that a test waits for its turn is none of its timeout's, whose clock starts inside.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with turn(cache_root() / "turns", alone=item.get_closest_marker("alone") is not None):
        return (yield)
