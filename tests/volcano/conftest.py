"""Gives the tests a real control plane with Volcano; without `--on cluster` they are not selected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.e2e.conftest import (
    control_plane,
    pytest_collection_finish,
    pytest_runtest_makereport,
)
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.nodes import NodeSpec
from tests.volcano.programs import volcano_on
from tests.volcano.scene import Scene

__all__ = ["control_plane", "pytest_collection_finish", "pytest_runtest_makereport"]


PATIENT = Settings(node_grace_s=300)
"""No node is lost on a busy machine: kwok never makes its pods ready again."""


@pytest.fixture
def scene(control_plane: Callable[..., ControlPlane]) -> Iterator[Callable[[Sequence[NodeSpec]], Scene]]:
    """A function that starts a control plane with these nodes and Volcano on it."""
    with ExitStack() as stack:

        def start(nodes: Sequence[NodeSpec]) -> Scene:
            plane = control_plane(nodes=nodes, settings=PATIENT)
            return Scene(plane, stack.enter_context(volcano_on(plane)))

        yield start
