"""PyTorch trainers that train in step, as processes; `make torch-test` runs these tests."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch

from benchmarks.elastic_node import EVENTS, NodeRun
from benchmarks.elastic_node import Run as NodeResult
from benchmarks.elastic_torch import ElasticRun, Run, lost_seconds
from benchmarks.time_to_accuracy import PlayedRun, course_of
from edl.ledger.group_values import GroupSettings
from example.torch_elastic.local import LocalElasticJob
from example.torch_elastic.train import fingerprint, network


def run(folder: Path, *, trainers: int, resizes: int = 0, kills: int = 0) -> Run:
    folder.mkdir()
    with ElasticRun(
        folder, steps=600, resizes=resizes, kills=kills, trainers=trainers, seed=3, pace_s=0.02, logical_ranks=3
    ) as job:
        return job.measure()


def test_the_weights_do_not_depend_on_how_many_trainers_come_leave_and_are_killed(tmp_path: Path) -> None:
    quiet = run(tmp_path / "quiet", trainers=1)
    stormy = run(tmp_path / "stormy", trainers=3, resizes=3, kills=1)
    assert len(quiet.weights) == 1
    assert stormy.weights == quiet.weights
    assert {step[4] for step in stormy.steps} > {3}
    for result in (quiet, stormy):
        assert result.problems == []
        assert result.audit["ok"]


def test_a_stopped_trainer_holds_the_others_up_for_the_time_limit_of_the_master(tmp_path: Path) -> None:
    with ElasticRun(
        tmp_path, steps=600, resizes=0, kills=0, stops=1, trainers=2, seed=3, pace_s=0.02, logical_ranks=2
    ) as job:
        found = job.measure()
    assert found.problems == []
    assert found.audit["ok"]
    assert [change.kind for change in found.changes] == ["stop", "continue"]
    (lost_s,) = lost_seconds(found, "stop")
    assert GroupSettings().unwatched_s - 1 < lost_s < 20, "that is not much less than the 30 s of a collective"
    assert {step[4] for step in found.steps} == {1, 2}, "the trainer does not come back"
    assert len(found.weights) == 1


def test_a_lost_node_and_kills_cost_no_record_and_change_no_bit(tmp_path: Path) -> None:
    runs: list[NodeResult] = []
    for name, trainers, events, pace_s in (("calm", 2, (), 0.0), ("stormy", 1, EVENTS, 0.05)):
        (tmp_path / name).mkdir()
        with NodeRun(
            tmp_path / name, seed=1, epochs=40, trainers=trainers, events=events, pace_s=pace_s, logical_ranks=4
        ) as job:
            runs.append(job.measure())
    calm, stormy = runs
    assert calm.problems == []
    assert stormy.problems == []
    assert [one.event for one in stormy.happened] == [*EVENTS]
    assert stormy.endings == calm.endings, "the weights or the accuracy depend on who trained"
    node_lost = [event.how for event in EVENTS].index("stop")
    assert stormy.lost_s(node_lost) > GroupSettings().unwatched_s - 1, "the others went on before they could know"


def test_trainers_follow_the_counts_beside_serving_waves_and_no_step_is_made_again(tmp_path: Path) -> None:
    for name, sizes in (("elastic", {1, 3, 4}), ("static-max", {4})):
        course = [count for count in course_of(name, waves=1) if count.at_s < 25]
        (tmp_path / name).mkdir()
        with PlayedRun(tmp_path / name, seed=2, epochs=10, record_s=0.006, course=course) as job:
            found = job.measure()
        assert found.problems == []
        assert found.repeated == 0, "a planned change lost steps"
        assert [count.trainers for count in found.played] == [count.trainers for count in course]
        assert {step["size"] for step in found.steps} >= sizes
        for (_, trainers), (until_s, _) in itertools.pairwise(found.played):
            trained = [step["size"] for step in found.steps if step["at_s"] <= until_s]
            assert not trainers or trained[-1] == trainers, f"{trainers} trainers were planned"


def test_the_example_trains_while_trainers_come_and_go(tmp_path: Path) -> None:
    changes = ["kill", "join", "leave"]
    with LocalElasticJob(tmp_path, trainers=2, epochs=24, changes=changes, seed=1, step_s=0.05) as job:
        found = job.train()
        results = [line.split() for line in job.results()]
    assert found["ok"]
    assert job.played == changes
    assert len({line[7] for line in results}) == 1, "the trainers have different models"
    assert min(float(line[1]) for line in results) > 0.9
    falls = [(float(line[-3]), float(line[-1])) for line in results]
    assert any(last < first / 4 for first, last in falls), falls
    models = tmp_path / "models"
    assert list(models.glob("checkpoint-*.pt"))
    trained = network()
    trained.load_state_dict(torch.load(models / "model.pt", weights_only=True))
    assert {line[7].rstrip(";") for line in results} == {fingerprint(trained)}, "the file is not the trained model"
