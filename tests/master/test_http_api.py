"""The master's HTTP API: tokens, limits and errors; a refused request changes nothing."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import os
import string
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edl.master.http_api import BODY_BYTES
from edl.master.openapi import openapi
from tests.worlds.master_server import CONTROLLER, TOKEN, Served, serving

SESSION = {"pod_uid": "u", "incarnation": 1, "name": "n"}
POSTS = ["sync", "dataset", "checkpoint/begin", "checkpoint/commit", "checkpoint/restore", "save-election"]
ROSTER = {"generation": 1, "pods": [{"uid": "uid-a", "name": "a", "index": 0}]}


async def test_a_missing_token_and_the_token_of_another_job_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for route in POSTS:
            status, body = await served.ask("POST", f"/v1/{route}", b"{", token=None)
            assert (status, body["error"]["code"]) == (401, "no_token")
            status, body = await served.ask("POST", f"/v1/{route}", b"{", token="another-jobs-token-00000")
            assert (status, body["error"]["code"]) == (403, "foreign_token")
        assert (await served.ask("GET", "/v1/status", token=None))[0] == 401
        for path in ("/healthz", "/metrics", "/openapi.json"):
            async with served.client.get(served.url + path) as answer:
                assert answer.status == 200


async def test_a_web_site_reads_nothing_through_the_browser_of_its_visitor(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            for path in ("/healthz", "/metrics", "/openapi.json", "/v1/status"):
                async with served.client.get(served.url + path, headers=headers) as answer:
                    assert (answer.status, (await answer.json())["error"]["code"]) == (403, "foreign_host")
                token = {"Authorization": f"Bearer {TOKEN}"}
                async with served.client.get(served.url + path, headers={**headers, **token}) as answer:
                    assert answer.status == 200, "a trainer may call the master by any name"


async def test_only_the_controller_publishes_the_roster(tmp_path: Path) -> None:
    async with serving(tmp_path / "open") as served:
        status, body = await served.ask("PUT", "/v1/roster", ROSTER)
        assert (status, body["error"]["code"]) == (403, "wrong_role")
        assert (await served.ask("PUT", "/v1/roster", ROSTER, token=CONTROLLER))[0] == 200
        assert (await served.sync("b", 1, want=1))[1]["status"] == "wait"
        assert (await served.sync("a", 1, want=1))[1]["status"] == "run"
        older = {**ROSTER, "generation": 0}
        assert (await served.ask("PUT", "/v1/roster", older, token=CONTROLLER))[0] == 409
    async with serving(tmp_path / "closed", controller=None) as served:
        assert (await served.ask("PUT", "/v1/roster", ROSTER, token=CONTROLLER))[0] == 403


MALFORMED = {
    "not JSON": b"{",
    "not UTF-8": b'{"seq": "\xff"}',
    "NaN": json.dumps({"session": SESSION, "seq": 1, "wait_s": float("nan")}).encode(),
    "infinite": b'{"session": {"pod_uid": "u", "incarnation": 1, "name": "n"}, "seq": 1, "wait_s": 1e999}',
    "a key twice": b'{"session": {"pod_uid": "u", "incarnation": 1, "name": "n"}, "seq": 1, "seq": 2}',
    "a key twice inside": b'{"session": {"pod_uid": "u", "pod_uid": "v", "incarnation": 1, "name": "n"}, "seq": 1}',
    "an unknown field": json.dumps({"session": SESSION, "seq": 1, "wants": 1}).encode(),
    "a list": b"[]",
    "deep": b"[" * 30_000,
    "a long number": b'{"seq": ' + b"1" * 10_000 + b"}",
    "a lone surrogate": b'{"session": {"pod_uid": "\\ud800", "incarnation": 1, "name": "n"}, "seq": 1}',
    "negative": json.dumps({"session": SESSION, "seq": -1}).encode(),
    "a boolean for a number": json.dumps({"session": SESSION, "seq": True}).encode(),
    "a string for a number": json.dumps({"session": SESSION, "seq": "1"}).encode(),
    "too many wanted": json.dumps({"session": SESSION, "seq": 1, "want": 10**6}).encode(),
    "an end before its start": json.dumps(
        {"session": SESSION, "seq": 1, "done": [{"epoch": 0, "start": 5, "end": 4, "fence": 1}]}
    ).encode(),
    "a cursor outside": json.dumps(
        {"session": SESSION, "seq": 1, "progress": [{"epoch": 0, "start": 5, "end": 9, "fence": 1, "cursor": 10}]}
    ).encode(),
}


async def test_malformed_bodies_are_refused_and_change_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        before = served.master.status()
        for name, body in MALFORMED.items():
            status, answer = await served.ask("POST", "/v1/sync", body)
            assert (status, answer["error"]["code"]) == (400, "malformed"), name
            assert answer["error"]["message"], name
        status, _ = await served.ask("POST", "/v1/sync", b"{}", headers={"Content-Type": "text/plain"})
        assert status == 400
        assert served.master.status() == before


async def test_large_bodies_are_refused_with_and_without_a_content_length(tmp_path: Path) -> None:
    async def chunks() -> Any:
        for _ in range(3):
            yield b" " * (BODY_BYTES // 2)

    async with serving(tmp_path) as served:
        assert (await served.ask("POST", "/v1/sync", b" " * (BODY_BYTES + 1)))[0] == 413
        assert (await served.ask("POST", "/v1/sync", data=chunks()))[0] == 413
        big = {"generation": 1, "pods": [{"uid": f"u{i}", "name": f"n{i}", "index": i} for i in range(5000)]}
        assert (await served.ask("PUT", "/v1/roster", big, token=CONTROLLER))[0] == 200


async def test_a_compressed_body_is_not_expanded(tmp_path: Path) -> None:
    bomb = gzip.compress(json.dumps({"session": SESSION, "seq": 1}).encode() + b" " * 50_000_000)
    assert len(bomb) < BODY_BYTES
    async with serving(tmp_path) as served:
        for token, expected in ((None, 401), (TOKEN, 400)):
            headers = {"Content-Encoding": "gzip"}
            assert (await served.ask("POST", "/v1/sync", bomb, token=token, headers=headers))[0] == expected


async def test_a_connection_without_a_whole_request_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edl.master.http_api.IDLE_S", 0.2)
    async with serving(tmp_path) as served:
        for begun in (b"", b"POST /v1/sync HTTP/1.1\r\nHost: a\r\nX: "):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(begun)
            with suppress(ConnectionResetError):
                async with asyncio.timeout(60):
                    assert await reader.read() == b""
            writer.close()


async def test_a_session_with_too_many_calls_is_limited_and_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edl.master.http_api._BURST", 5.0)
    monkeypatch.setattr("edl.master.http_api._CALLS_PER_S", 0.001)
    async with serving(tmp_path) as served:
        answers = [await served.sync("a", seq) for seq in range(1, 8)]
        assert [status for status, _ in answers] == [200] * 5 + [429] * 2
        assert answers[-1][1]["error"]["code"] == "too_many_calls"
        assert (await served.sync("b", 1))[0] == 200


async def test_the_number_of_connections_of_strangers_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edl.master.http_api.MAX_CONNECTIONS", 3)
    async with serving(tmp_path) as served:
        idle = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(3)]
        for path in ("/metrics", "/v1/status"):
            async with served.client.get(served.url + path) as answer:
                assert answer.status == 429
                assert answer.headers["Retry-After"]
        async with served.client.get(served.url + "/healthz") as answer:
            assert answer.status == 200, "else the kubelet says that the master is not ready"
        assert (await served.ask("GET", "/v1/status", token="another-jobs-token-00000"))[0] == 429
        assert (await served.sync("a", 1, want=1))[0] == 200
        assert (await served.ask("PUT", "/v1/roster", ROSTER, token=CONTROLLER))[0] == 200
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize(("token", "answers"), [("", 1), ("another-jobs-token-00000", 1), (TOKEN, 3)])
async def test_a_stranger_gets_one_answer_on_a_connection(tmp_path: Path, token: str, answers: int) -> None:
    """Else 400 connections with 50 requests each keep the kubelet's probe waiting until all of them are answered."""
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    head = f"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n{shown}"
    heads = [f"{head}{more}\r\n" for more in ("", "", "Connection: close\r\n")]
    async with serving(tmp_path) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write("".join(heads).encode())
        async with asyncio.timeout(60):
            assert (await reader.read()).count(b"HTTP/1.1 200") == answers
        writer.close()


