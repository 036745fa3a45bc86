"""Calls to masters: what they send, and how they treat responses, which can come from any image."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from edl.controller.ports import MasterAddress
from edl.errors import ConflictError, EdlError, PermanentError, TemporaryError
from edl.kube import master_client
from edl.kube.master_client import ANSWER_BYTES, ANSWER_BYTES_OF_POD, HttpMasterClient
from edl.ledger.entries import ClosedEpoch
from edl.ledger.group_values import Goodput, Speed
from edl.ledger.ledger import Ledger
from edl.ledger.state import LedgerState
from edl.ledger.status import ledger_status
from edl.lifecycle.data_progress import HungTrainer, MasterReport, MasterState, RosterEntry
from edl.model import progress
from edl.model.names import JobKey
from tests.worlds.controller_with_masters import controller_token, sharded, wired
from tests.worlds.master_server import serving

JOB = sharded()
AT = MasterAddress(JOB.key, JOB.uid, "pod-1", "127.0.0.1")
Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]
GOOD = {
    "state": "running",
    "epoch": 0,
    "total": 9,
    "todo": 1,
    "done": 2,
    "consumed": 3,
    "quarantined": 0,
    "holders": [],
}


@asynccontextmanager
async def responding(tmp_path: Path, answer: Responder) -> AsyncIterator[HttpMasterClient]:
    """A client of a server that is not a master."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with wired(tmp_path, runner.addresses[0][1]) as client:
            yield client
    finally:
        await runner.cleanup()


def responder(body: Any, status: int = 200) -> Responder:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status) if isinstance(body, bytes) else web.json_response(body)

    return answer


async def test_a_real_master_is_read_and_gets_its_roster(tmp_path: Path) -> None:
    token = controller_token(JOB)
    async with (
        serving(tmp_path / "j", "index:100", controller=token, shard_size=10) as served,
        wired(tmp_path, served.port) as client,
    ):
        assert (await client.report(AT)) == MasterReport(MasterState.RUNNING, 0, 0, 100, 0, 100)
        await client.publish(AT, 7, [RosterEntry("uid-a", "a", 0)])
        _, answer = await served.sync("a", 1, want=1)
        (lease,) = answer["leases"]
        item = {k: lease[k] for k in ("epoch", "start", "end", "fence")}
        await asyncio.sleep(0.6)
        await served.sync("a", 2, progress=[{**item, "cursor": 4}])
        found = await client.report(AT)
        assert (found.consumed, found.done, found.waiting, found.roster) == (4, 0, 90, (7, 1))
        assert found.working == {"uid-a"}
        await served.sync("a", 3, done=[item])
        assert (await client.report(AT)).unsaved == 10
        with pytest.raises(ConflictError, match="generation 6 is older than 7"):
            await client.publish(AT, 6, [])
        assert await client.restore(AT) == 0


async def test_trainers_that_hang_are_read(tmp_path: Path) -> None:
    hung = [
        {"pod_uid": f"uid-{reason}", "name": "t", "reason": reason, "seconds": 7.5} for reason in ("silent", "stuck")
    ]
    async with responding(tmp_path, responder({**GOOD, "group": {"generation": 3, "hung": hung}})) as client:
        found = (await client.report(AT)).hung
    assert found == (HungTrainer("uid-silent", True, 7.5), HungTrainer("uid-stuck", False, 7.5))
    async with responding(tmp_path, responder({**GOOD, "group": {"generation": 3}})) as client:
        assert (await client.report(AT)).hung == (), "a master from before this field"


SPEEDS = tuple(
    Speed(n, per_s, n < 2, batch, 0.5)
    for n, per_s, batch in ((4, 30.0, 2**40), (1, 9.5, 64), (0, 1.0, 64), (2, 0.0, 64))
)
"""Of no trainer, without progress, and with a batch that no status can hold."""


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1.0", "1e300"])
async def test_a_speed_that_no_job_can_have_makes_a_report_unreadable(number: str, tmp_path: Path) -> None:
    speeds = [{"trainers": 4, "per_s": 7.25, "is_measured": True, "batch": 64, "efficiency": 1.0}]
    body = json.dumps({**GOOD, "group": {"goodput": {"batch": 64, "noise_scale": None, "speeds": speeds}}})
    async with responding(tmp_path, responder(body.replace("7.25", number).encode())) as client:
        with pytest.raises(PermanentError, match="the response is not from an edl master"):
            await client.report(AT)


