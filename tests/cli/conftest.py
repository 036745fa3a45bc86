"""Runs `edl` in the process of the test."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edl.cli.main import main
from tests.cli.saved import CLUSTER

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("EDL_"):
            monkeypatch.delenv(name)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command: (exit code, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["edl", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code if isinstance(ended.value.code, int) else 0, printed.out, printed.err

    return call


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    """The path of a saved cluster."""
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return str(path)
