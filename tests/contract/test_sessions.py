"""docs/kubectl.md, which is recorded on a real control plane, is what the embedded server shows too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.embedded_plane import embedded_plane
from tests.e2e.record_sessions import DOCUMENT, record, shape
from tests.e2e.worlds.harness import World


@pytest.mark.cluster("kubectl and kwok")
def test_the_recorded_sessions_are_the_same_on_the_embedded_server(tmp_path: Path) -> None:
    with embedded_plane(tmp_path / "cluster") as plane:
        now = record(World(plane))
    assert shape(now) == shape(DOCUMENT.read_text())