async def test_the_goodput_of_a_job_that_chooses_its_batch_is_read(tmp_path: Path) -> None:
    said = Goodput(64, 12.5, SPEEDS)
    async with responding(tmp_path, responder({**GOOD, "group": {"goodput": said.shown}})) as client:
        report = await client.report(AT)
    assert report.goodput == (
        progress.Goodput(1, 9.5, 64, 0.5, is_measured=True),
        progress.Goodput(4, 30.0, 0, 0.5, is_measured=False),
    )
    assert report.batch == 64
    async with responding(tmp_path, responder({**GOOD, "group": {"generation": 3}})) as client:
        assert (await client.report(AT)).goodput == (), "a master from before this field"


async def test_trainers_in_step_are_read_and_their_epochs_are_one_stretch(tmp_path: Path) -> None:
    status = {
        **GOOD,
        "epoch": 2,
        "total": 100,
        "consumed": 30,
        "group": {"generation": 3, "working": ["uid-a", "uid-b"]},
    }
    async with responding(tmp_path, responder(status)) as client:
        found = await client.report(AT)
    assert found.working == {"uid-a", "uid-b"}
    assert found.course == (0, 230)
    async with responding(tmp_path, responder({**status, "group": {"generation": 3}})) as client:
        assert (await client.report(AT)).working == frozenset(), "a master from before this field"
    async with responding(tmp_path, responder({**status, "group": None})) as client:
        assert (await client.report(AT)).course == (2, 30), "these trainers lease ranges"


@pytest.mark.parametrize(
    ("body", "status", "error", "says"),
    [
        (b"<html>", 200, PermanentError, "not from an edl master"),
        (b"", 200, PermanentError, "not from an edl master"),
        (b"[" * 100_000, 200, PermanentError, "not from an edl master"),
        ({**GOOD, "done": -1}, 200, PermanentError, "not from an edl master"),
        ({**GOOD, "done": 2**60}, 200, PermanentError, "not from an edl master"),
        ({**GOOD, "state": "odd"}, 200, PermanentError, "not from an edl master"),
        ({**GOOD, "holders": [{"pod_uid": 7}]}, 200, PermanentError, "not from an edl master"),
        ({"state": "running"}, 200, PermanentError, "not from an edl master"),
        (b"x" * (ANSWER_BYTES + 10), 200, PermanentError, "not from an edl master"),
        (b"not you", 403, PermanentError, "answered 403: not you"),
        (b"later", 503, TemporaryError, "answered 503"),
        (b"slow", 429, TemporaryError, "answered 429"),
    ],
)
async def test_an_invalid_response_is_an_error_that_names_the_job(
    tmp_path: Path, body: Any, status: int, error: type[EdlError], says: str
) -> None:
    async with responding(tmp_path, responder(body, status)) as client:
        with pytest.raises(error, match=says) as caught:
            await client.report(AT)
    assert "default/a" in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("state", "count"), [("running", 3 + 2), ("finished", 3)])
async def test_quarantined_records_are_counted_over_all_epochs(tmp_path: Path, state: str, count: int) -> None:
    closed = [{"epoch": 0, "quarantined": [[5, 6], [9, 11]]}, {"epoch": 1, "quarantined": []}]
    async with responding(
        tmp_path, responder({**GOOD, "state": state, "quarantined": 2, "closed": closed})
    ) as client:
        assert (await client.report(AT)).left_out == count


async def test_masters_of_now_count_what_they_left_out_themselves(tmp_path: Path) -> None:
    closed = [{"epoch": 9, "quarantined": 4}]
    async with responding(
        tmp_path, responder({**GOOD, "quarantined": 2, "closed": closed, "left_out": 40})
    ) as client:
        assert (await client.report(AT)).left_out == 42


def padded(size: int) -> bytes:
    """A good answer of so many bytes."""
    start = json.dumps({**GOOD, "more": ""}).encode()[:-2]
    return start + b"x" * (size - len(start) - 2) + b'"}'


