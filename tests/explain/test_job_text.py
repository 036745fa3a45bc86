"""`edl explain`: which job is meant, its report as text and as JSON, and the one look at a live cluster."""

from __future__ import annotations

import gc
import io
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import Console

from edl.controller.planning import report_snapshot
from edl.errors import ConfigError, TemporaryError
from edl.explain.job_text import find_job, job_report_json, print_job_report
from edl.kube.mirror.read_once import look
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits, NodeLimits, Quota
from edl.model.pods import PodPhase
from edl.model.resources import CPU
from edl.model.status import Condition, JobPhase, JobStatus, NodeTrouble, Reason
from tests.worlds.builders import make_job, make_nodes, make_snapshot
from tests.worlds.fake_api import FakeApi, FakeClock, connected, refusal

LIMITS = Limits()


@pytest.fixture(autouse=True)
def _thaw() -> Iterator[None]:
    yield
    gc.unfreeze()


def world() -> ClusterSnapshot:
    return make_snapshot(make_nodes(1), (make_job("a", max_trainers=6), make_job("b", max_trainers=6)))


def printed(snapshot: ClusterSnapshot, name: str, limits: Limits = LIMITS) -> str:
    out = io.StringIO()
    print_job_report(
        report_snapshot(snapshot, find_job(snapshot, name, ""), "", limits), snapshot, Console(file=out, width=100)
    )
    return out.getvalue()


def test_pods_that_cannot_start_are_named_with_their_cause() -> None:
    job = make_job("a", max_trainers=2, trainers=2, on=("n000",))
    trouble = "ImagePullBackOff: its image cannot be pulled"
    stuck = replace(job.pods[0], phase=PodPhase.PENDING, ready=False, container_message=trouble)
    text = printed(make_snapshot(make_nodes(1), (replace(job, pods=(stuck, *job.pods[1:])),)), "a")
    assert f"  1 of 2 trainers ready; 1 pod cannot start:\n    {stuck.name}: {trouble}\n" in text
    assert "cannot start" not in printed(make_snapshot(make_nodes(1), (job,)), "a")


def test_pods_with_the_same_cause_are_named_in_one_line() -> None:
    job = make_job("a", max_trainers=8, trainers=8, on=("n000",))
    causes = ["no such image"] * 7 + ["no such path"]
    stuck = tuple(
        replace(pod, phase=PodPhase.PENDING, ready=False, container_message=cause)
        for pod, cause in zip(job.pods, causes, strict=True)
    )
    text = printed(make_snapshot(make_nodes(1), (replace(job, pods=stuck),)), "a")
    assert (text.count("no such image"), text.count("no such path")) == (1, 1)
    assert f"{stuck[4].name} and 2 more pods: no such image\n" in text


def test_what_keeps_a_job_from_working_comes_before_its_count_and_no_remedy_hides_it() -> None:
    job = make_job("a", max_trainers=1, trainers=1, on=("n000",))
    failing = Condition("Degraded", "True", "MasterFailing", "the glob matches no file", 0.0)
    for condition in (failing, replace(failing, status="False")):
        snapshot = make_snapshot(make_nodes(1), (replace(job, status=JobStatus(conditions=(condition,))),))
        text = printed(snapshot, "a")
        report = report_snapshot(snapshot, find_job(snapshot, "a", ""), "", LIMITS)
        body = json.loads(job_report_json(report, snapshot))
        is_degraded = condition.status == "True"
        assert ("  Degraded, MasterFailing: the glob matches no file\n" in text) is is_degraded
        assert ("raise spec.trainer.max-instance" in text) is not is_degraded
        assert body["degraded"] == (
            {"reason": "MasterFailing", "message": "the glob matches no file"} if is_degraded else None
        )
        assert bool(body["remedies"]) is not is_degraded


