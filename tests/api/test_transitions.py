"""Which changes of a job the API server refuses, by the status that it has stored."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from edl.api.crd import render_schema
from edl.api.environment import environment
from edl.api.v1 import parse_job
from edl.model.names import Role
from edl.sandbox.apiserver.schema.rules import rule_errors
from edl.sandbox.apiserver.schema.structural import default
from tests.worlds.hostile.manifests import make_manifest

Object = dict[str, Any]
SCHEMA = render_schema()
RUNNING: Object = {"phase": "Running", "trainer": {"desired": 2, "ready": 2, "pending": 0}}
LEAVING: Object = {"phase": "Suspended", "master": {"desired": 0, "ready": 1, "pending": 0}}
SUSPENDED: Object = {"phase": "Suspended", "trainer": {"desired": 0, "ready": 0, "pending": 0}}
BEGUN: Object = {**SUSPENDED, "dataset": {"epoch": 0, "done": 40, "total": 1000}}
IN_STEP: Object = {"globalBatch": 256}
DETERMINISTIC: Object = {"globalBatch": 256, "deterministic": True}
DATA: Object = {"source": "index:1000"}


def refusals(status: Object, before: Object, after: Object) -> list[str]:
    """What the API server says if `after` replaces fields of the spec that `before` has set."""
    old = make_manifest(**before)
    old["status"] = status
    new = copy.deepcopy(old)
    for path, value in after.items():
        *parents, last = path.split(".")
        target = new["spec"]
        for name in parents:
            target = target.setdefault(name, {})
        if value is None:
            target.pop(last)
        else:
            target[last] = value
    for version in (old, new):
        default(SCHEMA, version)
    return [error.message for error in rule_errors(SCHEMA, new, old)]


@pytest.mark.parametrize("status", [RUNNING, LEAVING])
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"elasticity": DETERMINISTIC}, {"trainer.max-instance": 4}, "trainer.max-instance of a deterministic job"),
        ({"elasticity": DETERMINISTIC}, {"trainer.max-instance": 40}, "trainer.max-instance of a deterministic job"),
        ({"elasticity": DETERMINISTIC}, {"elasticity.deterministic": False}, "elasticity.deterministic cannot"),
        ({"elasticity": IN_STEP}, {"elasticity.deterministic": True}, "elasticity.deterministic cannot"),
        ({"elasticity": IN_STEP}, {"elasticity.globalBatch": 128}, "elasticity.globalBatch cannot"),
        ({"elasticity": IN_STEP}, {"elasticity.globalBatch": None}, "elasticity.globalBatch cannot"),
        ({}, {"elasticity.globalBatch": 128}, "elasticity.globalBatch cannot"),
        ({"elasticity": IN_STEP}, {"elasticity.maxGlobalBatch": 1024}, "elasticity.maxGlobalBatch cannot"),
        ({"dataset": DATA}, {"dataset.source": "index:2000"}, "dataset and its epochs"),
        ({"dataset": DATA}, {"dataset.epochs": 3}, "dataset and its epochs"),
        ({"dataset": DATA}, {"dataset.seed": 3}, "dataset and its epochs"),
        ({"dataset": DATA}, {"dataset.shardSize": 3}, "dataset and its epochs"),
        ({"dataset": DATA}, {"dataset.maxQuarantinedFraction": 0.5}, "dataset and its epochs"),
        ({"dataset": DATA}, {"dataset": None}, "dataset and its epochs"),
        ({}, {"dataset": DATA}, "dataset and its epochs"),
        ({"dataset": DATA}, {"passes": 3}, "dataset and its epochs"),
    ],
)
def test_what_the_trainers_share_is_frozen_while_pods_exist(
    status: Object, before: Object, after: Object, words: str
) -> None:
    (message,) = refusals(status, before, after)
    assert words in message
    assert "cannot change while the job has pods" in message
    assert "set spec.suspend: true first" in message


@pytest.mark.parametrize("status", [{}, SUSPENDED])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"elasticity": DETERMINISTIC}, {"trainer.max-instance": 40}),
        ({"elasticity": IN_STEP}, {"elasticity.globalBatch": 128}),
        ({"dataset": DATA}, {"dataset.epochs": 3}),
    ],
)
def test_it_may_change_without_pods(status: Object, before: Object, after: Object) -> None:
    assert refusals(status, before, after) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"elasticity": DETERMINISTIC}, {"trainer.instances": 3}),
        ({"elasticity": DETERMINISTIC}, {"trainer.min-instance": 1}),
        ({"elasticity": DETERMINISTIC}, {"elasticity.cooldownSeconds": 5}),
        ({"elasticity": DETERMINISTIC}, {"suspend": True}),
        ({"elasticity": IN_STEP}, {"trainer.max-instance": 40}),
        ({}, {"trainer.max-instance": 40}),
        ({}, {"elasticity.cooldownSeconds": 5}),
        ({}, {"passes": 3}),
        ({"dataset": {**DATA, "epochs": 2}}, {"passes": 3}),
        ({"dataset": DATA}, {"dataset.onLedgerLost": "RestartEpoch"}),
        ({"dataset": DATA}, {"dataset.epochs": 1}),
    ],
)
def test_the_rest_may_change_while_it_runs(before: Object, after: Object) -> None:
    assert refusals(RUNNING, before, after) == []


@pytest.mark.parametrize("field", ["source", "epochs"])
def test_a_data_set_stays_once_training_has_begun(field: str) -> None:
    """The journal of the master outlives the pods, and the master refuses another data set."""
    (message,) = refusals(BEGUN, {"dataset": DATA}, {f"dataset.{field}": {"source": "index:9", "epochs": 3}[field]})
    assert "cannot change after training has begun" in message
    assert "create another job" in message


def test_every_pod_of_a_deterministic_job_has_the_same_logical_ranks() -> None:
    """The number is `max-instance`, which is why that must not change."""
    manifest = make_manifest(elasticity=DETERMINISTIC)
    job = parse_job(manifest)
    values = {row["name"]: row.get("value") for row in environment(job, Role.TRAINER, 0)}
    assert values["EDL_LOGICAL_RANKS"] == str(manifest["spec"]["trainer"]["max-instance"])
    assert refusals(
        RUNNING, {"elasticity": DETERMINISTIC}, {"trainer.max-instance": int(values["EDL_LOGICAL_RANKS"]) + 1}
    )
