"""Decisions told and kept."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from edl.errors import ConfigError
from edl.model.actions import CreatePod, DeletePod, Outcome, Result
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods
from edl.model.names import JobKey, Role
from edl.model.plan import Certificate, Limits, Price, Quota, ScaleDecision, ScalePlan, ServingReport
from edl.model.resources import NodeTerm, Placement, Preference, Requirement, Taint, Toleration
from edl.model.status import Condition, JobPhase, JobStatus, Reason, Resize, RoleCount
from edl.observability.decision_records import (
    ControllerRecorder,
    DecisionRecord,
    RecordFolder,
    decode_record,
    encode_record,
)
from edl.observability.metrics import Metrics
from edl.planner.decide import decide, policy_named
from edl.planner.guard import RefusedPlanError
from tests.worlds.builders import make_job, make_node, make_serving, make_shape, make_snapshot
from tests.worlds.fake_api import FakeClock

KEY = JobKey("default", "a")
PLACEMENT = Placement(
    (("zone", "a"),),
    (NodeTerm((Requirement("gpu", "In", ("x", "y")),), (Requirement("metadata.name", "In", ("n000",)),)),),
    (Toleration("k", "Exists", "", "NoSchedule"),),
)


def snapshot(now_s: float = 1000.0) -> ClusterSnapshot:
    """A world with something in every field that is not plain."""
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
    return DecisionRecord("maxmin", Limits(serving_grace_s=2.0), snapshot(now_s), plan())


def test_a_record_is_read_back_as_it_was_written() -> None:
    assert decode_record(encode_record(record())) == record()
    assert decode_record(encode_record(DecisionRecord("x", Limits(), ClusterSnapshot(0.5), plan()))).policy == "x"


def test_a_decision_within_quotas_and_by_known_speeds_is_made_again_from_its_record() -> None:
    limits = Limits(quotas=(Quota("blue", (("cpu", 3000), ("nvidia.com/gpu", 0))),))
    job = replace(make_job("a"), queue="blue", throughput=((1, 10.0), (4, 35.0)), resize_cost_s=12.5)
    world = make_snapshot((make_node("n000"),), (job, make_job("b")))
    first = decide(world, policy_named(""), limits)
    again = decode_record(encode_record(DecisionRecord("", limits, world, first)))
    assert again.limits == limits
    assert replace(decide(again.snapshot, policy_named(again.policy), again.limits), seconds=0) == replace(
        first, seconds=0
    )
    assert (first.policy, [d.target for d in first.decisions]) == ("utility", [3, 5])


def test_a_record_is_plain_json() -> None:
    body = json.loads(encode_record(record()))
    assert body["policy"] == "maxmin"
    assert body["plan"]["decisions"][0]["target"] == 3


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"\xff", b'{"policy": 1}', b"[" * 100_000])
def test_what_is_no_record_is_refused(raw: bytes) -> None:
    with pytest.raises(ConfigError, match="decision record"):
        decode_record(raw)


def test_a_record_of_another_version_is_refused() -> None:
    with pytest.raises(ConfigError, match="version 99"):
        decode_record(encode_record(replace(record(), version=99)))


def test_only_the_newest_records_are_kept(tmp_path: Path) -> None:
    folder = RecordFolder(tmp_path / "new" / "records", keep=3)
    for second in range(6):
        folder.write(record(1000.0 + second))
    kept = sorted((tmp_path / "new" / "records").iterdir())
    assert [decode_record(p.read_bytes()).snapshot.observed_at_s for p in kept] == [1003.0, 1004.0, 1005.0]


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    folder = RecordFolder(tmp_path, keep=1)
    for second in range(3):
        folder.write(record(1000.0 + second))
    assert (tmp_path / "notes.txt").exists()


def test_a_folder_that_cannot_be_written_to_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--record .*give a folder"):
        RecordFolder(tmp_path / "file")


def teller(folder: RecordFolder | None = None) -> ControllerRecorder:
    return ControllerRecorder(Metrics(), FakeClock(), policy="maxmin", folder=folder)


def test_a_decision_is_told_and_recorded_once_until_it_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "edl")
    told = teller(RecordFolder(tmp_path))
    for second in range(4):
        told.planned(snapshot(1000.0 + second), Limits(), plan(3))
    told.planned(snapshot(1010.0), Limits(), plan(4))
    assert [r.message for r in caplog.records] == ["decision", "decision"]
    assert len(list(tmp_path.iterdir())) == 2


def test_pservers_that_move_are_news(tmp_path: Path) -> None:
    told = teller(RecordFolder(tmp_path))
    still = plan(3)
    moving = replace(still, decisions=tuple(replace(d, moves=("a-pserver-0",)) for d in still.decisions))
    for second, made in enumerate((still, moving, still)):
        told.planned(snapshot(1000.0 + second), Limits(), made)
    assert len(list(tmp_path.iterdir())) == 2


def test_serving_that_leaves_room_unused_is_counted_with_each_plan() -> None:
    metrics = Metrics()
    told = ControllerRecorder(metrics, FakeClock(), policy="maxmin")
    told.planned(snapshot(), Limits(), plan())
    assert b"edl_serving_unplaceable_pods 1.0" in metrics.render()


def test_a_disk_that_fails_later_is_an_error_in_the_log_and_not_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = teller(RecordFolder(tmp_path / "records"))
    (tmp_path / "records").rmdir()
    told.planned(snapshot(), Limits(), plan())
    assert [r.message for r in caplog.records if r.levelno == logging.ERROR] == ["decision not recorded"]


def fields(record: logging.LogRecord) -> dict[str, object]:
    """What a line of the log says besides its message."""
    found: dict[str, object] = record.__dict__["fields"]
    return found


def test_a_skipped_round_is_said_once_until_the_reason_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "edl")
    told = teller()
    for reason in ("behind", "behind", "down", "behind"):
        told.skipped(reason)
    assert [fields(r)["reason"] for r in caplog.records] == ["behind", "down", "behind"]


def test_what_went_wrong_is_louder_than_what_went_well(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "edl")
    told = teller()
    action = DeletePod(KEY, "u", "a-trainer-1", "p", "ServingNeedsRoom")
    for result in (Result.DONE, Result.UNCHANGED, Result.CONFLICT, Result.REFUSED, Result.FAILED):
        told.acted(Outcome(action, result, "Word", "sentence"))
    assert [r.levelname for r in caplog.records] == ["INFO", "DEBUG", "DEBUG", "WARNING", "WARNING"]
    told.acted(Outcome(CreatePod(KEY, "u", Role.TRAINER, 2), Result.DONE))
    assert fields(caplog.records[-1])["pod"] == "a-trainer-2"


def test_a_dropped_plan_is_an_error_with_every_problem(caplog: pytest.LogCaptureFixture) -> None:
    teller().not_planned(snapshot(), RefusedPlanError(plan(), ("one", "two")))
    assert [fields(r)["problem"] for r in caplog.records if r.message == "plan refused"] == ["one", "two"]
