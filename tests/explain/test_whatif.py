"""What a change of a saved cluster would change: whole files against whole files, as JSON and as people read it.

`EDL_REGENERATE_PLANS=1 pytest tests/explain/test_whatif.py` writes the outputs anew; read the difference before you
commit it.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from edl.controller.planning import compare_snapshots, plan_snapshot
from edl.explain.comparison import Changes
from edl.explain.plan_table import plan_dict
from edl.explain.whatif import print_changes
from edl.kube.snapshot_files.saved_cluster import read_snapshot_files
from edl.model.limits import Limits
from tests.explain.test_plan_table import rounded

FOLDER = Path(__file__).parent / "whatif"
CASES = sorted(path.name.removesuffix(".cluster.yaml") for path in FOLDER.glob("*.cluster.yaml"))


def changes(*paths: str, policy: str = "") -> Changes | None:
    saved = read_snapshot_files(paths)
    snapshot, _ = saved.snapshot()
    plan = plan_snapshot(snapshot, policy, Limits())
    if saved.base is None:
        return None
    return compare_snapshots(saved.base.snapshot()[0], snapshot, plan, Limits(), saved.first_name)


def printed(found: Changes) -> str:
    out = io.StringIO()
    print_changes(found, Console(file=out, width=160))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def test_there_are_cases() -> None:
    assert len(CASES) >= 3


@pytest.mark.parametrize("case", CASES)
def test_a_change_changes_what_was_reviewed(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    found = changes(f"{case}.cluster.yaml", f"{case}.change.yaml")
    assert found is not None
    golden = {"output.json": json.dumps(rounded(plan_dict(found.after, found)["changes"]), indent=2) + "\n"}
    golden["output.txt"] = printed(found)
    for kind, text in golden.items():
        expected = FOLDER / f"{case}.{kind}"
        if os.environ.get("EDL_REGENERATE_PLANS"):
            expected.write_text(text)
        assert text == expected.read_text()


def test_the_sum_of_what_jobs_have_is_that_of_the_two_plans() -> None:
    case = str(FOLDER / CASES[0])
    found = changes(f"{case}.cluster.yaml", f"{case}.change.yaml")
    assert found is not None
    before, after = (sum(d.target for d in plan.decisions) for plan in (found.before, found.after))
    assert sum(change.trainers for change in found.jobs) == after - before
    assert len(found.jobs) + found.same == len(found.after.decisions)


def test_one_file_changes_nothing() -> None:
    case = str(FOLDER / CASES[0])
    assert changes(f"{case}.cluster.yaml") is None


def test_the_same_objects_again_change_nothing() -> None:
    case = str(FOLDER / CASES[0])
    assert changes(f"{case}.cluster.yaml", f"{case}.cluster.yaml") is None


def test_a_first_file_without_nodes_is_no_cluster_to_compare_with() -> None:
    case = str(FOLDER / CASES[0])
    assert changes(f"{case}.change.yaml", f"{case}.cluster.yaml") is None


def test_both_plans_are_made_for_the_same_moment(tmp_path: Path) -> None:
    case = FOLDER / "a-new-job-waits-behind-the-head"
    late = tmp_path / "late.yaml"
    text = case.with_name(f"{case.name}.change.yaml").read_text()
    late.write_text(text.replace("namespace: ads}", 'namespace: ads, creationTimestamp: "2026-01-05T10:30:00Z"}'))
    found = changes(f"{case}.cluster.yaml", str(late))
    assert found is not None
    messages = [d.account for plan in (found.before, found.after) for d in plan.decisions if d.job.name == "wide"]
    assert messages[0] == messages[1]
    assert "no younger job starts before it" in found.after.decisions[1].account


def test_both_plans_are_made_by_the_policy_that_is_named_and_no_change_brings_another(tmp_path: Path) -> None:
    case = FOLDER / "a-new-job-takes-its-share"
    fast = tmp_path / "fast.yaml"
    points = "{instances: 1, samplesPerSecond: 9}, {instances: 3, samplesPerSecond: 26}"
    curve = f"spec:\n  elasticity: {{throughput: [{points}]}}"
    fast.write_text(case.with_name(f"{case.name}.change.yaml").read_text().replace("spec:", curve, 1))
    for policy, expected in (("", "maxmin"), ("maxmin", "maxmin"), ("utility", "utility")):
        found = changes(f"{case}.cluster.yaml", str(fast), policy=policy)
        assert found is not None
        assert (found.before.policy, found.after.policy) == (expected, expected)
        assert found.before.certificate.objective == found.after.certificate.objective


def test_the_comparison_is_by_the_policy_that_was_asked_for() -> None:
    case = str(FOLDER / "a-node-is-drained")
    found = changes(f"{case}.cluster.yaml", f"{case}.change.yaml", policy="edl-2017")
    assert found is not None
    assert found.jobs == (), "it counts totals, and a cordoned node counts"
