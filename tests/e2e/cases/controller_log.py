"""How long the controller took for its plans and writes, as its log says."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

CONTROLLER = "controller"
WRITES = ("CreatePod", "DeletePod", "MarkPod")
_PLAN = re.compile(r" msg=plan .* seconds=([0-9.]+)")
_WRITE = re.compile(rf" msg=action action=(?:{'|'.join(WRITES)}) .* seconds=([0-9.]+)")


def times_of(lines: Iterable[str]) -> Mapping[tuple[str, str], list[float]]:
    """Seconds by what was done, `plan` or `write`, and by who did it; a plan that is kept takes none."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in lines:
        for what, pattern in (("plan", _PLAN), ("write", _WRITE)):
            if seen := pattern.search(line):
                found[what, CONTROLLER].append(float(seen[1]))
    return found
