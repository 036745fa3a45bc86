"""Containers get a short path for temporary files, wherever those of the machine are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from edl.sandbox.kubelet.temporary import TemporaryFolders, link, links_folder


def test_the_path_is_short_although_that_of_the_machine_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("long" * 20)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with links_folder() as folder:
        names = TemporaryFolders(folder)
        first, second = names.name(), names.name()
        link(first, tmp_path / "root" / "tmp")
        link(first, tmp_path / "root" / "tmp")
        (first / "file").write_text("x")
        assert first != second
        assert len(str(first)) < 40
        assert (tmp_path / "root" / "tmp" / "file").read_text() == "x"
    assert not folder.exists()
    assert (tmp_path / "root" / "tmp" / "file").exists()


def test_a_machine_with_only_a_long_path_has_a_long_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("long" * 20)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    monkeypatch.setattr("edl.sandbox.kubelet.temporary._OTHERS", (str(tmp_path / "absent"),))
    with links_folder() as folder:
        assert folder.parent == deep
