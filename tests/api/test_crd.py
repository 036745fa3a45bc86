"""The generated CRD is structural, bounded and complete, and its rules have the words of the models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from edl.api import queues
from edl.api.base import Part, Rule
from edl.api.crd import render_crd, render_schema
from edl.api.spec import Spec
from edl.api.status import Status
from edl.api.v1 import parse_job
from edl.errors import InvalidJobError
from edl.install.manifests import controller_manifests, crd_yaml, generated_files, manifests_yaml
from tests.worlds.hostile.jobs import CASES

ROOT = Path(__file__).parents[2]
Schema = dict[str, Any]

STRUCTURAL = {
    *("type", "description", "properties", "required", "items", "additionalProperties", "default", "enum", "format"),
    *("minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "maxProperties", "anyOf"),
    *("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
}


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from nodes(schema[name], f"{path}[]")


NODES = dict(nodes(render_schema()))


GENERATED = generated_files()


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_generated_files_are_up_to_date(name: str) -> None:
    assert (ROOT / name).read_text() == GENERATED[name], "run `make generate`"


def test_the_yaml_contains_the_rendered_objects() -> None:
    assert list(yaml.safe_load_all(crd_yaml())) == [render_crd()]
    assert list(yaml.safe_load_all(manifests_yaml())) == controller_manifests()


def test_uses_only_keywords_of_structural_schemas() -> None:
    assert {path: set(node) - STRUCTURAL for path, node in NODES.items() if set(node) - STRUCTURAL} == {}
    assert [
        path for path, node in NODES.items() if "type" not in node and "x-kubernetes-int-or-string" not in node
    ] == []


def test_quantities_have_the_exact_form_of_int_or_string() -> None:
    quantities = {path: node for path, node in NODES.items() if node.get("x-kubernetes-int-or-string")}
    assert ".spec.trainer.resources.requests[]" in quantities
    assert ".spec.master.storage.size" in quantities
    for node in quantities.values():
        assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}]
        assert node["maxLength"] == 20


def test_maps_and_lists_are_bounded_for_the_cost_estimate() -> None:
    raw = "x-kubernetes-preserve-unknown-fields"
    unbounded = [
        path
        for path, node in NODES.items()
        if (node.get("type") == "array" and "maxItems" not in node)
        or ("additionalProperties" in node and "maxProperties" not in node and raw not in node)
        or (node.get("type") == "string" and not node.keys() & {"maxLength", "enum", "format"})
    ]
    assert unbounded == [".apiVersion", ".kind"]


def test_rules_have_constant_messages() -> None:
    rules = [rule for node in NODES.values() for rule in node.get("x-kubernetes-validations", [])]
    assert rules
    assert {frozenset(rule) for rule in rules} == {frozenset({"rule", "message"})}


def rules(model: type[Part] = Part) -> list[Rule]:
    """The rules of all models of a TrainingJob."""
    if model.__module__ == queues.__name__:
        return []
    return [*model.__dict__.get("rules", ()), *(rule for inner in model.__subclasses__() for rule in rules(inner))]


def pattern(rule: Rule) -> str:
    """A regular expression for the message of a rule with any values, or without them."""
    words = (re.escape(part.strip()) for part in re.split(r"\{\w+\}", rule.message))
    return " *.*? *".join(words)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.general_message)
def test_a_rule_has_the_same_words_in_the_crd_and_in_the_controller(rule: Rule) -> None:
    assert re.fullmatch(pattern(rule), rule.general_message)
    assert not re.search(r"[{}]|  | [,;:]", rule.general_message)
    in_crd = [r for node in NODES.values() for r in node.get("x-kubernetes-validations", [])]
    assert {"rule": rule.cel, "message": rule.general_message} in in_crd


def test_some_hostile_job_breaks_every_rule() -> None:
    messages: list[str] = []
    for case in CASES:
        if not case.accepted:
            with pytest.raises(InvalidJobError) as caught:
                parse_job(case.job)
            messages += caught.value.problems
    unbroken = [r.message for r in rules() if not any(re.search(pattern(r) + "$", text) for text in messages)]
    assert unbroken == []


@pytest.mark.parametrize(
    ("path", "default"),
    [
        (".spec.image", "paddlepaddle/paddlecloud-job"),
        (".spec.port", 7164),
        (".spec.fault_tolerant", False),
        (".spec.trainer.instances", 0),
        (".spec.pserver.min-instance", 0),
        (".spec.queue", "default"),
        (".spec.backoffLimit", 6),
        (".spec.elasticity.cooldownSeconds", 60),
    ],
)
def test_defaults_are_in_the_crd(path: str, default: object) -> None:
    assert NODES[path]["default"] == default


@pytest.mark.parametrize("path", [".spec.hostNetwork", ".spec.host_network", ".spec.VolumeMounts", ".spec.passes"])
def test_a_field_with_two_spellings_has_no_default(path: str) -> None:
    assert "default" not in NODES[path]


def test_only_parts_of_pods_keep_unknown_fields() -> None:
    raw = {path for path, node in NODES.items() if node.get("x-kubernetes-preserve-unknown-fields")}
    assert {".spec.volumes[]", ".spec.trainer.template.spec", ".spec.master.template.spec.containers[]"} <= raw
    assert not {".spec", ".spec.trainer", ".spec.trainer.resources", ".status"} & raw


def test_names_scale_and_columns() -> None:
    spec = render_crd()["spec"]
    version = spec["versions"][0]
    assert (spec["names"]["shortNames"], spec["names"]["categories"], spec["scope"]) == (
        ["tj"],
        ["edl"],
        "Namespaced",
    )
    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.trainer.instances",
            "statusReplicasPath": ".status.trainer.ready",
            "labelSelectorPath": ".status.selector",
        },
    }
    columns = [column["name"].upper() for column in version["additionalPrinterColumns"]]
    assert columns == ["PHASE", "MIN", "MAX", "DESIRED", "READY", "REASON", "AGE", "QOS", "LENT", "SLOWED"]
    for path in ("spec.trainer.instances", "status.trainer.ready", "status.selector"):
        assert f".{path}" in NODES


def test_every_field_of_the_models_is_described() -> None:
    def fields(model: type[Part]) -> set[str]:
        return {field.alias or name for name, field in model.model_fields.items()}

    schema = render_schema()["properties"]
    assert set(schema["spec"]["properties"]) == fields(Spec)
    assert set(schema["status"]["properties"]) == fields(Status)
    assert all(node.get("description") for name, node in schema["spec"]["properties"].items())


def test_on_ledger_lost_has_no_default() -> None:
    """The API server would write a default into every job, and edl could not tell whether the user set it."""
    (version,) = render_crd()["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert "default" not in spec["dataset"]["properties"]["onLedgerLost"]
