"""Gives the tests a real control plane with Karpenter; without `--on cluster` they are not selected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.e2e.conftest import control_plane, pytest_collection_finish, pytest_runtest_makereport
from tests.e2e.control_plane.cluster import ControlPlane
from tests.karpenter.programs import karpenter_on
from tests.karpenter.scene import OWN, Scene

__all__ = ["control_plane", "pytest_collection_finish", "pytest_runtest_makereport"]


@pytest.fixture
def scene(control_plane: Callable[..., ControlPlane]) -> Iterator[Callable[..., Scene]]:
    """A function that starts a control plane with one node of its own, Karpenter, and edl with these flags."""
    with ExitStack() as stack:

        def start(*flags: str) -> Scene:
            plane = control_plane(nodes=OWN)
            stack.enter_context(karpenter_on(plane))
            return stack.enter_context(Scene(plane, *flags))

        yield start
