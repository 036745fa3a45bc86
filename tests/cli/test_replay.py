"""`edl replay`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from edl.explain.decision import decide
from edl.kube.snapshot_files.saved_cluster import read_snapshot_files
from edl.model.limits import Limits
from edl.observability.decision_records import DecisionRecord, RecordFolder
from edl.planner.policies.registry import policy_named
from tests.cli.conftest import Run


@pytest.fixture
def record(cluster: str, tmp_path: Path) -> Path:
    """The record of a decision for the cluster."""
    snapshot, _ = read_snapshot_files([cluster]).snapshot()
    made = DecisionRecord("maxmin", Limits(), snapshot, decide(snapshot, policy_named("maxmin"), Limits()))
    return RecordFolder(tmp_path / "records").write(made)


def test_a_record_is_replayed(run: Run, record: Path) -> None:
    code, out, err = run("replay", str(record))
    assert (code, err) == (0, "")
    assert out == f"{record}: the same decision (2026-01-05T10:00:00Z, 1 job, policy maxmin)\n"
    code, out, _ = run("replay", str(record), "-o", "json")
    assert code == 0
    assert json.loads(out)["records"][0]["result"] == "same"


def test_the_record_may_be_named_by_an_environment_variable(
    run: Run, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDL_RECORD_FILE", str(record))
    assert run("replay")[0] == 0


def test_a_different_decision_exits_with_1_and_prints_the_difference(run: Run, record: Path) -> None:
    body = json.loads(record.read_bytes())
    body["plan"]["decisions"][0]["target"] = 1
    record.write_text(json.dumps(body))
    code, out, err = run("replay", str(record))
    assert (code, err) == (1, "")
    assert "a different decision" in out
    assert "ads/ctr  target  1         3" in out
    code, out, _ = run("replay", str(record), "-o", "json")
    assert code == 1
    (found,) = json.loads(out)["records"][0]["differences"]
    assert found == {"job": "ads/ctr", "field": "target", "recorded": 1, "now": 3}


def test_the_records_of_a_folder_are_counted(run: Run, record: Path) -> None:
    record.with_name("decision-2.json").write_bytes(record.read_bytes())
    code, out, _ = run("replay", str(record.parent))
    assert code == 0
    assert out.splitlines()[-1] == "2 records: 2 same"


def test_a_record_with_a_time_outside_the_calendar_is_replayed(run: Run, record: Path) -> None:
    record.write_text(re.sub(r'"observed_at_s":[0-9.e+]+', '"observed_at_s":1e300', record.read_text()))
    code, out, _ = run("replay", str(record))
    assert code == 0
    assert "1e+300 s" in out


def test_a_file_that_is_no_record_exits_with_2(run: Run, cluster: str, tmp_path: Path) -> None:
    for path in (cluster, str(tmp_path / "nowhere.json"), str(tmp_path)):
        code, out, err = run("replay", path)
        assert (code, out) == (2, "")
        assert err.startswith(f"edl: {path}")
        assert err.count(path) == 1
        assert "give a" in err
        assert "Traceback" not in err
