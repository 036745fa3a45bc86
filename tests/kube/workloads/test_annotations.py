"""Names of annotations that are almost right are refused in words."""

from __future__ import annotations

import pytest

from edl.kube.workloads.annotations import (
    ELASTIC,
    INDEXES,
    MAX,
    MIN,
    QUEUE,
    RECORD,
    SIZES,
    STEP,
    TASK,
    read_wish,
)
from edl.kube.workloads.volcano_tasks import STOPPED
from edl.model.sizes import Sizes

ASKED = {ELASTIC: "true", MAX: "4"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("max-instances", MAX),
        ("min_instance", MIN),
        ("mininstance", MIN),
        ("queues", QUEUE),
        ("tasks", TASK),
        ("index", INDEXES),
        ("size", SIZES),
        ("steps", STEP),
    ],
)
def test_a_misspelled_name_is_named_with_the_right_one(written: str, meant: str) -> None:
    name = f"paddlepaddle.org/{written}"
    for given in (ASKED | {name: "2"}, {ELASTIC: "true", name: "2"}):
        assert read_wish(given).problem == f"annotation {name} is not known; did you mean {meant}?"


@pytest.mark.parametrize(
    "name",
    [MIN, QUEUE, TASK, RECORD, INDEXES, STOPPED, "paddlepaddle.org/team", "example.com/max-instances", "queues"],
)
def test_other_names_are_left_alone(name: str) -> None:
    assert read_wish(ASKED | {name: "2"}).problem == ""


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({SIZES: "2,4,8"}, (2, 4, 8)),
        ({SIZES: " 8, 2,4 "}, (2, 4, 8)),
        ({STEP: "2"}, (2, 4, 6, 8)),
        ({STEP: "1"}, ()),
        ({}, ()),
    ],
)
def test_sizes_are_a_list_or_a_step(given: dict[str, str], sizes: Sizes) -> None:
    wish = read_wish({ELASTIC: "true", MIN: "2", MAX: "8"} | given)
    assert (wish.problem, wish.sizes, wish.min_trainers, wish.max_trainers) == ("", sizes, 2, 8)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({SIZES: "2,x,8"}, 'sizes is "2,x,8"; write up to 64 different numbers'),
        ({SIZES: "2,,8"}, "write up to 64 different numbers"),
        ({SIZES: "2,8,8"}, "write up to 64 different numbers"),
        ({SIZES: "0,2,8"}, "write up to 64 different numbers"),
        ({SIZES: ",".join(map(str, range(2, 99)))}, "write up to 64 different numbers"),
        ({SIZES: "2,4"}, "but paddlepaddle.org/min-instance is 2 and paddlepaddle.org/max-instance is 8; make these"),
        ({SIZES: "2,8", STEP: "2"}, "are both set; remove one of them"),
        ({STEP: "3"}, "min-instance 2 and paddlepaddle.org/max-instance 8 are not both multiples of"),
        ({STEP: "0"}, 'step is "0"; write a whole number from 1 to 10000'),
    ],
)
def test_sizes_that_contradict_the_bounds_are_refused(given: dict[str, str], words: str) -> None:
    wish = read_wish({ELASTIC: "true", MIN: "2", MAX: "8"} | given)
    assert words in wish.problem
    assert wish.sizes == ()