def test_pods_that_cannot_start_are_named_before_the_room_that_would_not_help() -> None:
    trouble = Condition("Degraded", "True", "PodCannotStart", "a-trainer-0 cannot start: no claim data", 0.0)
    job = make_job("a", max_trainers=50, trainers=2, on=("n000",))
    stuck = tuple(
        replace(p, phase=PodPhase.PENDING, ready=False, container_message="no claim data") for p in job.pods
    )
    for condition in (trouble, replace(trouble, status="False")):
        held = replace(job, pods=stuck, status=JobStatus(conditions=(condition,)))
        snapshot = make_snapshot(make_nodes(1), (held,))
        report = report_snapshot(snapshot, find_job(snapshot, "a", ""), "", LIMITS)
        assert report.decision.reason is Reason.PODS_NOT_STARTED
        first, second, *rest = printed(snapshot, "a").splitlines()
        is_degraded = condition.status == "True"
        assert first.endswith(", PodCannotStart" if is_degraded else ", PodsNotStarted")
        assert (second == "  Degraded, PodCannotStart: a-trainer-0 cannot start: no claim data") is is_degraded
        assert "  0 of 2 trainers ready; 2 pods cannot start:" in rest
        assert any("What would help" in line for line in rest) is not is_degraded


def test_the_text_reads_like_a_report() -> None:
    assert printed(world(), "a") == (
        "default/a: 0 now, 4 planned (min 1, max 6), InsufficientCapacity\n"
        "  4 of 6: cpu is full on node n000; default/b holds 38 % of it above its minimum (3 trainers); one more"
        " trainer would cost default/b 0.2 of fulfilment and leave it with less (0.4 against 0.8)\n"
        "\n"
        "Trainers\n"
        "  fair share 4 trainers, fulfilment 0.6\n"
        "  n000: 4 to start\n"
        "  QoS class Burstable\n"
        "\n"
        "Why not more\n"
        "  cpu is full on node n000: at most 0 cores free; a trainer requests 1 core\n"
        "  default/b holds 38 % of it above its minimum (3 trainers)\n"
        "  one more place for its trainer has a price of 0.2 of fulfilment; solved again with one more trainer:"
        " another job would fall below its fair share\n"
        "\n"
        "What would help, each on its own\n"
        "  - free 1 core more on node n000, or add a node that accepts its trainers\n"
        "  - take 1 trainer from default/b: lower its max-instance, or end that job\n"
        "\n"
        "Policy maxmin, as of 1970-01-01T00:16:40Z; nothing was changed.\n"
    )


def test_half_of_a_share_is_rounded_down() -> None:
    alone = make_snapshot(make_nodes(1), (make_job("a", min_trainers=1, max_trainers=4),))
    report = report_snapshot(alone, find_job(alone, "a", ""), "utility", LIMITS)
    assert report.fair_share == pytest.approx(2.5)
    print_job_report(report, alone, Console(file=(out := io.StringIO()), width=100))
    assert "  at least 2 trainers, fulfilment 1\n" in out.getvalue()


@pytest.mark.parametrize(
    ("cores", "says", "remedy"),
    [(2, "2 of 6: queue default uses 2 cores of its quota of 2 cores; a trainer requests 1 core\n", ""),
     (0, "does not run (min 2, max 6), QuotaReached", "lower spec.trainer.min-instance of this job")],
    ids=["runs", "cannot start"],
)  # fmt: skip
def test_a_job_that_its_quota_holds_reads_so_and_what_would_help(cores: int, says: str, remedy: str) -> None:
    alone = make_snapshot(make_nodes(1), (make_job("a", min_trainers=1 if cores else 2, max_trainers=6),))
    text = printed(alone, "a", Limits(quotas=(Quota("default", ((CPU, cores * 1000),)),)))
    assert says in text
    assert "QuotaReached" in text
    assert "  - raise the quota of queue default\n" in text, "the queue has no other job"
    assert remedy in text


@pytest.mark.parametrize(
    ("minimum", "more"),
    [(1, ", or lower max-instance of another job of that queue"), (3, "")],
    ids=["another above its minimum", "another at its minimum"],
)
def test_another_job_of_the_queue_is_a_remedy_only_above_its_minimum(minimum: int, more: str) -> None:
    jobs = (make_job("a", max_trainers=6), make_job("b", min_trainers=minimum, max_trainers=6))
    text = printed(make_snapshot(make_nodes(1), jobs), "a", Limits(quotas=(Quota("default", ((CPU, 4900),)),)))
    assert f"  - raise the quota of queue default{more}\n" in text


