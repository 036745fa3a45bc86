"""Values of one version of edl as those of another: nothing is lost without a word."""

from __future__ import annotations

import enum
from dataclasses import field, make_dataclass, replace
from typing import Any

import pytest

from benchmarks.other_version import Translation, UnknownThereError
from benchmarks.random_worlds import random_world
from edl.model.limits import Limits, SharingLimits
from tests.worlds.builders import make_job

HERE = Translation("edl")


class Later(enum.Enum):
    """A class that came later."""

    ONE = 1


def later_limits(deadline_s: float, later: int = 0) -> object:
    """Limits of a later version, with one more."""
    fields: list[tuple[str, type, Any]] = [("deadline_s", float, 10.0), ("later", int, 0)]
    return make_dataclass("Limits", [(n, kind, field(default=value)) for n, kind, value in fields])(deadline_s, later)


@pytest.mark.parametrize("number", range(12))
def test_a_world_is_the_same_in_the_same_version(number: int) -> None:
    world = random_world(number)
    limits = replace(world.limits, sharing=SharingLimits(head_wait_s=7.0))
    assert HERE((world.snapshot, limits)) == (world.snapshot, limits)


def test_what_the_other_version_does_not_know_is_said() -> None:
    assert HERE(later_limits(5.0)) == Limits(deadline_s=5.0)
    with pytest.raises(UnknownThereError, match=r"Limits\.later"):
        HERE(later_limits(5.0, later=1))
    with pytest.raises(UnknownThereError, match="Later"):
        HERE((make_job("a"), Later.ONE))
