"""RFC 3339 times as seconds since the epoch.

A snapshot has thousands of times, and most of them repeat (the time of a condition stays the same for days), so
the results are cached.
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
    """Seconds since the epoch of an RFC 3339 text that a user entered.

    Args:
        flag: the name of the flag, for the message.
        value: its text.

    Raises:
        ConfigError: it is not an RFC 3339 time, or it has no offset; edl does not guess the user's time zone.
    """
    seconds = seconds_of(value)
    if seconds is None:
        raise ConfigError(f"{flag} {value!r} is not an RFC 3339 time; write it like 2026-01-05T10:00:00Z")
    if not _OFFSET.search(value):
        raise ConfigError(
            f"{flag} {value!r} has no offset from UTC; write it like 2026-01-05T10:00:00Z or"
            " 2026-01-05T10:00:00+01:00"
        )
    return seconds


def text_of(seconds: float) -> str:
    """The time as Kubernetes writes it, in whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def exact_text_of(seconds: float) -> str:
    """The time as Kubernetes writes it, with milliseconds, rounded down."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@lru_cache(maxsize=16384)
def _seconds_of(value: str) -> float | None:
    if not _TIME.fullmatch(value):
        return None
    try:
        time = datetime.fromisoformat(value.upper())
        return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH).total_seconds()
    except (ValueError, OverflowError):
        return None