async def test_an_answer_is_as_long_as_the_job_has_pods_to_speak_of(tmp_path: Path) -> None:
    size = ANSWER_BYTES + 10 * ANSWER_BYTES_OF_POD
    async with responding(tmp_path, responder(padded(size))) as client:
        assert (await client.report(AT._replace(pods=10))).total == 9
        with pytest.raises(PermanentError, match="not from an edl master"):
            await client.report(AT._replace(pods=9))


@pytest.mark.parametrize(("size", "is_beside"), [(2_000, False), (200_000, True)])
async def test_long_answers_are_decoded_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, *, is_beside: bool
) -> None:
    """The decoder was made before: two threads that use a class for the first time crash msgspec 0.22.0."""
    threads, kind = list[bool](), master_client._Status
    made_before = master_client._DECODERS[kind]

    class Noted:
        def decode(self, raw: bytes) -> Any:
            threads.append(threading.current_thread() is not threading.main_thread())
            return made_before.decode(raw)

    monkeypatch.setitem(master_client._DECODERS, kind, Noted())
    async with responding(tmp_path, responder(padded(size))) as client:
        assert (await client.report(AT)).total == 9
    assert threads == [is_beside]


async def test_long_answers_are_charged_to_their_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Honest masters of other namespaces, and of the same one later, are called as before."""
    asked = 0
    monkeypatch.setattr(master_client, "_BYTES_PER_S", 0.0)

    async def answer(_: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return web.Response(body=padded(ANSWER_BYTES))

    async with responding(tmp_path, answer) as client:
        while asked < 18:
            await client.report(AT)
        with pytest.raises(TemporaryError, match="the masters of namespace default answer with too many bytes"):
            await client.report(AT)
        assert asked == 18
        other = AT._replace(job=JobKey("other", "a"))
        assert (await client.report(other)).total == 9
        monkeypatch.setattr(master_client, "_BYTES_PER_S", 1e12)
        assert (await client.report(AT)).total == 9


async def test_an_answer_in_pieces_of_few_bytes_is_given_up(tmp_path: Path) -> None:
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        body = padded(ANSWER_BYTES)
        for start in range(0, len(body), 64):
            await response.write(body[start : start + 64])
            await asyncio.sleep(0.001)
            sent += 64
        return response

    async with responding(tmp_path, answer) as client:
        with pytest.raises(TemporaryError, match="in pieces of few bytes"):
            await client.report(AT)
    assert sent < 16 * 1024


def longest_status(pods: int, epochs: int, ranges: int) -> dict[str, Any]:
    """The longest status that edl's own master gives: long names, many epochs with many quarantined ranges."""
    ledger = Ledger(LedgerState())
    state = ledger.state
    listed = [(2 * 10**15 + 2 * number, 2 * 10**15 + 2 * number + 1) for number in range(ranges)]
    for number in range(epochs):
        state.closed.append(ClosedEpoch(number, 2**53, 2**53, list(listed)))
    holder = {"name": "n" * 253, "pod_uid": "u" * 253, "incarnation": 2**53, "leases": 99, "positions": 2**53}
    names = ["n" * 253] * pods
    hung = [{"pod_uid": "u" * 253, "name": "n" * 253, "reason": "silent", "seconds": 1e9}] * pods
    group = {"generation": 2**53, "position": 2**53, "members": names[:1000], "waiting": []}
    status = ledger_status(ledger)
    status |= {"holders": [{**holder, "done": 2**53, "rate": 1e-9}] * min(pods, 1000), "total": 2**53}
    status |= {"quarantined_ranges": listed[:1000], "quarantined_records": [2**53] * 100}
    speeds = [{"trainers": 20_000, "per_s": 1e15 / 3, "is_measured": False, "batch": 2**53, "efficiency": 1 / 3}] * 64
    group |= {"goodput": {"batch": 2**53, "noise_scale": 1e15 / 3, "speeds": speeds}}
    return {**status, "group": {**group, "working": ["u" * 253] * pods, "hung": hung, "losses": [holder] * 50}}


