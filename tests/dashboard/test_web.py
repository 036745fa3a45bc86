"""The page over HTTP on a small API server: data only for those who may see it, events, what-if, headers, bounds."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from edl.dashboard.feed import Feed
from edl.dashboard.web import STATIC
from edl.errors import ConfigError, TemporaryError
from tests.browser.page_cluster import HOSTILE, NODES, PASTED, PODS, PageCluster, fill, node, page_of_cluster, serving
from tests.worlds.fake_api import FakeApi, refusal

DATA = ("events", "node?name=n000", "explain?namespace=ads&name=ctr")


def base(cluster: PageCluster) -> str:
    """The address of the page on this machine, also if it listens everywhere."""
    return f"http://127.0.0.1:{urlsplit(cluster.address.url).port}/page/"


@asynccontextmanager
async def client(cluster: PageCluster) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that shows the token which was printed."""
    headers = {"Authorization": f"Bearer {cluster.address.token}"}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30), headers=headers) as made:
        yield made


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for raw in response.content:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def first(response: aiohttp.ClientResponse, wanted: str, having: str = "") -> Any:
    """The body of the first event of that name whose text contains another."""
    async for name, body in events(response):
        if name == wanted and having in json.dumps(body):
            return body
    raise AssertionError(f"the stream ended without {wanted}")


async def test_the_stream_begins_with_the_state_and_goes_on_with_changes() -> None:
    async with page_of_cluster() as cluster, client(cluster) as http, http.get(base(cluster) + "events") as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        state = await first(response, "state")
        assert sorted(state["nodes"]) == ["n000", "n001", "n002", "n003"]
        assert state["jobs"]["ads/ctr"]["trainers"] == 3
        cluster.start_trainer(3)
        change = await first(response, "change", '"trainers": 4')
        assert list(change["nodes"]["set"]) == ["n000"]
        cluster.api.remove(NODES, "n003")
        assert (await first(response, "change", "n003"))["nodes"]["gone"] == ["n003"]


async def test_each_decision_comes_with_account_and_certificate() -> None:
    async with page_of_cluster() as cluster, client(cluster) as http, http.get(base(cluster) + "events") as response:
        decisions = await first(response, "decisions")
        assert {one["job"] for one in decisions} == {"ads/ctr", "ads/vision"}
        assert all(
            one["account"] and one["certificate"]["bound"] >= one["certificate"]["achieved"] for one in decisions
        )


async def test_hostile_names_and_messages_arrive_as_they_are_in_json() -> None:
    api = FakeApi()
    fill(api)
    api.put(NODES, node(HOSTILE))
    async with page_of_cluster(api=api) as cluster, client(cluster) as http:
        async with http.get(base(cluster) + "events") as response:
            assert HOSTILE in (await first(response, "state"))["nodes"]
        async with http.get(base(cluster) + "node", params={"name": HOSTILE}) as response:
            assert await response.json() == {"pods": []}
            assert response.content_type == "application/json"


async def test_the_pods_of_a_node_and_the_report_on_a_job() -> None:
    async with page_of_cluster() as cluster, client(cluster) as http:
        async with http.get(base(cluster) + "node?name=n001") as response:
            assert [pod["name"] for pod in (await response.json())["pods"]] == [
                "vision-trainer-0",
                "vision-trainer-1",
                "front-0",
                "front-1",
            ]
        async with http.get(base(cluster) + "explain?namespace=ads&name=ctr") as response:
            assert (await response.json())["current"] == 3
        async with http.get(base(cluster) + "explain?namespace=ads&name=cttr") as response:
            assert response.status == 400
            assert "did you mean ads/ctr?" in (await response.json())["error"]["message"]


async def test_what_if_compares_a_pasted_job_and_changes_nothing() -> None:
    async with page_of_cluster() as cluster, client(cluster) as http:
        async with http.post(base(cluster) + "what-if", json={"text": PASTED}) as response:
            found = await response.json()
        assert [job["after"]["admitted"] for job in found["jobs"] if job["name"] == "new"] == [True]
        assert {method for method, _, _ in cluster.api.requests} == {"GET"}


