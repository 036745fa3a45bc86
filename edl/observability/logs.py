"""The log on stderr: logfmt as log15 writes it, which users of the original parse, or JSON.

A line has a constant message and fields: `t=... lvl=info msg="job resized" job=ads/ctr target=7`. A value is quoted
if it contains spaces or special characters. Timestamps are UTC.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from edl.printable import printable

LogFormat = Literal["logfmt", "json"]

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "crit": logging.CRITICAL,
}
"""The values of --log-level."""

_SHORT = {
    logging.DEBUG: "dbug",
    logging.INFO: "info",
    logging.WARNING: "warn",
    logging.ERROR: "eror",
    logging.CRITICAL: "crit",
}
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ROOT = "edl"
_KIND_S, _KIND_LINES, _KIND_LENGTH, _KINDS = 60.0, 10, 60, 100


def configure(level: str, form: LogFormat, stream: TextIO | None = None) -> None:
    """Write log lines of that level and above to `stream` (stderr by default).

    Other libraries log warnings and above only, because their debug lines are not about training.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LogfmtFormatter() if form == "logfmt" else JsonFormatter())
    handler.addFilter(RepeatedLines())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(LEVELS[level], logging.WARNING))
    logging.getLogger(_ROOT).setLevel(LEVELS[level])


def log_event(logger: logging.Logger, level: int, message: str, /, **fields: object) -> None:
    """Log a constant message with fields; a field with the value None is left out."""
    if logger.isEnabledFor(level):
        logger.log(level, message, extra={"fields": {k: v for k, v in fields.items() if v is not None}})


class RepeatedLines(logging.Filter):
    """Leaves out lines of other libraries that repeat: strangers can cause them, by the thousand.

    Args:
        now_s: monotonic seconds.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._seen: dict[tuple[str, int, str], list[float]] = {}  # (until when, lines, left out) of each kind

    def filter(self, record: logging.LogRecord) -> bool:
        """True if the line is one of the first of its kind within a minute."""
        if record.name.partition(".")[0] == _ROOT:
            return True
        kind, now_s = (record.name, record.levelno, str(record.msg)[:_KIND_LENGTH]), self._now_s()
        until_s, lines, left_out = self._seen.pop(kind, [0.0, 0.0, 0.0])
        if now_s >= until_s:
            if left_out:
                record.fields = {"left_out": int(left_out)}
            until_s, lines, left_out = now_s + _KIND_S, 0.0, 0.0
        is_shown = lines < _KIND_LINES
        self._seen[kind] = [until_s, lines + 1, left_out + (not is_shown)]
        while len(self._seen) > _KINDS:
            del self._seen[next(iter(self._seen))]
        return is_shown


class LogfmtFormatter(logging.Formatter):
    """`t=2026-01-05T10:00:00+0000 lvl=dbug msg="..." key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        return " ".join(f"{key}={_value(value)}" for key, value in _entries(record).items())


class JsonFormatter(logging.Formatter):
    """Formats an entry as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        return printable(json.dumps(_entries(record), default=str, ensure_ascii=False))


def _entries(record: logging.LogRecord) -> dict[str, Any]:
    at = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S%z")
    entries: dict[str, Any] = {"t": at, "lvl": _level(record.levelno), "msg": record.getMessage()}
    if record.name.partition(".")[0] != _ROOT:
        entries["logger"] = record.name
    entries |= getattr(record, "fields", {})
    if record.exc_info and record.exc_info[0] is not None:
        entries["err"] = f"{record.exc_info[0].__name__}: {record.exc_info[1]}"
        entries["stack"] = logging.Formatter().formatException(record.exc_info)
    return entries


def _level(number: int) -> str:
    return _SHORT[max((n for n in _SHORT if n <= number), default=logging.DEBUG)]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.3f}"
    plain = str(value)
    if plain and not any(c <= " " or c in '="\\' or not c.isprintable() for c in plain):
        return plain
    return '"' + "".join(_ESCAPES.get(c, c if c.isprintable() else f"\\u{ord(c):04x}") for c in plain) + '"'
