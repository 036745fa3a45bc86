"""Decision records: written, read back, and read again after a rename."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edl.errors import ConfigError
from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import FixedPods, RolePolicy
from edl.model.limits import Limits, Quota, ServingLimits
from edl.model.names import JobKey, Role
from edl.model.plan import Certificate, Price, ScaleDecision, ScalePlan, ServingReport
from edl.model.resources import NodeTerm, Placement, Preference, Requirement, Taint, Toleration
from edl.model.status import Condition, JobPhase, JobStatus, Reason, Resize, RoleCount
from edl.observability.decision_records import DecisionRecord, RecordFolder, decode_record, encode_record
from edl.observability.replay import Verdict, recompute, replay
from edl.observability.stored_names import STORED_NAMES
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_node, make_serving, make_shape, make_snapshot

KEY = JobKey("default", "a")
OLD = Path(__file__).parent / "records" / "decision-before-the-move.json"
NEW_FIELDS = {
    ("ahead_of_plan",),
    ("limits", "quotas", "others"),
    ("limits", "quotas", "exempt"),
    ("snapshot", "jobs", "declared"),
    ("snapshot", "jobs", "trainer", "placement", "rules"),
    ("snapshot", "jobs", "fixed", "shape", "placement", "rules"),
    ("snapshot", "jobs", "pods", "shape", "placement", "rules"),
    ("snapshot", "pods", "shape", "placement", "rules"),
    ("snapshot", "jobs", "pods", "owner"),
    ("snapshot", "pods", "owner"),
    ("snapshot", "jobs", "pods", "gang"),
    ("snapshot", "pods", "gang"),
    ("snapshot", "jobs", "pods", "outlived"),
    ("snapshot", "pods", "outlived"),
    ("snapshot", "jobs", "pods", "held"),
    ("snapshot", "pods", "held"),
    ("snapshot", "gangs"),
    ("snapshot", "jobs", "pods", "unscheduled"),
    ("snapshot", "pods", "unscheduled"),
    ("snapshot", "jobs", "sizes"),
    ("snapshot", "jobs", "is_oversized"),
    ("snapshot", "jobs", "finishing"),
    ("snapshot", "jobs", "orphans_pods"),
    ("snapshot", "jobs", "keeps_minimum"),
    ("snapshot", "jobs", "pin_floor"),
    ("snapshot", "jobs", "pods", "begun"),
    ("snapshot", "pods", "begun"),
    ("snapshot", "jobs", "pods", "blocked"),
    ("snapshot", "pods", "blocked"),
    ("snapshot", "jobs", "pods", "ended_in"),
    ("snapshot", "pods", "ended_in"),
    ("snapshot", "jobs", "pods", "rejection"),
    ("snapshot", "pods", "rejection"),
    ("limits", "quotas", "best_effort"),
    ("snapshot", "jobs", "pods", "limits"),
    ("snapshot", "jobs", "qos"),
    ("snapshot", "jobs", "unkept"),
    ("snapshot", "jobs", "status", "qos"),
    ("snapshot", "jobs", "status", "last_resize", "unseen"),
    ("snapshot", "pods", "limits"),
    ("snapshot", "jobs", "pods", "grace_s"),
    ("snapshot", "jobs", "pods", "ends_by_s"),
    ("snapshot", "jobs", "pods", "may_preempt"),
    ("snapshot", "pods", "may_preempt"),
    ("snapshot", "pods", "grace_s"),
    ("snapshot", "pods", "ends_by_s"),
    ("limits", "drain_idle_s"),
    ("limits", "expected_nodes"),
    ("plan", "decisions", "asks"),
    ("snapshot", "idle_nodes"),
    ("snapshot", "jobs_before"),
    ("snapshot", "jobs", "scale_up"),
    ("snapshot", "node_requests"),
    ("snapshot", "resting_groups"),
    ("limits", "avoid_nodes_after"),
    ("limits", "avoid_nodes_for_s"),
    ("snapshot", "avoided"),
    ("snapshot", "jobs", "status", "troubles"),
    ("limits", "lend_running"),
    ("snapshot", "rejecting"),
    ("snapshot", "resizes_pods"),
    ("snapshot", "pods", "running_request"),
    ("snapshot", "jobs", "pods", "running_request"),
    ("snapshot", "jobs", "status", "dataset", "unsaved"),
    ("snapshot", "jobs", "slowed_beyond"),
    ("snapshot", "jobs", "speeds_seen_to"),
    ("snapshot", "jobs", "status", "measured", "batch"),
    ("snapshot", "jobs", "goodput"),
    ("snapshot", "jobs", "status", "measured", "goodputs"),
    ("snapshot", "jobs", "kueue"),
    ("snapshot", "kueue"),
    ("snapshot", "jobs", "unsaved_s"),
    ("snapshot", "jobs", "topology"),
    ("snapshot", "queues"),
    ("limits", "clear_lending_after_s"),
    ("limits", "quotas", "namespace"),
    ("limits", "serving_schedulers"),
    ("limits", "serving_slo"),
    ("limits", "surplus_cpu_request"),
    ("plan", "headroom"),
    ("snapshot", "headroom"),
    ("limits", "tenants"),
    ("limits", "untried_s"),
    ("plan", "costliest"),
    ("plan", "cut"),
    ("plan", "decisions", "details"),
    ("plan", "decisions", "lent_cpu_milli"),
    ("plan", "decisions", "slowed"),
    ("plan", "stages"),
    ("snapshot", "jobs", "fixed", "limits"),
    ("snapshot", "jobs", "lending"),
    ("snapshot", "jobs", "limits"),
    ("snapshot", "jobs", "pods", "lent_cpu_milli"),
    ("snapshot", "jobs", "pods", "scheduler"),
    ("snapshot", "jobs", "refusal"),
    ("snapshot", "jobs", "owner_count"),
    ("snapshot", "jobs", "status", "completed"),
    ("snapshot", "jobs", "status", "dataset", "unsaved"),
    ("snapshot", "jobs", "status", "lending"),
    ("snapshot", "jobs", "status", "measured", "lending_price"),
    ("snapshot", "jobs", "unsaved_s"),
    ("snapshot", "pods", "lent_cpu_milli"),
    ("snapshot", "pods", "scheduler"),
    ("snapshot", "resource_quotas"),
}
"""Fields that were added since the sample was written."""
PLACEMENT = Placement(
    (("zone", "a"),),
    (NodeTerm((Requirement("gpu", "In", ("x", "y")),), (Requirement("metadata.name", "In", ("n000",)),)),),
    (Toleration("k", "Exists", "", "NoSchedule"),),
)


def snapshot(now_s: float = 1000.0) -> ClusterSnapshot:
    """A cluster with a value in every field that is not a plain number or text."""
    job = replace(
        make_job("a", trainers=2, on=("n000",), fixed=(FixedPods(Role.PSERVER, make_shape(0.5), 2),)),
        trainer=make_shape(1, 1, PLACEMENT),
        preferred=(Preference(7, PLACEMENT.required[0]),),
        status=JobStatus(
            phase=JobPhase.RUNNING,
            conditions=(Condition("Admitted", "True", "AtMax", "2 of 2", 990.0, 1),),
            trainer=RoleCount(2, 2, 0),
            last_resize=Resize(980.0, 1, 2, "AtMax"),
        ),
        ttl_s=60,
        sizes=(1, 2, 4, 10),
    )
    node = replace(make_node("n000"), taints=(Taint("k", "", "NoSchedule"),))
    return make_snapshot((node,), (job,), (replace(make_serving("web"), unplaceable=True),), now_s)


def plan(target: int = 3) -> ScalePlan:
    decision = ScaleDecision(
        KEY, 1, 2, target, 1, 10, True, Reason.AT_MAX, "as planned",
        nodes=(("n000", 1),), fixed_nodes=((Role.MASTER, "n000"),),
    )  # fmt: skip
    prices = (Price("class", "x", "cpu", 0.25),)
    return ScalePlan((decision,), Certificate("fulfilment", 1.0, 1.5), prices, ServingReport(1, 1, 0), 0.01)


def record(now_s: float = 1000.0) -> DecisionRecord:
    return DecisionRecord("maxmin", Limits(serving=ServingLimits(grace_s=2.0)), snapshot(now_s), plan())


def test_a_record_is_read_back_as_it_was_written() -> None:
    assert decode_record(encode_record(record())) == record()
    assert decode_record(encode_record(DecisionRecord("x", Limits(), ClusterSnapshot(0.5), plan()))).policy == "x"


def test_a_decision_with_quotas_and_measured_speeds_is_the_same_from_its_record() -> None:
    limits = Limits(quotas=(Quota("blue", (("cpu", 3000), ("nvidia.com/gpu", 0))),))
    job = replace(make_job("a"), queue="blue", throughput=((1, 10.0), (4, 35.0)), resize_cost_s=12.5)
    world = make_snapshot((make_node("n000"),), (job, make_job("b")))
    first = decide(world, policy_named("utility"), limits)
    again = decode_record(encode_record(DecisionRecord("utility", limits, world, first)))
    assert again.limits == limits
    assert replace(decide(again.snapshot, policy_named(again.policy), again.limits), seconds=0) == replace(
        first, seconds=0
    )
    assert (first.policy, [d.target for d in first.decisions]) == ("utility", [3, 5])


def test_a_record_without_a_policy_is_replayed_by_the_policy_of_its_plan() -> None:
    job = replace(make_job("a"), throughput=((1, 10.0), (4, 35.0)))
    world = make_snapshot((make_node("n000"),), (job, make_job("b")))
    made = decide(world, policy_named("utility"), Limits())
    assert recompute(DecisionRecord("", Limits(), world, made)).policy == "utility"


def test_a_record_is_plain_json() -> None:
    body = json.loads(encode_record(record()))
    assert body["policy"] == "maxmin"
    assert body["plan"]["decisions"][0]["target"] == 3


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"\xff", b'{"policy": 1}', b"[" * 100_000])
def test_a_file_that_is_not_a_record_is_refused(raw: bytes) -> None:
    with pytest.raises(ConfigError, match="decision record"):
        decode_record(raw)


def test_a_record_of_another_version_is_refused() -> None:
    with pytest.raises(ConfigError, match="version 99"):
        decode_record(encode_record(replace(record(), version=99)))


def test_a_burst_of_decisions_leaves_one_record_of_each_hour_before(tmp_path: Path) -> None:
    folder, hour_s = RecordFolder(tmp_path, keep=2, hours=3), 3600.0
    for hour in range(6):
        for second in (10.0, 20.0, 30.0):
            folder.write(record(hour * hour_s + second))
    for second in range(100, 110):
        folder.write(record(5 * hour_s + second))
    kept = [decode_record(path.read_bytes()).snapshot.observed_at_s for path in sorted(tmp_path.iterdir())]
    assert kept == [3 * hour_s + 10, 4 * hour_s + 10, 5 * hour_s + 10, 5 * hour_s + 108, 5 * hour_s + 109]


def test_only_the_newest_records_are_kept(tmp_path: Path) -> None:
    folder = RecordFolder(tmp_path / "new" / "records", keep=3, hours=0)
    for second in range(6):
        folder.write(record(1000.0 + second))
    kept = sorted((tmp_path / "new" / "records").iterdir())
    assert [decode_record(p.read_bytes()).snapshot.observed_at_s for p in kept] == [1003.0, 1004.0, 1005.0]


def test_other_files_in_the_folder_are_kept(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    folder = RecordFolder(tmp_path, keep=1, hours=0)
    for second in range(3):
        folder.write(record(1000.0 + second))
    assert (tmp_path / "notes.txt").exists()


def test_a_folder_that_is_not_writable_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--record .*choose a writable folder"):
        RecordFolder(tmp_path / "file")


def names(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every field in a record."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key)
            yield from names(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from names(item, path)


def test_a_record_written_before_the_renames_is_read_and_replayed_the_same() -> None:
    old = decode_record(OLD.read_bytes())
    assert [(d.job.name, d.min_trainers, d.max_trainers) for d in old.plan.decisions] == [
        ("ctr", 2, 12),
        ("detector", 2, 8),
        ("ranker", 2, 4),
    ]
    (ctr, *_) = old.snapshot.jobs
    assert ctr.policies == (
        RolePolicy(Role.PSERVER, JobEvent.POD_EVICTED, JobAction.RESTART_JOB),
        RolePolicy(Role.TRAINER, JobEvent.ANY, JobAction.RESTART_POD),
    )
    assert old.limits.quotas
    assert old.plan.serving.waiting == 1
    assert any(decision.victims for decision in old.plan.decisions)
    one = replay(OLD)
    assert (one.verdict, one.differences) == (Verdict.SAME, ())


def remove(part: Any, path: tuple[str, ...]) -> None:
    """Take a field out of a record, wherever its path leads."""
    if isinstance(part, list):
        for one in part:
            remove(one, path)
    elif isinstance(part, dict) and len(path) == 1:
        part.pop(path[0], None)
    elif isinstance(part, dict) and path[0] in part:
        remove(part[path[0]], path[1:])


def test_a_record_keeps_its_field_names() -> None:
    old = json.loads(OLD.read_bytes())
    new = json.loads(encode_record(decode_record(OLD.read_bytes())))
    added = set(names(new)) - set(names(old))
    assert {path for path in added if path[:-1] not in added} == NEW_FIELDS
    for path in NEW_FIELDS:
        remove(new, path)
    assert new == old
    assert [list(decision) for decision in new["plan"]["decisions"]] == [list(d) for d in old["plan"]["decisions"]]


def test_a_record_with_the_names_of_the_code_is_read_too() -> None:
    text = OLD.read_text()
    for name in STORED_NAMES:
        assert f'"{name.stored}":' in text
        text = text.replace(f'"{name.stored}":', f'"{name.code}":')
    assert decode_record(text.encode()) == decode_record(OLD.read_bytes())


@pytest.mark.parametrize("place", ["snapshot", "plan"])
def test_a_record_with_a_part_of_the_wrong_type_is_refused(place: str) -> None:
    for wrong in (5, [5], {"jobs": 5, "decisions": 5}, {"jobs": [5], "decisions": [[]]}):
        body = {**json.loads(OLD.read_bytes()), place: wrong}
        with pytest.raises(ConfigError, match="not a decision record"):
            decode_record(json.dumps(body).encode())