@pytest.mark.parametrize("pods", [1, 10, 1000, 10_000])
@pytest.mark.parametrize(("epochs", "ranges"), [(1, 1), (110, 5000), (100_000, 1)])
async def test_every_status_of_a_real_master_fits(tmp_path: Path, pods: int, epochs: int, ranges: int) -> None:
    body = msgspec.json.encode({**longest_status(pods, epochs, ranges), "blocked": "b" * 300, "records": 2**53})
    async with responding(tmp_path, responder(body)) as client:
        report = await client.report(AT._replace(pods=pods))
    assert report.left_out == epochs * ranges


async def test_a_redirect_is_not_followed_so_the_token_goes_nowhere_else(tmp_path: Path) -> None:
    seen: list[str] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        seen.append(request.path)
        return web.Response(status=307, headers={"Location": "/stolen"})

    async with responding(tmp_path, elsewhere) as client:
        with pytest.raises(PermanentError, match="307"):
            await client.report(AT)
    assert seen == ["/v1/status"]


async def test_a_compressed_response_is_not_expanded(tmp_path: Path) -> None:
    bomb = gzip.compress(b'{"state": "' + b" " * ANSWER_BYTES * 4)

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept-Encoding"] == "identity"
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    assert len(bomb) < 100_000
    async with responding(tmp_path, answer) as client:
        with pytest.raises(PermanentError, match="the response is not from an edl master") as refused:
            await client.report(AT)
    assert "truncated" not in str(refused.value)


@pytest.mark.parametrize(
    "ip",
    [
        "169.254.169.254",
        "fe80::1",
        "fd00::1%eth0",
        "0.0.0.0",  # noqa: S104 - refused
        "224.0.0.1",
        "metadata.google.internal",
        "10.0.0.1/latest?",
        "u@10.0.0.1",
        "10.0.0.1\r\nX: y",
    ],
)
async def test_an_address_that_no_pod_can_have_is_not_called(tmp_path: Path, ip: str) -> None:
    async with wired(tmp_path, 1) as client:
        with pytest.raises(PermanentError, match="not the IP address of a pod") as refused:
            await client.report(AT._replace(ip=ip))
    assert str(refused.value).isprintable()


async def test_what_a_master_says_is_quoted_without_commands_for_a_terminal(tmp_path: Path) -> None:
    async with responding(tmp_path, responder({**GOOD, "blocked": "\x1b[2J\x9b31m"})) as client:
        assert (await client.report(AT)).blocked == r"\u001b[2J\u009b31m"
    async with responding(tmp_path, responder(b"\x1b[2J\xff", 400)) as client:
        with pytest.raises(PermanentError, match="answered 400") as refused:
            await client.report(AT)
    assert str(refused.value).isprintable()


async def test_a_master_sets_no_cookie_that_another_master_would_see(tmp_path: Path) -> None:
    cookies: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        cookies.append(request.headers.get("Cookie"))
        return web.json_response(GOOD, headers={"Set-Cookie": "mine=1; Path=/"})

    async with responding(tmp_path, answer) as client:
        await client.report(AT)
        await client.report(AT._replace(job=JobKey("default", "b")))
    assert cookies == [None, None]


async def test_a_response_that_never_ends_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_client, "CALL_TIMEOUT_S", 0.3)

    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.05)

    async with responding(tmp_path, trickle) as client:
        with pytest.raises(TemporaryError, match="did not answer in time"):
            await client.report(AT)


async def test_a_master_that_does_not_listen_is_a_temporary_error(tmp_path: Path) -> None:
    async with wired(tmp_path, 1) as client:
        with pytest.raises(TemporaryError, match="default/a"):
            await client.report(AT)
        with pytest.raises(TemporaryError):
            await client.report(AT._replace(ip="::1"))


async def test_each_job_gets_its_own_token(tmp_path: Path) -> None:
    tokens: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        tokens.append(request.headers["Authorization"])
        return web.json_response(GOOD)

    async with responding(tmp_path, answer) as client:
        await client.report(AT)
        await client.report(AT._replace(job_uid="another"))
        await client.report(AT._replace(job=JobKey("default", "b")))
    assert tokens[0] == f"Bearer {controller_token(JOB)}"
    assert len(set(tokens)) == 3
