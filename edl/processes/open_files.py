"""The limit of open files of a process: each connection is one."""

from __future__ import annotations

import resource


def raise_file_limit(wanted: int) -> None:
    """Raise the limit of open files as far as wanted and allowed; it is never lowered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft < hard:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
