"""Objects that edl cannot read are named once, and thousands of one namespace hide no other."""

from __future__ import annotations

import logging

import pytest

from edl.observability.left_out import MOST_LINES, LeftOutLog


def lines(caplog: pytest.LogCaptureFixture) -> list[object]:
    found = [getattr(record, "fields", {}) for record in caplog.records]
    caplog.clear()
    return [fields.get("problem", fields.get("count")) for fields in found]


def test_each_object_is_named_once_as_long_as_it_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    log = LeftOutLog(logging.getLogger("edl.test"))
    assert log.note(["Pod a/x is left out: why"]) == 1
    assert lines(caplog) == ["Pod a/x is left out: why"]
    assert log.note(["Pod a/x is left out: why", "Node n is left out: why"]) == 2
    assert lines(caplog) == ["Node n is left out: why"]
    assert log.note([]) == 0
    assert log.note(["Pod a/x is left out: why"]) == 1
    assert lines(caplog) == ["Pod a/x is left out: why"]


def test_thousands_of_objects_of_one_namespace_make_few_lines_and_hide_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = LeftOutLog(logging.getLogger("edl.test"))
    flood = [f"Pod a/p{number} is left out: why" for number in range(5000)]
    honest = ["Pod z/web is left out: why", "Node zz is left out: why"]
    assert log.note([*flood, *honest]) == 5002
    found = lines(caplog)
    assert len(found) == MOST_LINES + 1
    assert set(honest) <= set(found)
    assert found[-1] == 5002 - MOST_LINES
    log.note([*flood, *honest])
    assert lines(caplog) == []
