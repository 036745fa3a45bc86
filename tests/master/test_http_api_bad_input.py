"""Bad input, one case for each kind: the answer is clear, and the state does not change."""

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
from tests.worker.test_worker import in_thread, slowly, trainer
from tests.worlds.master_server import TOKEN, Served, serving

WHO = {"pod_uid": "uid-a", "incarnation": 1, "name": "a"}
ROSTER = {"generation": 1, "pods": []}


def token(job: str, role: str = "trainer") -> str:
    return hmac.new(b"the cluster's key", f"{job}/{role}".encode(), hashlib.sha256).hexdigest()


def held(served: Served) -> tuple[Any, Any]:
    """The complete state of a master: the durable part, and the cursors of its leases."""
    state = served.master._ledger.state
    return state_to_json(state), [(x.fence, x.cursor) for x in state.leases.values()]


async def leased(served: Served) -> dict[str, int]:
    """Trainer a has reported one lease and holds another."""
    _, answer = await served.sync("a", 1, want=2)
    first, second = ({k: x[k] for k in ("epoch", "start", "end", "fence")} for x in answer["leases"])
    assert (await served.sync("a", 2, done=[first]))[1]["results"] == ["accepted"]
    return second


def sync(**fields: Any) -> bytes:
    return json.dumps({"session": WHO, "seq": 3, **fields}).encode()


REFUSED: dict[str, tuple[str, str, bytes, str | None, int, str, str]] = {
    "no token": ("POST", "sync", sync(), None, 401, "no_token", "needs the job's token"),
    "a wrong token": ("POST", "sync", sync(), "x", 403, "foreign_token", "does not belong to this job"),
    "a foreign job's token": (
        "POST",
        "sync",
        sync(),
        token("ads/b/1"),
        403,
        "foreign_token",
        "not belong to this job",
    ),
    "the token of the job that had this name": (
        *("POST", "sync", sync(), token("ads/a/0")),
        *(403, "foreign_token", "read it again from the file EDL_TOKEN_FILE"),
    ),
    "a trainer's token on the roster": (
        *("PUT", "roster", json.dumps(ROSTER).encode(), token("ads/a/1")),
        *(403, "wrong_role", "only the controller publishes it"),
    ),
    "a foreign controller's token on the roster": (
        *("PUT", "roster", json.dumps(ROSTER).encode(), token("ads/b/1", "controller")),
        *(403, "foreign_token", "does not belong to this job"),
    ),
    "an oversized body": ("POST", "sync", b" " * 70_000, TOKEN, 413, "too_large", "larger than 65536 bytes"),
    "NaN": ("POST", "sync", sync(wait_s=float("nan")), TOKEN, 400, "malformed", "malformed"),
    "infinity": ("POST", "sync", sync(wait_s=float("inf")), TOKEN, 400, "malformed", "malformed"),
    "a key twice": (
        *("POST", "sync", sync()[:-1] + b', "seq": 4}', TOKEN),
        *(400, "malformed", "an object has the key 'seq' twice"),
    ),
    "an unknown field": ("POST", "sync", sync(wants=1), TOKEN, 400, "malformed", "unknown field `wants`"),
    "a hand after the end of the lease": (
        *("POST", "sync"),
        sync(progress=[{"epoch": 0, "start": 0, "end": 5, "fence": 4, "cursor": 1, "hand": 6}]),
        *(TOKEN, 400, "malformed", "the hand 6 is after the end 5"),
    ),
    "an old seq": (
        *("POST", "sync", json.dumps({"session": WHO, "seq": 1, "want": 5}).encode(), TOKEN),
        *(409, "conflict", "seq 1 is older than 2"),
    ),
    "an unknown checkpoint": (
        *("POST", "checkpoint/commit", b'{"id": 77}', TOKEN),
        *(404, "unknown_checkpoint", "77"),
    ),
    "another data set": (
        *("POST", "dataset", b'{"source": "index:99", "shardSize": 10}', TOKEN),
        *(409, "conflict", "source is 'index:100', not 'index:99'"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_bad_input_is_refused_with_a_message_and_changes_nothing(tmp_path: Path, name: str) -> None:
    method, route, body, shown, status, code, text = REFUSED[name]
    mine = TOKEN if shown == TOKEN else token("ads/a/1")
    async with serving(tmp_path, shard_size=10, token=mine, controller=token("ads/a/1", "controller")) as served:
        await leased(served)
        before = held(served)
        async with asyncio.timeout(60):
            answered, answer = await served.ask(method, f"/v1/{route}", body, token=shown)
        assert (answered, answer["error"]["code"]) == (status, code)
        assert text in answer["error"]["code"] + ": " + answer["error"]["message"]
        assert held(served) == before


STALE: dict[str, dict[str, Any]] = {
    "a fence that was never granted": {"fence": 10**9},
    "another epoch": {"epoch": 1},
    "another range": {"start": 0},
    "an end after the end of the lease": {"end": 50},
}


@pytest.mark.parametrize("kind", ["done", "failed", "progress"])
@pytest.mark.parametrize("name", STALE)
async def test_an_item_without_a_current_lease_is_stale_and_changes_nothing(
    tmp_path: Path, name: str, kind: str
) -> None:
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
    """The wall clock of the master and of the trainers; a test can set it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0.0
        now_s, now_ns = time.time, time.time_ns
        patch.setattr(time, "time", lambda: now_s() + self.ahead_s)
        patch.setattr(time, "time_ns", lambda: now_ns() + int(self.ahead_s * 1e9))


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
async def test_no_lease_expires_if_the_masters_clock_jumps_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    clock = Clock(monkeypatch)
    async with serving(tmp_path, shard_size=10) as served:
        item = await leased(served)
        before = held(served)
        clock.ahead_s = jump_s
        served.master._execute(lambda: served.master._ledger.tick(served.master._clock.monotonic_s()))
        assert held(served) == before
    async with serving(tmp_path, shard_size=10) as served:  # restarted after the jump
        assert held(served)[0] == before[0]
        assert (await served.sync("a", 3, done=[item]))[1]["results"] == ["accepted"]


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
async def test_training_continues_if_a_trainers_clock_jumps_an_hour(
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
        assert sorted(await in_thread(loop)) == list(range(200))
        assert served.master.status()["redispatched"] == 0


async def test_a_trainer_that_restarts_after_its_clock_was_set_back_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)

    def some(count: int) -> list[int]:
        with trainer(served) as job:
            return [record for record, _ in zip(job.records(), range(count), strict=False)]

    async with serving(tmp_path, shard_size=10) as served:
        assert len(await in_thread(lambda: some(5))) == 5
        clock.ahead_s = -3600.0
        assert len(await in_thread(lambda: some(5))) == 5
