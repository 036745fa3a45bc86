"""The files of `--queues`, `--tenants` and `--expect-nodes`, read again whenever one of them has changed.

A change takes effect with the next plan, without a restart. Files that cannot be used change nothing: what all of
them held before stays in force, and the log says why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from edl.errors import ConfigError
from edl.model.limits import Limits
from edl.observability.logs import log_event
from edl.settings.shared import LimitSettings

_log = logging.getLogger(__name__)

_Signature = tuple[tuple[int, int, int] | None, ...]


class LimitFiles:
    """The operator's limits, read again whenever one of their files changes.

    Args:
        settings: name the files.
        show_rejected: is called with the number of times that the files on the disk were refused: 1 or 0.

    Attributes:
        limits: what the files held when they were last read without an error.

    Raises:
        ConfigError: a file cannot be read, or what it says makes no sense.
    """

    def __init__(self, settings: LimitSettings, show_rejected: Callable[[int], None]) -> None:
        self._settings, self._show_rejected = settings, show_rejected
        self._paths = [path for path in (settings.queues, settings.tenants, settings.expect_nodes) if path]
        self._read_from = self._signature()
        self.limits = settings.read_limits()

    async def changed(self) -> Limits | None:
        """Return the new limits if a file has changed since the last call and all files are valid; else None."""
        if not self._paths or (now := self._signature()) == self._read_from:
            return None
        self._read_from = now
        files = ", ".join(map(str, self._paths))
        try:
            read = await asyncio.to_thread(self._settings.read_limits)
        except ConfigError as error:
            self._show_rejected(1)
            note = "what the files held before stays in force until they are corrected"
            log_event(_log, logging.ERROR, "changed files refused", err=str(error), note=note)
            return None
        self._show_rejected(0)
        if read == self.limits:
            return None
        self.limits = read
        log_event(_log, logging.INFO, "changed files are in force", files=files)
        return read

    def _signature(self) -> _Signature:
        return tuple(_signature(path) for path in self._paths)


def _signature(path: Path) -> tuple[int, int, int] | None:
    """A fingerprint that changes if the file or its link target is replaced or written; None without a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
