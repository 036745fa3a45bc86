"""The folder of a model that trainers train in step: checkpoints, of which the last few stay, and the trained model.

Every file appears as a whole, so that a reader never sees a part of it.
"""

from __future__ import annotations

import logging
import re
import uuid
from pathlib import Path

from edl.errors import ConfigError, PermanentError

MODEL = "model.pt"
"""The file of the trained model."""
KEPT = 3
"""How many checkpoints stay by default."""
_NAME = re.compile(r"checkpoint-(\d+)\.pt")
_log = logging.getLogger(__name__)


class ModelFolder:
    """The files of a model.

    Args:
        path: of the folder; None has no files, and cannot save.
        keep: how many of the last checkpoints stay, at least 1; 0 deletes none.

    Raises:
        ConfigError: `keep` is less than 0.
    """

    def __init__(self, path: Path | None, keep: int = KEPT) -> None:
        if keep < 0:
            raise ConfigError(f"keep={keep} is less than 0; give how many checkpoints should stay, or 0 for all")
        self._path, self._keep = path, keep

    def write(self, checkpoint: int, data: bytes) -> None:
        """Write a checkpoint.

        Raises:
            ConfigError: there is no folder.
            PermanentError: the file cannot be written.
        """
        path = self._path_of(checkpoint)
        try:
            _write(path, data, str(checkpoint))
        except OSError as error:
            raise PermanentError(
                f"checkpoint {checkpoint}: the file {path} cannot be written: {error.strerror}; make room or repair"
                " the folder"
            ) from error

    def read(self, checkpoint: int) -> bytes:
        """The content of a checkpoint.

        Raises:
            ConfigError: there is no folder.
            PermanentError: the file cannot be read.
        """
        path = self._path_of(checkpoint)
        try:
            return path.read_bytes()
        except OSError as error:
            raise PermanentError(
                f"checkpoint {checkpoint}: the file {path} cannot be read: {error.strerror}; all trainers need the"
                " folder in which it was saved, and only the newest checkpoints stay there"
            ) from error

    def delete_before(self, checkpoint: int) -> None:
        """Delete the checkpoints that are too old, now that training would return to this one."""
        if self._path is None or not self._keep:
            return
        names = ((_NAME.fullmatch(path.name), path) for path in self._path.iterdir())
        older = sorted((int(name[1]), path) for name, path in names if name and int(name[1]) < checkpoint)
        for _, path in older[: max(0, len(older) - self._keep + 1)]:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                _log.warning("the old checkpoint %s is not deleted: %s", path, error.strerror)

    def write_model(self, data: bytes) -> None:
        """Write the trained model, if there is a folder.

        Raises:
            PermanentError: the file cannot be written.
        """
        if self._path is None:
            return
        path = self._path / MODEL
        try:
            _write(path, data, uuid.uuid4().hex[:8])
        except OSError as error:
            raise PermanentError(
                f"model: the file {path} cannot be written: {error.strerror}; the training is complete, so make room"
                " or repair the folder, and take the model from the last checkpoint there"
            ) from error

    def _path_of(self, checkpoint: int) -> Path:
        if self._path is None:
            raise ConfigError(
                "Elastic: this job has no folder for its model; pass folder=, or set EDL_CHECKPOINTS to a folder that"
                " all trainers see"
            )
        return self._path / f"checkpoint-{checkpoint}.pt"


def _write(path: Path, data: bytes, draft: str) -> None:
    """Write a file by way of a draft that no other trainer writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.parent / f"{draft}.draft"
    unfinished.write_bytes(data)
    unfinished.replace(path)
