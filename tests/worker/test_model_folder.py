"""The folder of checkpoints and of the trained model."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from edl.errors import ConfigError, PermanentError
from edl.worker.model_folder import ModelFolder


def saved(folder: Path, keep: int, numbers: list[int]) -> list[str]:
    """The files after these checkpoints were written and committed."""
    files = ModelFolder(folder, keep)
    for number in numbers:
        files.write(number, lambda path: path.write_bytes(b"model"))
        files.delete_before(number)
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (1, ["checkpoint-30.pt"]),
        (2, ["checkpoint-20.pt", "checkpoint-30.pt"]),
        (3, ["checkpoint-10.pt", "checkpoint-20.pt", "checkpoint-30.pt"]),
        (0, ["checkpoint-10.pt", "checkpoint-20.pt", "checkpoint-30.pt", "checkpoint-9.pt"]),
    ],
)
def test_the_last_checkpoints_stay(tmp_path: Path, keep: int, left: list[str]) -> None:
    assert saved(tmp_path, keep, [9, 10, 20, 30]) == left


def test_other_files_and_a_checkpoint_that_is_newer_stay(tmp_path: Path) -> None:
    for name in ("model.pt", "checkpoint-x.pt", "checkpoint-99.pt"):
        (tmp_path / name).touch()
    assert saved(tmp_path, 1, [5, 6]) == ["checkpoint-6.pt", "checkpoint-99.pt", "checkpoint-x.pt", "model.pt"]


def test_a_checkpoint_is_deleted_only_once_a_newer_one_is_committed(tmp_path: Path) -> None:
    files = ModelFolder(tmp_path, 1)
    files.write(5, lambda path: path.write_bytes(b"old"))
    files.delete_before(5)
    files.write(6, lambda path: path.write_bytes(b"new"))
    assert files.read(5, Path.read_bytes) == b"old"


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"checkpoint 7: the file .*-7\.pt cannot be read: No such file"):
        ModelFolder(tmp_path).read(7, Path.read_bytes)


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"keep=-1 is less than 0; give how many"):
        ModelFolder(tmp_path, -1)
    with pytest.raises(ConfigError, match=r"pass folder=, or set EDL_CHECKPOINTS"):
        ModelFolder(None).write(1, Path.touch)
    ModelFolder(None).write_model(Path.touch)


def test_a_file_that_cannot_be_written_leaves_no_draft_and_no_part_of_it(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_bytes(b"half of a mod")
        raise RuntimeError("PytorchStreamWriter failed writing file\nand a stack")

    with pytest.raises(
        PermanentError, match=r"cannot be written: PytorchStreamWriter failed writing file; free space"
    ):
        ModelFolder(tmp_path).write(5, fail)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_in_shards_goes_with_all_of_its_files(tmp_path: Path) -> None:
    shards = [ModelFolder(tmp_path, 1, shard) for shard in (0, 1)]
    for number in (5, 6):
        for files in shards:
            files.write(number, lambda path: path.write_bytes(b"a part"))
        shards[0].delete_before(number)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-6.shard-0.pt", "checkpoint-6.shard-1.pt"]
    with pytest.raises(PermanentError, match=r"holds checkpoint-6.shard-1.pt of another job"):
        shards[0].check_is_new()


def test_the_name_of_a_checkpoint_is_on_the_disk_before_the_master_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[set[str]] = []
    fsync = os.fsync

    def noted(place: int) -> None:
        if stat.S_ISDIR(os.fstat(place).st_mode):
            kept.append({path.name for path in tmp_path.iterdir()})
        fsync(place)

    monkeypatch.setattr(os, "fsync", noted)
    ModelFolder(tmp_path).write(1, lambda path: path.write_text("weights"))
    assert kept == [{"checkpoint-1.pt"}]
