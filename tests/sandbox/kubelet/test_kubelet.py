"""The process kubelet in a sandbox: what a pod may expect, with the embedded API server and scheduler."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.control_plane.kube import Kube
from tests.sandbox.pods import PodBehaviour
from tests.sandbox.sandboxes import sandbox


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """A client of a sandbox with two nodes."""
    with sandbox(tmp_path_factory.mktemp("sandbox"), "--nodes", "2") as made:
        yield made


class TestPodsInASandbox(PodBehaviour):
    """The tests of `PodBehaviour`."""
