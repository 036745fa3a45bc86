"""`edl simulate`: what it prints and how it ends."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

SCENARIO = """\
name: small
duration_s: 20
nodes: [{name: n, count: 2, resources: {cpu: 4, memory: 8Gi}}]
jobs: [{name: job, max: 8, trainer: {cpu: 1, memory: 1Gi}}]
policies: [static-min, maxmin]
"""


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO)
    return str(path)


def test_the_table_has_a_column_for_each_policy(run: Run, scenario: str) -> None:
    code, out, _ = run("simulate", scenario, "--policy", "static-2017", "--policy", "edl-2017", "--seeds", "1")
    assert code == 0
    assert out.splitlines()[0].startswith("small: 20 s, 1 seed")
    heads = next(line.split() for line in out.splitlines() if line.startswith("figure"))
    assert heads == ["figure", "static-2017", "edl-2017"]


@pytest.mark.parametrize(("seeds", "title"), [("1", "20 s, 1 seed; "), ("2", "20 s, 2 seeds, 95 % intervals; ")])
def test_the_title_speaks_of_intervals_only_if_there_are_some(
    run: Run, scenario: str, seeds: str, title: str
) -> None:
    _, out, _ = run("simulate", scenario, "--policy", "static-2017", "--seeds", seeds)
    assert out.startswith(f"small: {title}")


def test_json_has_the_figures_and_each_run(run: Run, scenario: str) -> None:
    code, out, _ = run("simulate", scenario, "--policy", "static-2017", "--seeds", "1", "-o", "json")
    result = json.loads(out)["policies"]["static-2017"]
    assert code == 0
    assert result["figures"]["utilisation"]["mean"] == pytest.approx(result["runs"][0]["utilisation"])
    assert result["figures"]["utilisation"]["half_width"] is None
    assert result["problems"] == []


def test_csv_has_a_line_for_each_figure(run: Run, scenario: str) -> None:
    code, out, _ = run("simulate", scenario, "--policy", "static-2017", "-o", "csv")
    lines = list(csv.DictReader(out.splitlines()))
    assert code == 0
    assert {line["policy"] for line in lines} == {"static-2017"}
    assert "utilisation" in {line["figure"] for line in lines}


def test_an_unknown_policy_is_wrong_usage(run: Run, scenario: str) -> None:
    code, out, err = run("simulate", scenario, "--policy", "best")
    assert (code, out) == (2, "")
    assert "policy 'best' does not exist; choose one of static-2017, edl-2017" in err


def test_an_unknown_policy_of_the_file_is_named_with_its_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(SCENARIO.replace("maxmin]", "best]"))
    code, out, err = run("simulate", str(path))
    assert (code, out) == (2, "")
    assert f"{path}, line 5, policies.1: policy 'best' does not exist; choose one of static-2017" in err


def test_a_bad_scenario_is_wrong_usage(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(SCENARIO.replace("duration_s: 20", "duration_s: soon"))
    code, _, err = run("simulate", str(path))
    assert code == 2
    assert f"{path}, line 2, duration_s 'soon'" in err


def test_a_scenario_and_records_exclude_each_other(run: Run, scenario: str, tmp_path: Path) -> None:
    for arguments in ([], [scenario, "--from", str(tmp_path)]):
        code, _, err = run("simulate", *arguments)
        assert code == 2
        assert "takes either SCENARIO or --from RECORDS" in err