@pytest.mark.parametrize(
    ("body", "headers", "status", "message"),
    [
        (b"{}", {}, 400, "send application/json"),
        (b"{", {"Content-Type": "application/json"}, 400, "the body is not JSON"),
        (b"[" * 100_000, {"Content-Type": "application/json"}, 400, "the body is not JSON"),
        (b'{"text": 1}', {"Content-Type": "application/json"}, 400, "the body has no text"),
        (b'{"text": "a: ["}', {"Content-Type": "application/json"}, 400, "not YAML"),
        (b'{"text": "%s"}' % (b"x" * 70_000), {"Content-Type": "application/json"}, 400, "longer than 64 KiB"),
        (b"x" * 200_000, {"Content-Type": "application/json"}, 413, "longer than 64 KiB"),
        (b"{}", {"Content-Type": "application/json", "Origin": "http://evil.example"}, 403, "another site"),
        (b"{}", {"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"}, 403, "another site"),
        (b"{}", {"Content-Type": "application/json", "Host": "evil.example"}, 403, "is no address of this machine"),
    ],
)
async def test_a_request_that_cannot_be_served_says_why(
    body: bytes, headers: dict[str, str], status: int, message: str
) -> None:
    async with page_of_cluster() as cluster, client(cluster) as http:
        async with http.post(base(cluster) + "what-if", data=body, headers=headers) as response:
            assert response.status == status
            error = (await response.json())["error"]
        assert error["code"] == status
        assert message in error["message"]


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "0.0.0.0:0"])
async def test_there_is_no_data_without_the_printed_token(listen: str) -> None:
    async with (
        page_of_cluster(listen=listen) as cluster,
        aiohttp.ClientSession() as stranger,
        client(cluster) as http,
    ):
        token = cluster.address.token
        assert len(token) >= 32
        assert cluster.address.url.endswith(f"/page/#token={token}")
        for path in DATA:
            async with stranger.get(base(cluster) + path) as response:
                assert response.status == 401, path
                assert response.headers["WWW-Authenticate"] == "Bearer"
                assert "n000" not in await response.text()
            async with http.get(base(cluster) + path) as response:
                assert response.status == 200, path
        async with stranger.post(base(cluster) + "what-if", json={"text": PASTED}) as response:
            assert response.status == 401
        async with stranger.get(base(cluster) + "login") as response:
            assert await response.json() == {"login": "token"}


async def test_every_answer_forbids_scripts_and_frames_of_others() -> None:
    async with page_of_cluster() as cluster, client(cluster) as http:
        for path in ("", "static/main.js", "login", "node?name=n000", "explain", "nowhere"):
            async with http.get(base(cluster) + path) as response:
                policy = response.headers["Content-Security-Policy"]
                assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy, path
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert response.headers["Cache-Control"] == (
                    "no-cache" if path in {"", "static/main.js"} else "no-store"
                )


async def test_a_page_that_lost_the_cluster_says_what_is_wrong() -> None:
    async with page_of_cluster() as cluster, client(cluster) as http, http.get(base(cluster) + "events") as response:
        await first(response, "state")
        cluster.api.faults.extend([refusal(403, "Forbidden", "pods is forbidden")] * 1000)
        cluster.api.end_watches()
        assert "forbidden" in await first(response, "problem", "forbidden")


async def test_a_server_that_stops_ends_the_open_streams_at_once() -> None:
    async with AsyncExitStack() as clients:
        async with page_of_cluster() as cluster:
            http = await clients.enter_async_context(client(cluster))
            response = await http.get(base(cluster) + "events")
            await first(response, "state")
        async with asyncio.timeout(60):
            assert await response.content.read(-1) is not None


async def test_a_page_that_is_closed_frees_its_place_and_leaves_no_trace_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("edl.dashboard.serve.Feed", lambda: Feed(clients=1))
    async with page_of_cluster() as cluster, client(cluster) as http:
        for index in range(3):
            async with http.get(base(cluster) + "events") as response:
                assert response.status == 200
                await first(response, "state")
                async with http.get(base(cluster) + "events") as other:
                    assert other.status == 429
                    assert other.headers["Retry-After"] == "10"
            cluster.start_trainer(3 + index)
            async with asyncio.timeout(60):
                while await _is_full(http, cluster):  # noqa: ASYNC110 - the server tells nobody that it noticed
                    await asyncio.sleep(0.01)
    assert caplog.records == []


async def _is_full(http: aiohttp.ClientSession, cluster: PageCluster) -> bool:
    async with http.get(base(cluster) + "events") as response:
        return response.status == 429


async def test_a_cluster_that_cannot_be_read_is_an_error_with_the_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.dashboard.serve.PATIENCE_S", 0.1)
    api = FakeApi()
    api.faults.extend([refusal(403, "Forbidden", "nodes is forbidden")] * 1000)
    with pytest.raises(TemporaryError, match=r"cannot be read: .*nodes is forbidden.*your right to list and watch"):
        async with page_of_cluster(api=api):
            pass


async def test_an_address_in_use_is_refused_with_a_remedy() -> None:
    async with page_of_cluster() as cluster:
        taken = urlsplit(cluster.address.url).netloc
        with pytest.raises(ConfigError, match=f"--listen {taken}: .*choose another address"):
            async with page_of_cluster(listen=taken):
                pass


async def test_a_thousand_nodes_are_one_message_and_one_change_is_a_small_one() -> None:
    api = FakeApi()
    fill(api, nodes=1000)
    for number in range(2000):
        api.put(PODS, serving(f"s{number:04d}", node=f"n{number % 1000:03d}", cpu="1"))
    async with (
        page_of_cluster(api=api) as cluster,
        client(cluster) as http,
        http.get(base(cluster) + "events") as response,
    ):
        state = await first(response, "state")
        assert len(state["nodes"]) == 1000
        assert len(json.dumps(state)) < 1_000_000
        cluster.start_serving("late", node="n500")
        change = await first(response, "change", "n500")
        assert len(json.dumps(change)) < 2_000


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_the_files_load_nothing_from_elsewhere_and_write_texts_as_text(path: Any) -> None:
    text = path.read_text()
    names = {"http://www.w3.org/2000/svg"}  # the name of SVG, not an address
    assert set(re.findall(r"(?:https?:)?//[\w.]+[\w/.]*", re.sub(r"(?m)(^|\s)// .*$", "", text))) <= names
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style="):
        assert way not in text
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=", text)