async def test_errors_for_unknown_routes_and_methods_have_the_same_form(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert (await served.ask("GET", "/v2/sync"))[1]["error"]["code"] == "not_found"
        assert (await served.ask("GET", "/v1/sync"))[0] == 405


async def test_impossible_data_sets_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, None) as served:
        for source in ("index:0", "index:-1", "index:x", "index:", "index:" + "9" * 25, "lines:/none/*", "other:1"):
            assert (await served.ask("POST", "/v1/dataset", {"source": source}))[0] == 400, source
        assert (await served.sync("a", 1, want=1))[1]["status"] == "wait"
        assert (await served.ask("POST", "/v1/dataset", {"source": "index:5"}))[0] == 200
        assert (await served.ask("POST", "/v1/dataset", {"source": "index:5", "epochs": 1}))[0] == 200
        status, body = await served.ask("POST", "/v1/dataset", {"source": "index:6"})
        assert status == 409
        assert "index:5" in body["error"]["message"]


async def test_stale_and_accepted_items_share_an_answer_and_a_repeated_seq_gets_the_first_one(tmp_path: Path) -> None:
    async with serving(tmp_path, shard_size=10) as served:
        _, first = await served.sync("a", 1, want=2)
        assert [(x["start"], x["end"], x["ttl_s"]) for x in first["leases"]] == [(0, 10, 30.0), (10, 20, 30.0)]
        assert (await served.sync("a", 1, want=2))[1] == first
        items = [{k: lease[k] for k in ("epoch", "start", "end", "fence")} for lease in first["leases"]]
        done = [{**items[0], "epoch": 1}, items[0], {**items[1], "fence": 10**9}]
        _, second = await served.sync("a", 2, done=done)
        assert second["results"] == ["stale", "accepted", "stale"]
        assert (await served.sync("a", 1))[0] == 409
        assert served.master.status()["done"] == 10


