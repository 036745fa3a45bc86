"""The pauses before a pod that ended is created again: they double, as those of a `batch/v1` Job do.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-backoff-failure-policy
"""

from __future__ import annotations

from edl.model.names import Role

FIRST_S, LONGEST_S = 10.0, 360.0
"""The first pause and the longest one, in seconds: those of a `batch/v1` Job."""

Slot = tuple[Role, int]
"""The role and the index of a pod."""


def pause_s(before: int) -> float:
    """Return the seconds to pause after `before` earlier pauses in a row, in [FIRST_S, LONGEST_S]."""
    return min(LONGEST_S, FIRST_S * 2.0 ** min(before, 10))
