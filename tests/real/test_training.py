"""The example trains in real containers while trainers, pservers, the master and the controller are killed."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.cluster.images import TRAINER_IMAGE
from tests.real.cluster.running import RealCluster
from tests.real.faults import GREEDY, Faults
from tests.real.mission import (
    EXAMPLE,
    FLIGHTS_IMAGE,
    RECORDS,
    Journal,
    Recorder,
    assert_each_once,
    pods,
    score,
    status,
)

Object = dict[str, Any]
JOB, WILD = "fit-flights", "wild-flights"
ENDED = {"Succeeded", "Failed"}
SLOWEST_S = 180
OVERTAKEN = 2  # trainers that were killed may have been on their way out for serving by then
UNDISTURBED, NOISE = (0.7783, 0.7800), 0.002  # AUC of five seeds: docs/tutorial.md
# Each push, and so each batch, takes that much longer; a trainer that finds that file takes more memory than it may.
SLOWLY = """python -c '
import os, time
from fit_flights import fit
push = fit.Model.push
def slowly(*all):
    time.sleep({pause_s})
    kept = b"x" * (1 << 30) if os.path.exists("{greedy}") else b""
    return push(*all)
fit.Model.push = slowly
fit.main()
'"""
# (pause of each push, absence of a kubelet): at this pace the faults are over before the data is.
SHORT_S, FULL_S = (0.1, 15.0), (0.3, 120.0)


@pytest.fixture(scope="module")
def mission(controller: RealCluster) -> RealCluster:
    """The cluster with the controller at work, and the image of the example."""
    controller.build_image(FLIGHTS_IMAGE, context=EXAMPLE, base=TRAINER_IMAGE)
    return controller


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


def has_pods(mission: RealCluster, role: str, count: int) -> bool:
    return len(pods(mission, JOB, role)) == count


def test_the_example_trains_as_the_tutorial_says(mission: RealCluster, journal: Journal, recorder: Recorder) -> None:
    recorder.start("watch", "get", "tj", "-w")
    mission.kubectl("create", "-f", str(EXAMPLE / "job.yaml"))
    for role, count in (("master", 1), ("pserver", 2)):
        mission.kube.wait_until(
            functools.partial(has_pods, mission, role, count),
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
    assert_the_life_of_the_job_is_recorded(mission, recorder)


def assert_logs_read_well(mission: RealCluster, recorder: Recorder) -> None:
    trainer = mission.kubectl("logs", f"{JOB}-trainer-0")
    print(trainer)
    assert trainer.startswith(f"waiting for 2 running pods (selector paddle-job-pserver={JOB})\n")
    assert re.search(r"^epoch 0: 250 batches by this trainer, loss 0\.[0-9]{3}$", trainer, re.MULTILINE)
    assert trainer.endswith("the entrypoint exited with code 0\n")
    for index in range(2):
        pserver = recorder.words(f"pserver-{index}")
        print(pserver)
        assert f"part {index}: loaded checkpoint 0, after 0 pushes\n" in pserver
        assert f"part {index} of 2: serving {(1899, 1898)[index]} weights on port {7164 + index}\n" in pserver
    print(recorder.words("master-0"))


def assert_the_life_of_the_job_is_recorded(mission: RealCluster, recorder: Recorder) -> None:
    output = recorder.words("watch")
    print(output)
    phases = re.findall(rf"^{JOB} +([A-Z][a-z]+) ", output, re.MULTILINE)
    seen = [phase for before, phase in zip(["", *phases], phases, strict=False) if phase != before]
    assert seen[0] in {"Pending", "Creating"}
    assert "Running" in seen
    assert seen[-1] == "Succeeded"
    described = mission.kubectl("describe", "tj", JOB)
    print(described)
    assert re.search(r"Normal +Admitted ", described)
    assert re.search(r"Normal +Succeeded ", described)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With `--campaign full`, five seeds."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(5 if metafunc.config.getoption("--campaign") == "full" else 1))


def wild(seed: int, pause_s: float) -> Object:
    """The example's job at a pace at which faults meet it; its trainers ask for more."""
    body: Object = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    body["metadata"]["name"] = WILD
    spec = body["spec"]
    spec["backoffLimit"] = 1000
    spec["dataset"]["seed"] = seed
    spec["trainer"]["entrypoint"] = SLOWLY.format(pause_s=pause_s, greedy=GREEDY)
    spec["trainer"]["resources"] = {
        "requests": {"cpu": "400m", "memory": "128Mi"},
        "limits": {"cpu": "1", "memory": "256Mi"},
    }
    return body


@pytest.mark.timeout(1200)
def test_it_survives_everything_in_one_run(
    mission: RealCluster, journal: Journal, recorder: Recorder, request: pytest.FixtureRequest, seed: int
) -> None:
    """With `--campaign full` the kubelet is away for two minutes, and training takes as much longer."""
    pause_s, absence_s = FULL_S if request.config.getoption("--campaign") == "full" else SHORT_S
    recorder.start("watch", "get", "tj", "-w")
    recorder.start("events", "get", "events", "--watch-only")
    mission.kube.create(wild(seed, pause_s))
    faults = Faults(mission, WILD, absence_s, seed)
    faults.do_all()
    assert status(mission, WILD)["dataset"]["done"] < RECORDS, "the faults met a job at work"
    mission.kube.wait_until(lambda: status(mission, WILD).get("phase") in ENDED, SLOWEST_S, "it ends")
    print(recorder.words("watch"), recorder.words("events"))

    ended = status(mission, WILD)
    assert ended["phase"] == "Succeeded", ended
    assert faults.failures() - OVERTAKEN <= ended["failures"] <= faults.failures()
    report = journal.audit()
    print(report)
    assert_each_once(report)
    assert report["epochs"][0]["redispatched"] > 0
    auc = score(mission, WILD)
    print(f"seed {seed}: AUC {auc}, {dict(faults.killed)}, {ended['failures']} failures")
    assert UNDISTURBED[0] - NOISE <= auc <= UNDISTURBED[1] + NOISE
