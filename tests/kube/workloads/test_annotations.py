"""Names of annotations that are almost right are refused in words."""

from __future__ import annotations

import pytest

from edl.kube.workloads.annotations import ELASTIC, INDEXES, MAX, MIN, QUEUE, RECORD, TASK, read_wish
from edl.kube.workloads.volcano_tasks import STOPPED

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
