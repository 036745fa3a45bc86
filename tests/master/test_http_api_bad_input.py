"""Bad input, each kind by its name: a clear answer, and the state is as it was."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import pytest

from edl.ledger.snapshot import state_to_json
from tests.worker.test_worker import beside, slowly, trainer
from tests.worlds.master_server import TOKEN, Served, serving

WHO = {"pod_uid": "uid-a", "incarnation": 1, "name": "a"}
ROSTER = {"generation": 1, "pods": []}


def token(job: str, role: str = "trainer") -> str:
    return hmac.new(b"the cluster's key", f"{job}/{role}".encode(), hashlib.sha256).hexdigest()


def held(served: Served) -> tuple[Any, Any]:
    """Everything that a master knows: what is durable, and what its trainers have told."""
    state = served.master._ledger.state
    return state_to_json(state), [(x.fence, x.cursor) for x in state.leases.values()]


async def leased(served: Served) -> dict[str, int]:
    """Trainer a has one lease and has reported another."""
    _, answer = await served.sync("a", 1, want=2)
    first, second = ({k: x[k] for k in ("epoch", "start", "end", "fence")} for x in answer["leases"])
    assert (await served.sync("a", 2, done=[first]))[1]["results"] == ["accepted"]
    return second


def sync(**fields: Any) -> bytes:
    return json.dumps({"session": WHO, "seq": 3, **fields}).encode()


REFUSED: dict[str, tuple[str, str, bytes, str | None, int, str, str]] = {
    "no token": ("POST", "sync", sync(), None, 401, "no_token", "needs the job's token"),
    "a wrong token": ("POST", "sync", sync(), "x", 403, "foreign_token", "none of this job's"),
    "a foreign job's token": ("POST", "sync", sync(), token("ads/b/1"), 403, "foreign_token", "none of this job's"),
    "the token of the job that had this name": (
        *("POST", "sync", sync(), token("ads/a/0")),
        *(403, "foreign_token", "read EDL_TOKEN_FILE again"),
    ),
    "a trainer's token on the roster": (
        *("PUT", "roster", json.dumps(ROSTER).encode(), token("ads/a/1")),
        *(403, "wrong_role", "only the controller publishes the roster"),
    ),
    "a foreign controller's token on the roster": (
        *("PUT", "roster", json.dumps(ROSTER).encode(), token("ads/b/1", "controller")),
        *(403, "foreign_token", "none of this job's"),
    ),
    "an oversized body": ("POST", "sync", b" " * 70_000, TOKEN, 413, "too_large", "larger than 65536 bytes"),
    "NaN": ("POST", "sync", sync(wait_s=float("nan")), TOKEN, 400, "malformed", "malformed"),
    "infinity": ("POST", "sync", sync(wait_s=float("inf")), TOKEN, 400, "malformed", "malformed"),
    "a key twice": (
        *("POST", "sync", sync()[:-1] + b', "seq": 4}', TOKEN),
        *(400, "malformed", "the key 'seq' stands twice"),
    ),
    "an unknown field": ("POST", "sync", sync(wants=1), TOKEN, 400, "malformed", "unknown field `wants`"),
    "what is in hand ends behind the lease": (
        *("POST", "sync"),
        sync(progress=[{"epoch": 0, "start": 0, "end": 5, "fence": 4, "cursor": 1, "hand": 6}]),
        *(TOKEN, 400, "malformed", "what is in hand ends at 6, behind the end 5"),
    ),
    "a seq of long ago": (
        *("POST", "sync", json.dumps({"session": WHO, "seq": 1, "want": 5}).encode(), TOKEN),
        *(409, "conflict", "seq 1 is older than 2"),
    ),
    "a checkpoint that nobody began": (
        *("POST", "checkpoint/commit", b'{"id": 77}', TOKEN),
        *(404, "unknown_checkpoint", "77"),
    ),
    "another data set": (
        *("POST", "dataset", b'{"source": "index:99", "shardSize": 10}', TOKEN),
        *(409, "conflict", "source is 'index:100', not 'index:99'"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_it_is_refused_in_a_sentence_and_changes_nothing(tmp_path: Path, name: str) -> None:
    method, route, body, shown, status, code, says = REFUSED[name]
    mine = TOKEN if shown == TOKEN else token("ads/a/1")
    async with serving(tmp_path, shard_size=10, token=mine, controller=token("ads/a/1", "controller")) as served:
        await leased(served)
        before = held(served)
        async with asyncio.timeout(5):
            told, answer = await served.ask(method, f"/v1/{route}", body, token=shown)
        assert (told, answer["error"]["code"]) == (status, code)
        assert says in answer["error"]["code"] + ": " + answer["error"]["message"]
        assert held(served) == before


STALE: dict[str, dict[str, Any]] = {
    "a fence that was never granted": {"fence": 10**9},
    "another epoch": {"epoch": 1},
    "another range": {"start": 0},
    "an end behind the lease's": {"end": 50},
}


@pytest.mark.parametrize("kind", ["done", "failed", "progress"])
@pytest.mark.parametrize("name", STALE)
async def test_what_names_no_present_lease_is_stale_and_changes_nothing(tmp_path: Path, name: str, kind: str) -> None:
    extras: dict[str, dict[str, Any]] = {"done": {}, "failed": {"error": "bad"}, "progress": {"cursor": 20}}
    async with serving(tmp_path, shard_size=10) as served:
        item = await leased(served)
        before = held(served)
        status, answer = await served.sync("a", 3, **{kind: [{**item, **STALE[name], **extras[kind]}]})
        assert status == 200
        assert answer["results"] == ([] if kind == "progress" else ["stale"])
        assert held(served) == before


async def test_another_trainers_fence_is_stale_and_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, shard_size=10) as served:
        item = await leased(served)
        await served.sync("b", 1)
        before = held(served)
        assert (await served.sync("b", 2, done=[item]))[1]["results"] == ["stale"]
        assert held(served) == before
        assert (await served.sync("a", 3, done=[item]))[1]["results"] == ["accepted"]


# --- clocks


class Clock:
    """The clock on the wall, of master and trainers alike; it may be set."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0.0
        now_s, now_ns = time.time, time.time_ns
        patch.setattr(time, "time", lambda: now_s() + self.ahead_s)
        patch.setattr(time, "time_ns", lambda: now_ns() + int(self.ahead_s * 1e9))


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
async def test_a_masters_clock_that_jumps_an_hour_expires_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    clock = Clock(monkeypatch)
    async with serving(tmp_path, shard_size=10) as served:
        item = await leased(served)
        before = held(served)
        clock.ahead_s = jump_s
        served.master._do(lambda: served.master._ledger.tick(served.master._clock.monotonic_s()))
        assert held(served) == before
    async with serving(tmp_path, shard_size=10) as served:  # started again after the jump
        assert held(served)[0] == before[0]
        assert (await served.sync("a", 3, done=[item]))[1]["results"] == ["accepted"]


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
async def test_a_trainers_clock_that_jumps_an_hour_loses_nothing_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    clock = Clock(monkeypatch)

    def loop() -> list[int]:
        found = []
        with trainer(served) as job:
            for record in job.records(slowly):
                clock.ahead_s = jump_s if record % 2 else 0.0
                found.append(record)
        return found

    async with serving(tmp_path, "index:200", shard_size=20, ttl_s=5) as served:
        assert sorted(await beside(loop)) == list(range(200))
        assert served.master.status()["redispatched"] == 0


async def test_a_trainer_that_starts_again_after_its_clock_was_set_back_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)

    def some(count: int) -> list[int]:
        with trainer(served) as job:
            return [record for record, _ in zip(job.records(), range(count), strict=False)]

    async with serving(tmp_path, shard_size=10) as served:
        assert len(await beside(lambda: some(5))) == 5
        clock.ahead_s = -3600.0
        assert len(await beside(lambda: some(5))) == 5
