"""Plans of these tests do not depend on how fast the machine reads selectors of devices."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def selectors_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes time has its tests in tests/kube/translate/devices/test_book.py."""
    monkeypatch.setattr("edl.kube.translate.devices.book.clock_s", lambda: 0.0)
