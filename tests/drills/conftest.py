"""Gives the drills a cluster: a sandbox with hollow nodes, or a real control plane with `--on cluster`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.drills.drill import Drill
from tests.e2e.conftest import control_plane, pytest_collection_finish, pytest_runtest_makereport
from tests.e2e.control_plane.cluster import ControlPlane

__all__ = ["control_plane", "pytest_collection_finish", "pytest_runtest_makereport"]


@pytest.fixture
def drill(control_plane: Callable[..., ControlPlane], tmp_path: Path) -> Iterator[Drill]:
    """A cluster with a controller and a job that trains on a fifth of its data."""
    with ExitStack() as stack:
        yield Drill(control_plane(mix="small"), tmp_path, stack).begin()