def test_a_job_that_fits_on_no_node_is_not_told_to_raise_a_quota() -> None:
    text = printed(
        make_snapshot(make_nodes(2), (make_job("a", cpu=9),)), "a", Limits(quotas=(Quota("default", ((CPU, 1),)),))
    )
    assert "Unschedulable" in text
    assert "quota" not in text


def test_a_job_with_a_minimum_of_one_is_not_told_to_lower_it() -> None:
    for least, expected in ((1, False), (2, True)):
        job = make_job("a", min_trainers=least)
        text = printed(make_snapshot(make_nodes(1), (job,)), "a", Limits(quotas=(Quota("default", ((CPU, 1),)),)))
        assert "QuotaReached" in text
        assert ("lower spec.trainer.min-instance" in text) is expected


@pytest.mark.parametrize("phase", [JobPhase.FAILED, JobPhase.SUCCEEDED])
def test_a_job_that_has_ended_is_headed_by_the_phase_and_the_reason_of_its_status(phase: JobPhase) -> None:
    status = JobStatus(phase=phase, reason="WhyItEnded", explanation="the job had 1 pod failure")
    lines = printed(make_snapshot(make_nodes(1), (replace(make_job("a"), status=status),)), "a").splitlines()
    assert lines[0] == f"default/a: {phase.value}, WhyItEnded"
    assert "  Stored in its status: the job had 1 pod failure" in lines


def test_a_job_that_waits_with_a_status_is_not_headed_by_its_end() -> None:
    job = replace(make_job("a", min_trainers=99, max_trainers=99), status=JobStatus(reason="Unschedulable"))
    assert printed(make_snapshot(make_nodes(1), (job,)), "a").startswith("default/a: does not run (min 99, max 99), ")


def test_what_the_controller_said_last_is_quoted_if_it_differs() -> None:
    snapshot = world()
    said = replace(snapshot.jobs[0], status=JobStatus(explanation="3 of 6: as it was"))
    assert "Stored in its status: 3 of 6: as it was" in printed(replace(snapshot, jobs=(said, snapshot.jobs[1])), "a")


def test_the_json_says_the_same_in_fields() -> None:
    body = json.loads(job_report_json(report_snapshot(world(), find_job(world(), "a", ""), "", LIMITS), world()))
    assert (body["namespace"], body["name"], body["target"], body["reason"]) == (
        "default",
        "a",
        4,
        "InsufficientCapacity",
    )
    assert body["nodes"] == [{"node": "n000", "pool": "", "stay": 0, "come": 4, "go": 0}]
    assert body["full"] == [
        {"resource": "cpu", "where": "node n000", "nodes": 1, "free": "0 cores", "asked": "1 core", "proved": True}
    ]
    assert body["holders"] == [{"namespace": "default", "name": "b", "trainers": 3, "part": 0.375}]
    assert body["oneMore"]["result"] == "below_shares"
    assert len(body["remedies"]) == 2


NAMES = tuple(make_job(name, namespace=home) for home, name in (("ads", "ctr"), ("ads", "rank"), ("vision", "ctr")))
NAMED = make_snapshot((), NAMES)


@pytest.mark.parametrize(
    ("name", "namespace", "found"),
    [
        ("rank", "", "ads/rank"),
        ("ctr", "ads", "ads/ctr"),
        ("vision/ctr", "", "vision/ctr"),
        ("ads/ctr", "ads", "ads/ctr"),
    ],
)
def test_a_job_is_found_by_its_name_where_one_has_it(name: str, namespace: str, found: str) -> None:
    assert str(find_job(NAMED, name, namespace)) == found


