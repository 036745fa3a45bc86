"""A value of a wrong type is refused on every way to write it, with the same code, reason and words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.contract.servers import EMBEDDED, REAL, Answer, Server
from tests.worlds.hostile.manifests import make_manifest

Object = dict[str, Any]
JOBS = "/apis/paddlepaddle.org/v1/namespaces/default/trainingjobs"
APPS = "/apis/apps/v1/namespaces/default/deployments"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
DRY = {"dryRun": "All"}

SPECS: dict[str, Any] = {
    "a text for a spec": "text",
    "a number for a spec": 3,
    "a list for a spec": [1, "a"],
    "a number for a trainer": {"trainer": 3},
    "a list for a trainer": {"trainer": [{"instances": 3}]},
    "a text for a count": {"trainer": {"instances": "three"}},
    "a fraction for a count": {"trainer": {"instances": 1.5}},
    "a negative count": {"trainer": {"instances": -1}},
    "a count beyond 32 bits": {"trainer": {"instances": 2**31}},
    "a truth for a count": {"trainer": {"min-instance": True}},
}
"""What somebody may give as the spec of a job, or as a part of it."""


def deployment(**spec: Any) -> Object:
    labels = {"app": "typed"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "typed"}, "spec": body}


def verdict(answer: Answer) -> tuple[int, str, str, set[tuple[str, str, str]]]:
    """An answer without what differs: the whole object inside a message, and versions."""
    plain = {(reason, field, _plain(message)) for reason, field, message in answer.causes}
    return answer.code, answer.reason, "" if plain else _plain(answer.message), plain


def _plain(message: str) -> str:
    return re.sub(r'Invalid value: "(\{|map\[).*[}\]]": ', "Invalid value: OBJECT: ", message)


def same(servers: dict[str, Server], *request: Any, **options: Any) -> None:
    """Both refuse alike; a message that names a line of the real server's source says nothing and is not compared."""
    mine, theirs = (verdict(servers[name].send(*request, **options)) for name in (EMBEDDED, REAL))
    assert theirs[0] >= 400
    if ".go:" in theirs[2]:
        mine, theirs = (*mine[:2], "", mine[3]), (*theirs[:2], "", theirs[3])
    assert mine == theirs


@pytest.fixture
def stored(servers: dict[str, Server]) -> dict[str, Server]:
    for server in servers.values():
        for collection, body in ((JOBS, make_manifest("typed")), (APPS, deployment())):
            assert server.send("POST", collection, body).code in {201, 409}
    return servers


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("way", ["create", "put", "merge patch", "json patch", "apply"])
def test_a_job_with_a_wrong_type_is_refused(stored: dict[str, Server], name: str, way: str) -> None:
    spec, plain = SPECS[name], make_manifest("typed")
    whole = {**plain, "spec": spec}
    if isinstance(spec, dict):
        part = spec["trainer"]
        trainer = {**plain["spec"]["trainer"], **part} if isinstance(part, dict) else part
        whole["spec"] = {**plain["spec"], "trainer": trainer}
    path = f"{JOBS}/typed"
    if way == "create":
        same(stored, "POST", JOBS, {**whole, "metadata": {"name": "new"}}, query=DRY)
    elif way == "put":
        answers = []
        for server in (stored[EMBEDDED], stored[REAL]):
            metadata = server.send("GET", path).body["metadata"]
            answers.append(verdict(server.send("PUT", path, {**whole, "metadata": metadata}, query=DRY)))
        assert answers[1][0] >= 400
        assert answers[0] == answers[1]
    elif way == "merge patch":
        same(stored, "PATCH", path, {"spec": spec}, query=DRY, content_type=MERGE)
    elif way == "json patch":
        patch = [{"op": "replace", "path": "/spec", "value": whole["spec"]}]
        same(stored, "PATCH", path, patch, query=DRY, content_type=JSON_PATCH)
    else:
        query = {**DRY, "fieldManager": "test", "force": "true"}
        same(stored, "PATCH", path, whole, query=query, content_type=APPLY)


PATCHES: dict[str, tuple[str, Any]] = {
    "a text for the replicas, merged": (MERGE, {"spec": {"replicas": "two"}}),
    "a text for the spec, merged": (MERGE, {"spec": "text"}),
    "a text for the containers, merged": (MERGE, {"spec": {"template": {"spec": {"containers": "c"}}}}),
    "a text for the replicas": (STRATEGIC, {"spec": {"replicas": "two"}}),
    "a text for the spec": (STRATEGIC, {"spec": "text"}),
    "a text for the replicas, by path": (JSON_PATCH, [{"op": "replace", "path": "/spec/replicas", "value": "two"}]),
}


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_of_a_built_in_kind_with_a_wrong_type_is_refused(stored: dict[str, Server], name: str) -> None:
    content_type, patch = PATCHES[name]
    same(stored, "PATCH", f"{APPS}/typed", patch, query=DRY, content_type=content_type)


SCALES: dict[str, Any] = {
    "a text for the replicas": {"spec": {"replicas": "two"}},
    "a fraction for the replicas": {"spec": {"replicas": 1.5}},
    "a text for the spec": {"spec": "text"},
    "negative replicas": {"spec": {"replicas": -1}},
}


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("path", [f"{JOBS}/typed/scale", f"{APPS}/typed/scale"])
def test_a_scale_with_a_wrong_type_is_refused(stored: dict[str, Server], path: str, name: str) -> None:
    same(stored, "PATCH", path, SCALES[name], query=DRY, content_type=MERGE)
    body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "typed", "namespace": "default"}}
    same(stored, "PUT", path, {**body, **SCALES[name]}, query=DRY)
