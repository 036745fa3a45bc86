"""OpenAPI documents: what kubectl needs to explain, validate and patch."""

from __future__ import annotations

from typing import Any

import pytest

from edl.install.manifests import controller_manifests
from edl.sandbox.apiserver.http.openapi import document, index
from edl.sandbox.apiserver.registry import Registry

JOB = "org.paddlepaddle.v1.TrainingJob"


@pytest.fixture
def registry() -> Registry:
    found = Registry()
    for body in controller_manifests():
        if body["kind"] == "CustomResourceDefinition":
            found.define(body)
    return found


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own: set[str] = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(references, node.values()))
    return set().union(*map(references, node)) if isinstance(node, list) else set()


def test_every_document_is_complete(registry: Registry) -> None:
    for name in index(registry)["paths"]:
        parts = name.split("/")
        found = document(registry, parts[1] if len(parts) == 3 else "", parts[-1])
        known = {f"#/components/schemas/{schema}" for schema in found["components"]["schemas"]}
        assert references(found) <= known, name


def test_fields_of_built_in_types_are_described(registry: Registry) -> None:
    pod = document(registry, "", "v1")["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]
    assert pod["properties"]["restartPolicy"]["description"].startswith("Restart policy for all containers")
    assert pod["description"] == "PodSpec is a description of a pod."


def test_the_fields_of_a_definition_are_its_own(registry: Registry) -> None:
    job = document(registry, "paddlepaddle.org", "v1")["components"]["schemas"][JOB]
    trainer = job["properties"]["spec"]["properties"]["trainer"]["properties"]
    assert trainer["min-instance"]["description"].startswith("Minimum number of trainers")
    assert job["x-kubernetes-group-version-kind"] == [
        {"group": "paddlepaddle.org", "version": "v1", "kind": "TrainingJob"}
    ]


def test_only_built_in_types_take_a_strategic_patch(registry: Registry) -> None:
    strategic = "application/strategic-merge-patch+json"

    def patches(group: str, path: str) -> set[str]:
        operation = document(registry, group, "v1")["paths"][path]["patch"]
        return set(operation["requestBody"]["content"])

    assert strategic in patches("", "/api/v1/namespaces/{namespace}/pods/{name}")
    jobs = "/apis/paddlepaddle.org/v1/namespaces/{namespace}/trainingjobs/{name}"
    assert strategic not in patches("paddlepaddle.org", jobs)


def test_a_changed_definition_changes_the_index(registry: Registry) -> None:
    before = index(registry)["paths"]
    definition = next(body for body in controller_manifests() if body["kind"] == "CustomResourceDefinition")
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "another text"
    registry.define(definition)
    after = index(registry)["paths"]
    assert {name for name in before if before[name] != after[name]} == {"apis/paddlepaddle.org/v1"}
