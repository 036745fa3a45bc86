"""Requests that the OpenAPI document allows or forbids: the master answers in the documented form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from edl.master.openapi import openapi
from tests.worlds.master_processes import CONTROLLER_TOKEN, Cluster, cluster

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
HEADERS = {"Authorization": f"Bearer {CONTROLLER_TOKEN}"}
ANSWER_S = 60.0

api = schemathesis.openapi.from_dict(openapi())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master that must survive every request."""
    data = json.dumps({"source": "index:1000", "epochs": 3, "shardSize": 7})
    with cluster(tmp_path_factory.mktemp("openapi"), data) as made:
        yield made
        assert made.master is not None
        assert made.master.poll() is None
        assert "a request failed" not in made.master_log
        assert made.audit().returncode == 0


@api.parametrize()
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_every_route_conforms_to_the_openapi_document(case: Any, world: Cluster) -> None:
    if case.path == "/v1/sync" and isinstance(case.body, dict) and isinstance(case.body.get("wait_s"), (int, float)):
        case.body["wait_s"] = min(case.body["wait_s"], 0.1)  # do not wait for held requests
    case.call_and_validate(base_url=world.url, headers=HEADERS, timeout=ANSWER_S, checks=CHECKS)
