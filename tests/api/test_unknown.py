"""A warning names each field that the resource does not have, at any place in the spec, and no other field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from edl.api import unknown
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


def warnings_of(body: dict[str, Any]) -> list[str]:
    return list(unknown_fields(parse_job(body).spec, body.get("spec")))


@pytest.mark.parametrize(
    ("body", "path", "remedy"),
    [
        (job(trainers={"x": 1}), "spec.trainers", "did you mean trainer?"),
        (job(trainer={"max_instance": 3}), "spec.trainer.max_instance", "did you mean max-instance?"),
        (job(colour="blue"), "spec.colour", "remove it or correct its name"),
        (
            job(policies=[{"event": "PodFailed", "action": "RestartJob", "when": "now"}]),
            "spec.policies[0].when",
            "remove it or correct its name",
        ),
    ],
)
def test_an_unknown_field_is_reported_with_the_likely_name(body: dict[str, Any], path: str, remedy: str) -> None:
    assert warnings_of(body) == [f"{path} is not a field of a TrainingJob, and edl ignores it; {remedy}"]


def test_unknown_fields_of_a_pod_template_are_left_to_kubernetes() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["h"]}]}}
    assert (
        warnings_of(job(trainer={"template": template}, volumes=[{"name": "v", "emptyDir": {"medium": "Memory"}}]))
        == []
    )


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.name))
def test_the_examples_have_no_unknown_field(file: Path) -> None:
    jobs = [body for body in yaml.safe_load_all(file.read_text()) if body and body.get("kind") == "TrainingJob"]
    assert [sentence for body in jobs for sentence in warnings_of(body)] == []


def test_few_of_many_unknown_fields_are_compared_and_the_others_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def note(name: str, *_: object, **__: object) -> list[str]:
        compared.append(name)
        return []

    monkeypatch.setattr(unknown, "get_close_matches", note)
    warnings = warnings_of(job(**{f"field-{number}": 1 for number in range(6000)}))
    assert len(compared) == unknown.MAX_NAMED
    assert len(warnings) == unknown.MAX_NAMED + 1
    assert warnings[-1] == "5950 more fields of spec do not exist in a TrainingJob, and edl ignores them; remove them"
