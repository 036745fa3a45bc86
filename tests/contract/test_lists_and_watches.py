"""What edl needs of collections: selectors, pages, versions, watches that resume, bookmarks, 410."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.contract.servers import Server

Object = dict[str, Any]
MAPS = "/api/v1/namespaces/{}/configmaps"


def make(server: Server, space: str, name: str, **labels: str) -> Object:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}
    return server.kube.create(body, space)


def names(listed: Object) -> list[str]:
    return [one["metadata"]["name"] for one in listed["items"] if one["metadata"]["name"] != "kube-root-ca.crt"]


@contextmanager
def watching(server: Server, path: str, **query: str) -> Iterator[Iterator[Object]]:
    """The events of a watch, one at a time."""
    connection: http.client.HTTPConnection = server.kube._dial()
    try:
        target = server.kube._target(path, {"watch": "true", "timeoutSeconds": "20", **query})
        connection.request("GET", target, headers=server.kube._headers())
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        yield (json.loads(line) for line in iter(answer.readline, b""))
        answer.close()
    finally:
        connection.close()


def short(event: Object) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("a=1", ["x"]),
        ("a!=1", ["y", "z"]),
        ("a in (1,2)", ["x", "y"]),
        ("a notin (1),b", ["y"]),
        ("!a", ["z"]),
        ("a", ["x", "y"]),
        ("a>1", ["y"]),
    ],
)
def test_labels_select(server: Server, space: str, selector: str, found: list[str]) -> None:
    make(server, space, "x", a="1")
    make(server, space, "y", a="2", b="2")
    make(server, space, "z")
    listed = server.kube.request("GET", MAPS.format(space), query={"labelSelector": selector})
    assert names(listed) == found


def test_fields_select_pods(server: Server, space: str) -> None:
    for name in ("a", "b"):
        spec = {"schedulerName": "none", "containers": [{"name": "c", "image": "i"}]}
        server.kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}, space)
    server.kube.patch("pods", "b", {"status": {"phase": "Failed"}}, space, subresource="status")

    def found(fields: str) -> list[str]:
        return [one["metadata"]["name"] for one in server.kube.list("pods", space, fields=fields)]

    assert found("status.phase!=Failed,status.phase!=Succeeded") == ["a"]
    assert found("metadata.name=b") == ["b"]
    assert found("spec.nodeName=") == ["a", "b"]
    assert found("spec.schedulerName=none,status.phase=Failed") == ["b"]


def test_pages_show_one_moment(server: Server, space: str) -> None:
    for name in ("a", "b", "c"):
        make(server, space, name)
    path = MAPS.format(space)
    first = server.kube.request("GET", path, query={"limit": "2"})
    make(server, space, "bb")
    server.kube.delete("configmaps", "c", space)
    rest = server.kube.request("GET", path, query={"limit": "9", "continue": first["metadata"]["continue"]})
    assert names(first) + names(rest) == ["a", "b", "c"]
    assert first["metadata"]["remainingItemCount"] == 2
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert "continue" not in rest["metadata"]


def test_an_exact_version_shows_the_past(server: Server, space: str) -> None:
    then = make(server, space, "a")["metadata"]["resourceVersion"]
    make(server, space, "b")
    query = {"resourceVersion": then, "resourceVersionMatch": "Exact"}
    listed = server.kube.request("GET", MAPS.format(space), query=query)
    assert names(listed) == ["a"]
    assert listed["metadata"]["resourceVersion"] == then


def test_a_watch_resumes_after_a_version(server: Server, space: str) -> None:
    since = make(server, space, "a")["metadata"]["resourceVersion"]
    make(server, space, "b")
    server.kube.patch("configmaps", "a", {"data": {"k": "v"}}, space)
    with watching(server, MAPS.format(space), resourceVersion=since) as events:
        server.kube.delete("configmaps", "b", space)
        seen = [next(events) for _ in range(3)]
    assert [short(event) for event in seen] == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(versions)
    assert versions[0] > int(since)


def test_a_watch_without_a_version_begins_with_the_state(server: Server, space: str) -> None:
    make(server, space, "a")
    with watching(server, MAPS.format(space), labelSelector="!x") as events:
        found = {short(next(events)) for _ in range(2)}
    assert found == {("ADDED", "a"), ("ADDED", "kube-root-ca.crt")}


def test_an_object_that_leaves_the_selection_is_deleted_for_the_watch(server: Server, space: str) -> None:
    since = make(server, space, "a", on="yes")["metadata"]["resourceVersion"]
    with watching(server, MAPS.format(space), resourceVersion=since, labelSelector="on=yes") as events:
        server.kube.patch("configmaps", "a", {"metadata": {"labels": {"on": "no"}}}, space)
        server.kube.patch("configmaps", "a", {"metadata": {"labels": {"on": "yes"}}}, space)
        left, back = next(events), next(events)
    assert (short(left), short(back)) == (("DELETED", "a"), ("ADDED", "a"))
    assert left["object"]["metadata"]["labels"] == {"on": "yes"}
    assert int(left["object"]["metadata"]["resourceVersion"]) > int(since)


def test_initial_events_end_with_a_bookmark(server: Server, space: str) -> None:
    make(server, space, "a", on="yes")
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "labelSelector": "on=yes",
    }
    with watching(server, MAPS.format(space), **query) as events:
        first, mark = next(events), next(events)
    assert short(first) == ("ADDED", "a")
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(mark["object"]["metadata"]["resourceVersion"]) >= int(first["object"]["metadata"]["resourceVersion"])


def test_a_watch_ends_after_its_timeout(server: Server, space: str) -> None:
    since = make(server, space, "a")["metadata"]["resourceVersion"]
    with watching(server, MAPS.format(space), resourceVersion=since, timeoutSeconds="1") as events:
        assert list(events) == []


def test_a_table_has_the_columns_of_the_definition(servers: dict[str, Server]) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    for plural in ("/apis/paddlepaddle.org/v1/trainingjobs", "/api/v1/pods", "/api/v1/nodes", "/api/v1/events"):
        tables = [server.send("GET", plural, accept=accept).body for server in servers.values()]
        shown = [
            [(one["name"], one["type"], one["format"], one["priority"]) for one in table["columnDefinitions"]]
            for table in tables
        ]
        assert shown[0] == shown[1]


def test_metadata_alone_can_be_listed(server: Server, space: str) -> None:
    make(server, space, "a", on="yes")
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    listed = server.send("GET", MAPS.format(space), accept=accept, query={"labelSelector": "on=yes"}).body
    assert listed["kind"] == "PartialObjectMetadataList"
    assert [sorted(one) for one in listed["items"]] == [["apiVersion", "kind", "metadata"]]
