"""RFC 3339 times as seconds since the epoch.

Times arrive by the thousand and mostly repeat (a condition's time stays the same for days), so the answers are kept.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

from edl.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
_OFFSET = re.compile(r"([Zz]|[+-]\d\d:\d\d)$", re.ASCII)


def seconds_of(value: object) -> float | None:
    """Seconds since the epoch of an RFC 3339 text (a missing offset is UTC); None for anything else."""
    return _seconds_of(value) if isinstance(value, str) else None


def seconds_of_flag(flag: str, value: str) -> float:
    """Seconds since the epoch of an RFC 3339 text that a person gave.

    Raises:
        ConfigError: it is none, or has no offset: a person may mean another one than we would take.
    """
    seconds = seconds_of(value)
    if seconds is None:
        raise ConfigError(f"{flag} {value!r} is no RFC 3339 time; write it like 2026-01-05T10:00:00Z")
    if not _OFFSET.search(value):
        raise ConfigError(
            f"{flag} {value!r} has no offset from UTC, and RFC 3339 needs one; write it like 2026-01-05T10:00:00Z or"
            " 2026-01-05T10:00:00+01:00"
        )
    return seconds


def text_of(seconds: float) -> str:
    """The time as Kubernetes writes it, in whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=16384)
def _seconds_of(value: str) -> float | None:
    if not _TIME.fullmatch(value):
        return None
    try:
        time = datetime.fromisoformat(value.upper())
        return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH).total_seconds()
    except (ValueError, OverflowError):
        return None
