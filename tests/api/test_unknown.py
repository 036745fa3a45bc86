"""Fields that the resource does not have are named, wherever they stand, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from edl.api.unknown import unknown_fields
from edl.api.v1 import parse_job

EXAMPLES = sorted((Path(__file__).parents[2] / "example").rglob("*.yaml"))


def job(**spec: Any) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "1Gi"}
    trainer = {"min-instance": 1, "max-instance": 1, "resources": {"requests": amounts}, **spec.pop("trainer", {})}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "1"},
        "status": {"anything": 1},
        "spec": {"image": "x", "trainer": trainer, **spec},
    }


def said(body: dict[str, Any]) -> list[str]:
    return list(unknown_fields(parse_job(body), body))


@pytest.mark.parametrize(
    ("body", "path", "remedy"),
    [
        (job(trainers={"x": 1}), "spec.trainers", "trainer may be meant"),
        (job(trainer={"max_instance": 3}), "spec.trainer.max_instance", "max-instance may be meant"),
        (job(colour="blue"), "spec.colour", "take it out, or correct its name"),
        (
            job(policies=[{"event": "PodFailed", "action": "RestartJob", "when": "now"}]),
            "spec.policies[0].when",
            "take it out, or correct its name",
        ),
    ],
)
def test_an_unknown_field_is_named_with_what_may_be_meant(body: dict[str, Any], path: str, remedy: str) -> None:
    assert said(body) == [f"{path} is no field of a TrainingJob, and what it says is dropped; {remedy}"]


def test_what_a_pod_template_says_is_for_kubernetes_to_judge() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["h"]}]}}
    assert said(job(trainer={"template": template}, volumes=[{"name": "v", "emptyDir": {"medium": "Memory"}}])) == []


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.name))
def test_the_examples_have_none(file: Path) -> None:
    jobs = [body for body in yaml.safe_load_all(file.read_text()) if body and body["kind"] == "TrainingJob"]
    assert [sentence for body in jobs for sentence in said(body)] == []
