"""Files of flags that change while the controller runs."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from edl.errors import ConfigError
from edl.model.limits import Quota
from edl.processes.limit_files import LimitFiles
from edl.settings.shared import LimitSettings


def blue(pods: int) -> Quota:
    return Quota("blue", (("pods", pods),))


class Files:
    """One file of quotas that is replaced as a mounted ConfigMap is: by another target of a link."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.link, self.versions = folder, folder / "queues.yaml", 0
        self.refused: list[int] = []
        self.write("blue: {pods: 1}")
        self.files = LimitFiles(LimitSettings(queues=self.link), self.refused.append)

    def write(self, text: str) -> None:
        self.versions += 1
        target = self.folder / str(self.versions)
        target.write_text(text)
        fresh = self.folder / "fresh"
        fresh.symlink_to(target)
        fresh.replace(self.link)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def test_a_replaced_file_is_read_once(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    assert await files.files.changed() is None
    files.write("blue: {pods: 2}")
    with caplog.at_level(logging.INFO, "edl.processes.limit_files"):
        changed = await files.files.changed()
    assert changed is not None
    assert changed == files.files.limits
    assert changed.quotas == (blue(2),)
    assert caplog.messages == ["changed files are in force"]
    assert await files.files.changed() is None


async def test_a_file_that_is_written_in_place_is_read_again(files: Files) -> None:
    files.link.write_text("blue: {pods: 20}")
    changed = await files.files.changed()
    assert changed is not None
    assert changed.quotas == (blue(20),)


async def test_a_file_that_says_the_same_changes_nothing(files: Files) -> None:
    files.write("blue: {pods: '1'}  # as before")
    assert await files.files.changed() is None
    assert files.refused == [0]


@pytest.mark.parametrize("text", ["blue: {pods: many}", "blue: [", "", "\x00"])
async def test_a_file_that_cannot_be_used_changes_nothing_and_is_reported_once(
    files: Files, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    files.write(text)
    with caplog.at_level(logging.ERROR, "edl.processes.limit_files"):
        assert await files.files.changed() is None
        assert await files.files.changed() is None
    assert files.files.limits.quotas == (blue(1),)
    assert caplog.messages == ["changed files refused"]
    fields = vars(caplog.records[0])["fields"]
    assert str(files.link) in fields["err"]
    assert fields["note"] == "what the files held before stays in force until they are corrected"
    assert files.refused == [1]
    files.write("blue: {pods: 3}")
    assert await files.files.changed() is not None
    assert files.refused == [1, 0]


async def test_a_file_that_is_gone_for_a_moment_changes_nothing(files: Files) -> None:
    os.rename(files.link, files.folder / "away")  # noqa: PTH104 - as an editor does
    assert await files.files.changed() is None
    assert files.refused == [1]
    os.rename(files.folder / "away", files.link)  # noqa: PTH104
    assert await files.files.changed() is None
    assert files.refused == [1, 0]
    assert files.files.limits.quotas == (blue(1),)


def test_a_file_that_cannot_be_used_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        LimitFiles(LimitSettings(queues=tmp_path / "none"), lambda _: None)


async def test_without_files_nothing_is_asked() -> None:
    files = LimitFiles(LimitSettings(), lambda _: None)
    assert await files.changed() is None
