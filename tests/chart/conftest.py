"""Gives the tests of releases a cluster: a sandbox, or a real control plane with `--on cluster`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import control_plane, pytest_collection_finish, pytest_runtest_makereport
from tests.e2e.control_plane.build import ensure_helm

__all__ = ["control_plane", "pytest_collection_finish", "pytest_runtest_makereport"]


@pytest.fixture(scope="session")
def program() -> Path:
    """Helm."""
    return ensure_helm()
