"""Queues in `edl plan` and `edl explain`: what is not limited, not valid or not known is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.saved import CLUSTER, NEW_JOB


def test_a_queue_without_a_quota_is_reported_on_stderr(run: Run, cluster: str, tmp_path: Path) -> None:
    new, queues = tmp_path / "new.yaml", tmp_path / "queues.yaml"
    new.write_text(NEW_JOB.replace("spec: {", "spec: {queue: blue, "))
    queues.write_text("blu: {cpu: 1}\n")
    code, out, err = run("plan", "-f", cluster, "-f", str(new), "--queues", str(queues), "-o", "json")
    assert (code, len(json.loads(out)["decisions"])) == (0, 2)
    assert err == (
        f"edl: queue blue (job ads/new) is not in --queues {queues}, so it has no quota\n"
        f"edl: queue blu of --queues {queues} has no job, so its quota limits nothing; jobs that name no queue are"
        " in queue default, which has no quota\n"
    )


def test_without_a_file_of_quotas_the_files_may_lack_the_queue_objects(
    run: Run, cluster: str, tmp_path: Path
) -> None:
    new = tmp_path / "new.yaml"
    new.write_text(NEW_JOB.replace("spec: {", "spec: {queue: blue, "))
    code, _, err = run("plan", "-f", cluster, "-f", str(new))
    assert (code, err) == (
        0,
        "edl: job ads/new is in queue blue, but the files have no Queue object, so no quota is counted; if the"
        " cluster has queues, add queues.paddlepaddle.org to kubectl get\n",
    )


QUEUE = "apiVersion: paddlepaddle.org/v1\nkind: Queue\nmetadata: {name: red}\nspec: {nominalQuota: {cpu: 1}}\n"


@pytest.mark.parametrize("command", ["plan", "explain ads/new"])
def test_a_job_in_a_queue_without_an_object_is_reported_if_there_are_objects(
    run: Run, cluster: str, tmp_path: Path, command: str
) -> None:
    new, tenants = tmp_path / "new.yaml", tmp_path / "tenants.yaml"
    new.write_text(NEW_JOB.replace("spec: {", "spec: {queue: blue, ") + f"---\n{QUEUE}")
    flags = (*command.split(), "-f", cluster, "-f", str(new))
    code, _, err = run(*flags)
    assert (code, err) == (
        0,
        "edl: queue blue (job ads/new) has no Queue object, so it has no quota; create Queue blue, correct"
        " spec.queue, or write unknown-queues: refuse in the file of --tenants\n",
    )
    for other in (QUEUE.replace("red", "blue"), "blue: {cpu: 3}"):
        more = tmp_path / "more.yaml"
        more.write_text(other)
        assert run(*flags, "-f" if "kind" in other else "--queues", str(more))[::2] == (0, "")
    tenants.write_text('unknown-queues: refuse\nnamespaces: {"*": {}}\n')
    assert run(*flags, "--tenants", str(tenants))[::2] == (0, "")


def test_a_queue_that_is_not_valid_exits_with_2_and_no_plan(run: Run, cluster: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(QUEUE.replace("cpu: 1", "cpu: -1"))
    code, out, err = run("plan", "-f", cluster, "-f", str(broken))
    assert (code, out) == (2, "")
    assert err == (
        f"edl: {broken}: Queue red is not valid: nominalQuota: the amount -1 of cpu is negative; write 0 or more\n"
    )
    broken.write_text(QUEUE.replace("{name: red}", "{name: red, generation: many}"))
    code, out, err = run("plan", "-f", cluster, "-f", str(broken))
    assert (code, out, err.startswith(f"edl: {broken}: Queue red is not valid: Expected")) == (2, "", True)


def test_a_quota_without_borrowing_says_what_whole_pods_fill_and_what_would_lift_it(run: Run, tmp_path: Path) -> None:
    saved, queues = tmp_path / "saved.yaml", tmp_path / "queues.yaml"
    saved.write_text(CLUSTER.replace("spec:\n", "spec:\n  queue: red\n"))
    own = QUEUE.replace("cpu: 1}", "cpu: 3}, borrowingLimit: {cpu: 0}")
    queues.write_text(f"{own}---\n{QUEUE.replace('red', 'default')}")
    code, out, _ = run("explain", "ctr", "-n", "ads", "-f", str(saved), "-f", str(queues))
    assert code == 0
    assert (
        "2 of 3: queue red uses 2.1 cores of its share of 2.1 cores; a trainer requests 1 core; the queue has 3 cores"
        " of its own, of which whole pods fill 2.1 cores; its borrowing limit is 0 cores\n"
    ) in out
    assert "  - raise nominalQuota of queue red, or its borrowingLimit\n" in out


def test_a_field_that_a_queue_does_not_have_is_reported_on_stderr(run: Run, cluster: str, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    new.write_text(QUEUE.replace("spec: {", "spec: {borrowLimit: {cpu: 1}, "))
    code, _, err = run("plan", "-f", cluster, "-f", str(new))
    assert (code, err) == (
        0,
        "edl: queue red: spec.borrowLimit is not a field of a Queue, and edl ignores it; did you mean"
        " borrowingLimit?\n",
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("status: {phase: Running, reason: QuotaReached}", "in queue default and its status says QuotaReached, but"),
        ("status: {phase: Running, reason: Growing}\nspec: {queue: blue,", "in queue blue, but"),
        ("status: {phase: Running, reason: Growing}", ""),
    ],
)
def test_files_without_the_queues_of_a_saved_job_are_reported(
    run: Run, cluster: str, tmp_path: Path, fields: str, words: str
) -> None:
    new, blue = tmp_path / "new.yaml", tmp_path / "blue.yaml"
    new.write_text(NEW_JOB.replace("spec: {", fields if "spec" in fields else f"{fields}\nspec: {{"))
    blue.write_text(QUEUE.replace("red", "blue"))
    wanted = (
        f"edl: job ads/new is {words} the files have no Queue object, so no quota is counted; if the cluster has"
        " queues, add queues.paddlepaddle.org to kubectl get\n"
    )
    for command in (("plan",), ("explain", "ads/new")):
        flags = (*command, "-f", cluster, "-f", str(new))
        assert run(*flags)[::2] == (0, wanted if words else "")
        assert run(*flags, "-f", str(blue))[::2] == (0, "")
