"""Known ways to get a job's life, its share or its data wrong, each with the test that must notice: `make planted`.

A test suite is worth what it catches. Each bug is planted alone in a copy of the package, and the test that is named
for it has to fail there. `test_planted` sees to it, in every run, that the places and the tests still exist.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """One bug.

    Attributes:
        what: what goes wrong.
        file: where, within edl.
        right, wrong: the code as it is, and with the bug in it.
        caught_by: the test, as pytest calls it.
    """

    what: str
    file: str
    right: str
    wrong: str
    caught_by: str