@pytest.mark.parametrize(
    ("name", "namespace", "says"),
    [
        ("ctr", "", r"2 jobs are named ctr, in ads, vision; choose one with -n NAMESPACE"),
        ("rnak", "", r"TrainingJob rnak does not exist; did you mean ads/rank\?"),
        ("ctr", "audio", r"TrainingJob audio/ctr does not exist; did you mean ads/ctr or vision/ctr\?"),
        (
            "job.batch/rnak",
            "ads",
            r'^ads/job.batch/rnak does not exist or has no annotation paddlepaddle.org/elastic: "true"; the cluster',
        ),
        ("zzzzz", "", r"TrainingJob zzzzz does not exist; the cluster has ads/ctr, ads/rank, vision/ctr"),
        ("ads/ctr", "vision", r"ads/ctr and -n vision name different namespaces; give only one of them"),
    ],
)
def test_a_job_that_is_not_there_or_not_alone_is_answered_with_names(name: str, namespace: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        find_job(NAMED, name, namespace)


def test_a_job_of_another_kind_is_offered_to_who_left_out_its_kind() -> None:
    snapshot = make_snapshot((), (make_job("job.batch/a", namespace="ads"), make_job("another")))
    with pytest.raises(ConfigError, match=r"TrainingJob a does not exist; did you mean ads/job\.batch/a\?"):
        find_job(snapshot, "a", "")


def test_a_cluster_without_jobs_says_so() -> None:
    with pytest.raises(ConfigError, match="the cluster has no TrainingJob"):
        find_job(make_snapshot(()), "ctr", "")


async def test_a_live_cluster_is_looked_at_once_and_only_read() -> None:
    api = FakeApi()
    api.put("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}})
    trainer = {"min-instance": 1, "max-instance": 1, "resources": {"requests": {"cpu": "1"}}}
    job = {"metadata": {"name": "ctr", "namespace": "ads"}, "spec": {"trainer": trainer}}
    api.put("/apis/paddlepaddle.org/v1/trainingjobs", job)
    async with connected(api) as session:
        snapshot, left_out = await look(session, FakeClock(5000.0))
    assert [str(j.key) for j in snapshot.jobs] == ["ads/ctr"]
    assert snapshot.observed_at_s >= 5000.0
    assert list(left_out) == []
    assert {method for method, _, _ in api.requests} == {"GET"}


async def test_a_cluster_that_refuses_is_an_error_that_names_the_rights() -> None:
    api = FakeApi()
    api.faults += [refusal(403, "Forbidden", "nodes is forbidden")] * 1000
    async with connected(api) as session:
        with pytest.raises(TemporaryError, match=r"cannot be read: .*forbidden.*your right to list .* -f FILE"):
            await look(session, FakeClock())


def test_nodes_that_its_trainers_avoid_are_named_with_the_jobs_that_failed_there() -> None:
    trouble = NodeTrouble("n001", 990.0, confirmed=True)
    jobs = tuple(replace(make_job(name), status=JobStatus(troubles=(trouble,))) for name in "ab")
    snapshot = make_snapshot(make_nodes(4), (*jobs, make_job("c", max_trainers=40)))
    limits = Limits(nodes=NodeLimits(avoid_after=2))
    line = "  Avoids node n001 until 1970-01-01T00:26:30Z: trainers of default/a and default/b failed or hung there\n"
    assert line in printed(snapshot, "c", limits)
    assert "Avoids" not in printed(snapshot, "c")
    report = report_snapshot(snapshot, find_job(snapshot, "c", ""), "", limits)
    assert not any(one.node == "n001" for one in report.by_node)
    assert json.loads(job_report_json(report, snapshot))["avoided"] == [
        {"node": "n001", "until": "1970-01-01T00:26:30Z", "jobs": ["default/a", "default/b"]}
    ]


def test_trainers_without_a_node_are_listed_so() -> None:
    job = make_job("a", trainers=2, min_trainers=1, max_trainers=2, on=("n000", ""))
    job = replace(
        job, pods=tuple(replace(p, phase=PodPhase.RUNNING if p.node else PodPhase.PENDING) for p in job.pods)
    )
    assert "  no node yet: 1 stay\n" in printed(make_snapshot(make_nodes(1), (job,)), "a")
