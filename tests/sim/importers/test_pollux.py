"""Scenarios from the files of the Pollux artifact."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl.errors import ConfigError
from edl.sim.importers.pollux import StepTimes, iterations, scenario_of_workload, throughput
from edl.sim.scenario import Scenario
from edl.worker.goodput.rates import efficiency


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    model = tmp_path / "profiles" / "toy"
    model.mkdir(parents=True)
    (tmp_path / "workloads").mkdir()
    rows = ["placement,local_bsz,step_time,sync_time", "1,32,0.5,0", "1,64,1.0,0", "2,32,0.6,0.1", "2,64,1.1,0.1"]
    rows += ["11,32,9.0,8.0", "44,32,0.8,0.3"]
    (model / "placements.csv").write_text("\n".join(rows) + "\n")
    scale = ["num_nodes,num_replicas,local_bsz,step_time,sync_time", "8,8,32,2.0,1.0", "6,12,32,1.0,0.4"]
    (model / "scalability.csv").write_text("\n".join(scale) + "\n")
    (model / "validation-64.csv").write_text("progress,iteration\n10,10\n20,20\n")
    (model / "validation-256.csv").write_text("progress,iteration\n10,3\n20,6\n")
    jobs = ["name,time,application,num_replicas,batch_size", "a,5,toy,2,256", "b,9,toy,2,256", "c,7,toy,12,64"]
    (tmp_path / "workloads" / "workload-1.csv").write_text("\n".join(jobs) + "\n")
    return tmp_path


def test_speed_is_that_of_the_fewest_nodes(artifact: Path) -> None:
    found = dict(throughput(artifact / "profiles" / "toy", 64))
    assert found[1] == 64.0
    assert found[2] == pytest.approx(64 / 0.6, abs=0.01), "both GPUs on one node, not on two"
    assert 8 not in found, "a batch of 64 is too small for 8 GPUs of at least 32 samples"


def test_a_batch_that_is_too_large_for_a_gpu_takes_several_steps_and_one_exchange() -> None:
    times = StepTimes(((32.0, 0.6, 0.1), (64.0, 1.1, 0.1)))
    assert times.iteration_s(48) == pytest.approx(0.85)
    assert times.iteration_s(128) == pytest.approx(2 * 1.1 - 0.1)


def test_work_is_what_the_validation_run_took(artifact: Path) -> None:
    assert iterations(artifact / "profiles" / "toy", 256) == 6
    assert iterations(artifact / "profiles" / "toy", 512) == 3, "the nearest size, scaled"


def test_a_workload_becomes_a_scenario(artifact: Path) -> None:
    scenario = Scenario.model_validate(scenario_of_workload(artifact, "workload-1"))
    assert [(group.name, group.count, group.fixed) for group in scenario.jobs] == [
        ("toy-64-12", 1, 2),
        ("toy-256-2", 2, 2),
    ]
    assert scenario.jobs[1].arrival.times_s == (5.0, 9.0)
    assert scenario.jobs[1].work == 6 * 256


def test_with_batches_a_model_becomes_one_group(artifact: Path) -> None:
    scenario = Scenario.model_validate(scenario_of_workload(artifact, "workload-1", batches=True))
    (group,) = scenario.jobs
    assert (group.name, group.count, group.work) == ("toy", 3, 20 * 64)
    assert group.arrival.times_s == (5.0, 7.0, 9.0)
    assert group.batch is not None
    assert group.batch.base == 64
    assert [batch for batch, _ in group.batch.speeds] == [64, 76, 91, 108, 256]
    assert dict(group.batch.speeds[0][1]) == dict(throughput(artifact / "profiles" / "toy", 64))


def test_the_noise_is_that_with_which_the_run_made_its_progress(artifact: Path) -> None:
    """20 iterations of 64 are as good as 6 of 256: an efficiency of 20 x 64 / (6 x 256) = 5/6."""
    scenario = Scenario.model_validate(scenario_of_workload(artifact, "workload-1", batches=True))
    batch = scenario.jobs[0].batch
    assert batch is not None
    assert len(batch.noise) == 10
    for _, scales in batch.noise:
        assert scales[0] == 1.0
        assert efficiency(scales[-1], 64, 256) == pytest.approx(5 / 6, abs=0.001)


def test_a_folder_that_is_no_artifact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give the folder with the workloads and profiles"):
        scenario_of_workload(tmp_path, "workload-1")
