"""A table of the API server as kubectl's columns."""

from __future__ import annotations

from typing import Any

from edl.kube.job_table import JobTable

COLUMNS = [{"name": "Name"}, {"name": "Min"}, {"name": "Message", "priority": 1}, {"name": "Age"}]


def table(*cells: list[Any], columns: list[dict[str, Any]] | None = None, namespace: str = "ads") -> dict[str, Any]:
    rows = [{"cells": row, "object": {"metadata": {"namespace": namespace}}} for row in cells]
    return {"columnDefinitions": COLUMNS if columns is None else columns, "rows": rows}


def test_columns_are_padded_as_kubectl_pads_them() -> None:
    printed = JobTable(wide=False, with_namespace=False).lines(table(["a", 1, "why", "5s"], ["longer", 12, "", "3m"]))
    assert list(printed) == ["NAME     MIN   AGE", "a        1     5s", "longer   12    3m"]


def test_wide_adds_the_columns_of_lower_priority() -> None:
    printed = list(JobTable(wide=True, with_namespace=False).lines(table(["a", 1, "why it waits", "5s"])))
    assert printed == ["NAME   MIN   MESSAGE        AGE", "a      1     why it waits   5s"]


def test_all_namespaces_put_the_namespace_first() -> None:
    printed = list(JobTable(wide=False, with_namespace=True).lines(table(["a", 1, "", "5s"])))
    assert printed == ["NAMESPACE   NAME   MIN   AGE", "ads         a      1     5s"]


def test_a_value_that_is_missing_is_empty_and_a_row_stays_one_line() -> None:
    printed = list(JobTable(wide=True, with_namespace=False).lines(table(["a", None, "one\ntwo", True])))
    assert printed == ["NAME   MIN   MESSAGE   AGE", "a            one       true"]


def test_a_message_is_no_command_for_the_terminal() -> None:
    rows = table(["a", 1, "\x1b[2Jgone\x9b31m", "5s"], namespace="\x1b]0;x\x07")
    printed = list(JobTable(wide=True, with_namespace=True).lines(rows))
    assert all(line.isprintable() for line in printed)
    assert r"\u001b[2Jgone\u009b31m" in printed[1]


def test_a_watch_repeats_no_head() -> None:
    made = JobTable(wide=False, with_namespace=False)
    assert len(list(made.lines(table(["a", 1, "", "5s"])))) == 2
    assert list(made.lines(table(["b", 2, "", "6s"], columns=[]))) == ["b      2     6s"]


def test_a_table_without_rows_has_no_lines() -> None:
    assert list(JobTable(wide=False, with_namespace=False).lines(table())) == []