async def test_checkpoints_and_elections(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        session = {"pod_uid": "uid-a", "incarnation": 1, "name": "a"}
        _, begun = await served.ask("POST", "/v1/checkpoint/begin", {"session": session, "step": 3})
        assert (await served.ask("POST", "/v1/checkpoint/restore", {"id": begun["id"]}))[0] == 404
        assert (await served.ask("POST", "/v1/checkpoint/commit", begun))[0] == 200
        assert await served.ask("POST", "/v1/checkpoint/restore", {"id": "latest"}) == (200, begun)
        assert (await served.ask("POST", "/v1/checkpoint/commit", {"id": 10**6}))[0] == 404
        assert (await served.ask("POST", "/v1/checkpoint/restore", {"id": "first"}))[0] == 400
        elect = {"session": session, "step": 4, "ttl_s": 60}
        assert await served.ask("POST", "/v1/save-election", elect) == (200, {"elected": True})
        other = {**elect, "session": {**session, "pod_uid": "uid-b"}}
        assert await served.ask("POST", "/v1/save-election", other) == (200, {"elected": False})


async def test_a_held_request_and_its_repeat_are_answered_once_there_is_work(tmp_path: Path) -> None:
    async with serving(tmp_path, "index:10", shard_size=10) as served:
        _, mine = await served.sync("a", 1, want=1)
        item = {k: mine["leases"][0][k] for k in ("epoch", "start", "end", "fence")}
        held = [asyncio.create_task(served.sync("b", 1, want=1, wait_s=20)) for _ in range(2)]
        done, _ = await asyncio.wait(held, timeout=0.3)
        assert not done
        await served.sync("a", 2, failed=[{**item, "error": ""}])
        async with asyncio.timeout(15):
            (_, one), (_, two) = await asyncio.gather(*held)
        assert one["leases"][0]["fence"] == two["leases"][0]["fence"]
        assert max(one["leases"][0]["ttl_s"], two["leases"][0]["ttl_s"]) > 30.2
        assert served.master.status()["sessions"]["holding"] == 1


async def test_a_held_request_is_answered_after_its_time_or_when_the_master_stops(tmp_path: Path) -> None:
    async with serving(tmp_path, None) as served:
        assert (await served.sync("a", 1, want=1, wait_s=0.2))[1]["status"] == "wait"
        held = asyncio.create_task(served.sync("a", 2, want=1, wait_s=20))
        await asyncio.wait({held}, timeout=0.2)
        async with asyncio.timeout(15):
            await served.master.drain()
            assert (await held)[1]["status"] == "wait"
        status, body = await served.sync("a", 3, want=1)
        assert (status, body["error"]["code"]) == (503, "unavailable")


async def test_a_full_disk_refuses_leases_and_serves_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, is_full = os.pwrite, [False]

    def pwrite(file: int, data: memoryview, offset: int) -> int:
        if is_full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr("edl.master.journal._RETRY_S", 0.02)
    async with serving(tmp_path, shard_size=10) as served:
        _, first = await served.sync("a", 1, want=1)
        item = {k: first["leases"][0][k] for k in ("epoch", "start", "end", "fence")}
        is_full[0] = True
        for _ in range(3):
            status, body = await served.sync("a", 2, done=[item], want=1)
            assert (status, body["error"]["code"]) == (503, "unavailable")
            assert "free space" in body["error"]["message"]
        status, body = await served.ask("GET", "/v1/status")
        assert status == 200
        assert "No space" in body["blocked"]
        is_full[0] = False
        async with asyncio.timeout(60):
            assert (await until_served(served, item))["results"] == ["accepted"]
        assert served.master.status()["done"] == 10


async def until_served(served: Served, item: object) -> Any:
    while True:
        status, answer = await served.sync("a", 2, done=[item], want=1)
        if status == 200:
            return answer
        await asyncio.sleep(0.02)


async def test_the_openapi_document_lists_exactly_the_routes(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        async with served.client.get(served.url + "/openapi.json") as answer:
            assert await answer.json() == openapi()
        routes = {
            (route.method.lower(), route.resource.canonical)
            for route in served.api.application().router.routes()
            if route.resource is not None and route.method != "HEAD"
        }
    documented = {(method, path) for path, methods in openapi()["paths"].items() for method in methods}
    assert documented == {(m, p) for m, p in routes if p not in {"/v1/openapi.json", "/v1/metrics", "/v1/healthz"}}
    references = set(_references(openapi()))
    assert references <= {f"#/components/schemas/{name}" for name in openapi()["components"]["schemas"]}


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [ref for part in value.values() for ref in _references(part)]
    return [ref for part in value for ref in _references(part)] if isinstance(value, list) else []


NUMBERS = st.one_of(st.integers(-2, 30), st.sampled_from([2**31, 2**53, 2**63 - 1, 2**63, 2**64]))
VALUES = st.one_of(NUMBERS, st.text(string.printable, max_size=8), st.none(), st.booleans(), st.floats())
NAMES = st.sampled_from(["a", "b", "", "x" * 254])
SESSIONS = st.fixed_dictionaries({"pod_uid": NAMES, "incarnation": st.one_of(NUMBERS, NAMES), "name": NAMES})
ITEMS = st.fixed_dictionaries(
    {"epoch": NUMBERS, "start": NUMBERS, "end": NUMBERS, "fence": NUMBERS},
    optional={"cursor": NUMBERS, "error": st.text(max_size=5)},
)
BODIES = st.dictionaries(
    st.sampled_from(
        [
            "session",
            "seq",
            "done",
            "failed",
            "progress",
            "want",
            "id",
            "step",
            "ttl_s",
            "generation",
            "pods",
            "source",
        ]
    ),
    st.one_of(VALUES, SESSIONS, st.lists(ITEMS, max_size=3), st.just("latest")),
)
SHAPED = st.one_of(
    BODIES,
    st.fixed_dictionaries(
        {"session": SESSIONS, "seq": NUMBERS},
        optional={"want": NUMBERS, "done": st.lists(ITEMS, max_size=3), "progress": st.lists(ITEMS, max_size=3)},
    ),
    st.fixed_dictionaries({"session": SESSIONS, "step": NUMBERS}, optional={"ttl_s": VALUES}),
    st.fixed_dictionaries({"id": VALUES}),
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(st.tuples(st.sampled_from([*POSTS, "roster"]), SHAPED), min_size=5, max_size=15))
def test_no_request_makes_the_master_fail_or_hang(
    calls: list[tuple[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def send(served: Served) -> None:
        for route, body in calls:
            method = "PUT" if route == "roster" else "POST"
            data = json.dumps(body).encode()
            async with asyncio.timeout(60):
                status, answer = await served.ask(method, f"/v1/{route}", data, token=CONTROLLER)
            assert status in {200, 400, 404, 409}, answer
            assert (status == 200) == ("error" not in answer)
        assert (await served.ask("GET", "/v1/status", token=TOKEN))[0] == 200

    async def serve() -> None:
        async with serving(tmp_path_factory.mktemp("journal"), epochs=2) as served:
            await send(served)

    asyncio.run(serve())
