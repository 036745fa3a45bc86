"""Hours of random troubles in virtual time: no storm, no hoard, no silence, and no false statement.

`make test` plays `SAMPLE`; `EDL_STORMS` plays so many seeds instead, and `make storms` 150. They begin with
`EDL_STORMS_FIRST`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from edl.sim.virtual_time import START_S
from tests.worlds.storms.play import Played, play
from tests.worlds.storms.random_hour import hour_of
from tests.worlds.storms.storm_rules import moments
from tests.worlds.storms.troubles import Kind
from tests.worlds.storms.world_view import amount

SAMPLE = (1, 8, 19, 23, 29)
CALM = 19
FIRST = int(os.environ.get("EDL_STORMS_FIRST", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ["EDL_STORMS"])) if "EDL_STORMS" in os.environ else SAMPLE


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Played]:
    """Plays the hour that two tests look at, once."""
    return cache(lambda: play(CALM, tmp_path_factory.mktemp("calm")))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_hour_of_troubles_brings_no_storm_no_hoard_no_silence_and_no_false_statement(
    seed: int, calm: Callable[[], Played], tmp_path: Path
) -> None:
    played = calm() if seed == CALM else play(seed, tmp_path)
    assert played.broken == [], f"\n{played.hour}"


def test_the_hours_have_every_kind_of_trouble_and_differ() -> None:
    hours = [hour_of(seed, START_S) for seed in range(len(Kind))]
    assert {trouble.kind for hour in hours for trouble in hour.troubles} == set(Kind)
    assert len({str(hour) for hour in hours}) == len(hours)
    assert all(len({job.key for job in hour.jobs}) == len(hour.jobs) for hour in hours)


def test_an_hour_is_the_same_each_time(calm: Callable[[], Played], tmp_path: Path) -> None:
    first, second = calm().server.asked, play(CALM, tmp_path).server.asked
    assert [(one.at_s, one.method, one.path) for one in first] == [(o.at_s, o.method, o.path) for o in second]


def test_what_follows_at_once_is_the_same_time() -> None:
    assert [moments(times) for times in ([], [5.0], [1.0, 2.0, 3.5], [1.0, 9.0, 10.0, 30.0])] == [0, 1, 1, 3]


@pytest.mark.parametrize(
    ("text", "resource", "number"),
    [("2", "cpu", 2000), ("1500m", "requests.cpu", 1500), ("1Gi", "memory", 2**30), ("0", "pods", 0)],
)
def test_amounts_are_read_without_edl(text: str, resource: str, number: int) -> None:
    assert amount(text, resource) == number
