"""The whole mission in real containers: the example trains, whatever is killed, and tells what it did."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.cluster.running import RealCluster
from tests.real.mission import (
    EXAMPLE,
    Journal,
    Recorder,
    assert_each_once,
    installed,
    pods,
    score,
    status,
)

JOB = "fit-flights"
ENDED = {"Succeeded", "Failed"}
SLOWEST_S = 180


@pytest.fixture(scope="module")
def mission(real_cluster: RealCluster) -> Iterator[RealCluster]:
    """The cluster with the controller at work."""
    with installed(real_cluster) as cluster:
        yield cluster


@pytest.fixture
def journal(mission: RealCluster, tmp_path: Path) -> Iterator[Journal]:
    """The next journal."""
    made = Journal(mission, tmp_path / "journal")
    yield made
    mission.kubectl("delete", "tj", "--all", timeout_s=90)
    made.remove()


@pytest.fixture
def recorder(mission: RealCluster, tmp_path: Path) -> Iterator[Recorder]:
    made = Recorder(mission, tmp_path)
    yield made
    made.stop()


def test_the_example_trains_as_the_tutorial_says(mission: RealCluster, journal: Journal, recorder: Recorder) -> None:
    recorder.start("watch", "get", "tj", "-w")
    mission.kubectl("create", "-f", str(EXAMPLE / "job.yaml"))
    for role, count in (("master", 1), ("pserver", 2)):
        mission.kube.wait_until(
            lambda role=role, count=count: len(pods(mission, JOB, role)) == count,  # type: ignore[misc]
            60,
            f"{count} {role}s run",
        )
        for index in range(count):
            recorder.start(f"{role}-{index}", "logs", "-f", f"{JOB}-{role}-{index}")
    mission.kube.wait_until(lambda: status(mission, JOB).get("phase") in ENDED, SLOWEST_S, "it ends")

    assert status(mission, JOB)["phase"] == "Succeeded", status(mission, JOB)
    assert score(mission, JOB) >= 0.76
    assert_each_once(journal.audit())
    assert_logs_read_well(mission, recorder)
    assert_the_story_is_told(mission, recorder)


def assert_logs_read_well(mission: RealCluster, recorder: Recorder) -> None:
    trainer = mission.kubectl("logs", f"{JOB}-trainer-0")
    print(trainer)
    assert trainer.startswith(f"label selector: paddle-job-pserver={JOB}, desired: 2\n")
    assert re.search(r"^epoch 0: 250 batches by this trainer, loss 0\.[0-9]{3}$", trainer, re.MULTILINE)
    assert trainer.endswith("job returned 0\n")
    for index in range(2):
        pserver = recorder.words(f"pserver-{index}")
        print(pserver)
        assert f"part {index}: checkpoint 0, after 0 pushes\n" in pserver
        assert f"part {index} of 2: {(1899, 1898)[index]} weights, on port {7164 + index}\n" in pserver
    print(recorder.words("master-0"))


def assert_the_story_is_told(mission: RealCluster, recorder: Recorder) -> None:
    told = recorder.words("watch")
    print(told)
    phases = re.findall(rf"^{JOB} +([A-Z][a-z]+) ", told, re.MULTILINE)
    seen = [phase for before, phase in zip(["", *phases], phases, strict=False) if phase != before]
    assert seen[0] in {"Pending", "Creating"}
    assert "Running" in seen
    assert seen[-1] == "Succeeded"
    described = mission.kubectl("describe", "tj", JOB)
    print(described)
    assert re.search(r"Normal +Admitted ", described)
    assert re.search(r"Normal +Succeeded ", described)
