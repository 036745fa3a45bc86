"""The folder of a model that trainers train in step: checkpoints, of which the last few stay, and the trained model.

Every file appears as a whole, so that a reader never sees a part of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from edl.errors import ConfigError, PermanentError

MODEL = "model.pt"
"""The file of the trained model."""
KEPT = 3
"""How many checkpoints are kept by default."""
_NAME = re.compile(r"checkpoint-(\d+)(\.shard-\d+)?\.pt")
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class ModelFolder:
    """The files of a model.

    Args:
        path: the path of the folder; None has no files, and cannot save.
        keep: how many of the last checkpoints stay, at least 1; 0 deletes none.
        shard: the number of the part that this process writes; None if it writes whole checkpoints.

    Raises:
        ConfigError: `keep` is less than 0.
    """

    def __init__(self, path: Path | None, keep: int = KEPT, shard: int | None = None) -> None:
        if keep < 0:
            raise ConfigError(f"keep={keep} is less than 0; give how many checkpoints should stay, or 0 for all")
        self._path, self._keep = path, keep
        self._part = f".shard-{shard}" if shard is not None else ""

    def write(self, checkpoint: int, save: Callable[[Path], object]) -> None:
        """Write a checkpoint.

        Args:
            checkpoint: its number.
            save: writes the file that it gets, piece by piece.

        Raises:
            ConfigError: there is no folder.
            PermanentError: the file cannot be written.
        """
        path = self._path_of(checkpoint)
        try:
            _write(path, save, f"{checkpoint}{self._part}")
        except (OSError, RuntimeError) as error:
            raise PermanentError(
                f"checkpoint {checkpoint}: the file {path} cannot be written: {_why(error)}; free space or repair"
                " the folder"
            ) from error

    def read(self, checkpoint: int, load: Callable[[Path], _T]) -> _T:
        """The content of a checkpoint.

        Args:
            checkpoint: its number.
            load: reads the file.

        Raises:
            ConfigError: there is no folder.
            PermanentError: the file cannot be read.
        """
        path = self._path_of(checkpoint)
        try:
            return load(path)
        except (OSError, RuntimeError, pickle.UnpicklingError) as error:
            raise PermanentError(
                f"checkpoint {checkpoint}: the file {path} cannot be read: {_why(error)}; all trainers need the"
                " folder in which it was saved, and only the newest checkpoints stay there"
            ) from error

    def check_is_new(self) -> None:
        """Check that the folder holds no checkpoint of an earlier training, as this one begins anew.

        Raises:
            PermanentError: it holds one.
        """
        names = sorted(path.name for path in self._path.glob("*.pt")) if self._path is not None else []
        found = [name for name in names if _NAME.fullmatch(name)]
        if found:
            raise PermanentError(
                f"model: the folder {self._path} holds {found[-1]} of another job (or of this one, whose journal is"
                " lost), and this job begins at the first record with a new model; set EDL_CHECKPOINTS or folder= to"
                " another folder, or move these files away"
            )

    def delete_before(self, checkpoint: int) -> None:
        """Delete the checkpoints that are too old, now that training would return to this one."""
        if self._path is None or not self._keep:
            return
        names = ((_NAME.fullmatch(path.name), path) for path in self._path.iterdir())
        older = [(int(name[1]), path) for name, path in names if name and int(name[1]) < checkpoint]
        numbers = sorted({number for number, _ in older})
        doomed = set(numbers[: max(0, len(numbers) - self._keep + 1)])
        for path in (path for number, path in older if number in doomed):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                _log.warning("the old checkpoint %s is not deleted: %s", path, error.strerror)

    def write_model(self, save: Callable[[Path], object]) -> None:
        """Write the trained model, if there is a folder.

        Args:
            save: writes the file that it gets.

        Raises:
            PermanentError: the file cannot be written.
        """
        if self._path is None:
            return
        path = self._path / MODEL
        try:
            _write(path, save, uuid.uuid4().hex[:8])
        except (OSError, RuntimeError) as error:
            raise PermanentError(
                f"model: the file {path} cannot be written: {_why(error)}; the training is complete, so free space"
                " or repair the folder, and take the model from the last checkpoint there"
            ) from error

    def _path_of(self, checkpoint: int) -> Path:
        if self._path is None:
            raise ConfigError(
                "Elastic: this job has no folder for its model; pass folder=, or set EDL_CHECKPOINTS to a folder that"
                " all trainers see"
            )
        return self._path / f"checkpoint-{checkpoint}{self._part}.pt"


def _write(path: Path, save: Callable[[Path], object], draft: str) -> None:
    """Write a file by way of a draft that no other trainer writes; it has its name once all of it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.parent / f"{draft}.draft"
    try:
        save(unfinished)
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
        _keep_name(path.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)  # it may have taken the last free space
        raise


def _keep_name(folder: Path) -> None:
    """Let a new name outlive a crash of the machine: the master is told next that the checkpoint can be loaded."""
    with contextlib.suppress(OSError):  # not every shared folder can do it
        place = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(place)
        finally:
            os.close(place)


def _why(error: Exception) -> str:
    """The reason in one line; what writes tensors has its own error for a full disk."""
    return getattr(error, "strerror", None) or str(error).partition("\n")[0]
