"""Logs the objects that edl cannot read: each once, a few at a time, and the namespaces in turn.

Whoever may create objects may create thousands that nobody can read, under new names all the time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import chain, zip_longest

from edl.observability.logs import log_event

MOST_LINES = 50
"""The most lines that are logged at a time."""


class LeftOutLog:
    """Logs the objects that are left out.

    Args:
        logger: gets the lines.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._known: set[str] = set()

    def note(self, problems: Iterable[str]) -> int:
        """Log those that are new; return how many objects are left out now.

        Args:
            problems: `KIND NAMESPACE/NAME is left out: WHY`, of every such object.
        """
        now = set(problems)
        new = _by_turns(now - self._known)
        for problem in new[:MOST_LINES]:
            log_event(self._logger, logging.WARNING, "object left out", problem=problem)
        if len(new) > MOST_LINES:
            more = len(new) - MOST_LINES
            log_event(self._logger, logging.WARNING, "more objects left out", count=more, hint="edl plan lists all")
        self._known = now
        return len(now)


def _by_turns(problems: Iterable[str]) -> list[str]:
    """Reorder lines: the first one of each namespace, then the second one of each, and so on."""
    of: dict[str, list[str]] = {}
    for problem in sorted(problems):
        _, _, rest = problem.partition(" ")
        of.setdefault(rest.partition("/")[0], []).append(problem)
    turns = chain.from_iterable(zip_longest(*of.values()))
    return [one for one in turns if one is not None]
