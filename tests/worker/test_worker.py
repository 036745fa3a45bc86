"""A training loop with a real master."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from edl.errors import ConfigError, PermanentError
from edl.ledger.permutation import EpochOrder
from edl.master.journal_audit import audit, audit_json, audit_text
from edl.worker.connection import MasterConnection
from edl.worker.job import Job, connect
from edl.worker.session import MasterSession
from tests.worlds.master_server import CONTROLLER, TOKEN, Served, serving

TLS = Path(__file__).parents[1] / "worlds" / "tls"
_T = TypeVar("_T")


def trainer(served: Served, name: str = "a", token: str = TOKEN, ca_file: str | None = None) -> Job:
    environment = {"POD_NAME": name, "POD_UID": f"uid-{name}"}
    return connect(served.url, token=token, ca_file=ca_file, environment=environment)


@contextlib.contextmanager
def ended_by_its_error(job: Job) -> Iterator[Job]:
    """An error of the block ends the job, as the error of a script does that has no `with` of its own."""
    try:
        yield job
    except BaseException as error:
        job.__exit__(type(error), error, error.__traceback__)
        raise


def slowly(record: int) -> int:
    time.sleep(0.001)
    return record


async def in_thread(work: Callable[[], _T], seconds: float = 30.0) -> _T:
    """Run a training loop in a thread, while the master serves."""
    async with asyncio.timeout(seconds):
        return await asyncio.to_thread(work)


async def test_one_trainer_gets_every_record_of_every_epoch_in_the_order_of_the_seed(tmp_path: Path) -> None:
    def loop() -> list[tuple[int, int]]:
        with trainer(served) as job:
            return [(job.epoch, record) for record in job.records()]

    async with serving(tmp_path, "index:500", epochs=2, seed=9) as served:
        assert await in_thread(loop) == [(e, r) for e in range(2) for r in EpochOrder(500, 9, e).records(0, 500)]
        assert served.master.status()["state"] == "finished"


async def test_trainers_share_and_each_loop_ends_with_the_job(tmp_path: Path) -> None:
    def loop(name: str) -> list[int]:
        with trainer(served, name) as job:
            return [slowly(record) for record in job.records()]

    async with serving(tmp_path, "index:600", shard_size=20) as served:
        parts = await asyncio.gather(*(in_thread(functools.partial(loop, name)) for name in "abc"))
    assert sorted(record for part in parts for record in part) == list(range(600))
    assert all(len(part) > 50 for part in parts)


async def test_a_trainer_that_gets_no_record_logs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def loop(name: str) -> list[int]:
        with trainer(served, name) as job:
            return sorted(job.records())

    async with serving(tmp_path, "index:3") as served:
        assert await in_thread(lambda: loop("early")) == [0, 1, 2]
        assert not caplog.messages
        assert await in_thread(lambda: loop("late")) == []
    (message,) = caplog.messages
    assert message.startswith("this trainer got no record, because the job has used all of its data; ")


async def test_the_current_record_and_prefetched_records_are_never_acknowledged(tmp_path: Path) -> None:
    def loop() -> None:
        with trainer(served) as job:
            for number, _ in enumerate(job.records()):
                if number == 7:  # the loop has the eighth record
                    break

    async with serving(tmp_path, shard_size=5) as served:
        await in_thread(loop)
        status = served.master.status()
        assert (status["done"], status["leased"], status["todo"]) == (7, 0, 93)


class HeldConnection(MasterConnection):
    """A connection that holds answers back until the test lets them through."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url, token)
        self.answered, self.let_through = threading.Event(), threading.Event()

    def call(self, method: str, path: str, body: bytes | None, timeout_s: float) -> dict[str, Any]:
        reply = super().call(method, path, body, timeout_s)
        self.answered.set()
        assert self.let_through.wait(60)
        return reply


async def test_leases_that_arrive_while_a_trainer_closes_are_given_back(tmp_path: Path) -> None:
    def leave() -> None:
        session.start()
        assert wire.answered.wait(60)
        assert served.master.status()["leased"] > 0
        closing = threading.Thread(target=session.close)
        closing.start()
        while not session._is_closing:
            time.sleep(0.001)
        wire.let_through.set()
        closing.join()

    async with serving(tmp_path) as served:
        wire = HeldConnection(served.url, TOKEN)
        session = MasterSession(wire, {"pod_uid": "uid-a", "incarnation": "i", "name": "a"})
        await in_thread(leave)
        status = served.master.status()
    assert (status["leased"], status["sessions"]["holding"], status["todo"]) == (0, 0, 100)


async def test_an_error_in_the_loop_blames_the_current_record_and_gives_the_rest_back(tmp_path: Path) -> None:
    def loop() -> None:
        with trainer(served) as job:
            for number, _ in enumerate(job.records()):
                if number == 3:
                    raise ZeroDivisionError("a bad record")

    async with serving(tmp_path, shard_size=5) as served:
        with pytest.raises(ZeroDivisionError):
            await in_thread(loop)
        state = served.master._ledger.state
        assert state.done_ranges().size == 3
        assert sorted(state.suspects) == [3, 4]
        assert not state.leases


async def test_a_record_that_cannot_be_read_is_quarantined_by_its_number(tmp_path: Path) -> None:
    def read(record: int) -> int:
        if record == 42:
            raise ValueError("torn")
        return record

    def loop() -> list[int]:
        with trainer(served) as job:
            return list(job.records(read))

    async with serving(tmp_path, shard_size=20) as served:
        assert sorted(await in_thread(loop)) == [n for n in range(100) if n != 42]
        status = served.master.status()
        assert (status["state"], status["done"], status["quarantined"]) == ("finished", 99, 1)
        assert status["quarantined_records"] == [42]
    report = audit(tmp_path)
    assert "  quarantined: record 42\n" in audit_text(report)
    assert json.loads(audit_json(report))["epochs"][0]["records"] == [42]


async def test_a_job_with_too_many_bad_records_fails_in_every_trainer(tmp_path: Path) -> None:
    def loop() -> list[int]:
        with trainer(served) as job:
            return list(job.records(lambda record: record // (record % 2)))

    async with serving(tmp_path, "index:10", shard_size=5) as served:
        with pytest.raises(PermanentError, match="more than maxQuarantinedFraction allows"):
            await in_thread(loop)


async def test_a_trainer_without_a_master_stops_at_its_deadline_and_waits(tmp_path: Path) -> None:
    seen: list[tuple[float, int]] = []
    begun, cut_off, done = threading.Event(), threading.Event(), threading.Event()

    def loop() -> None:
        with trainer(served) as job:
            for record in job.records():
                seen.append((time.monotonic(), record))
                begun.set()
                cut_off.wait(60)
                time.sleep(0.01)
        done.set()

    ttl_s = 0.6
    async with serving(tmp_path / "j", "index:300", shard_size=100, ttl_s=ttl_s) as served:
        port = served.port
        running = asyncio.create_task(in_thread(loop, 60))
        assert await in_thread(lambda: begun.wait(60))
    left_s = time.monotonic()
    cut_off.set()
    await asyncio.sleep(3 * ttl_s)
    assert not done.is_set(), "the loop ended before job_end"
    assert max(at for at, _ in seen) < left_s + ttl_s + 0.1
    async with serving(tmp_path / "j", None, ttl_s=ttl_s, port=port) as served:
        await running
        assert served.master.status()["state"] == "finished"
    assert {record for _, record in seen} == set(range(300))


async def test_a_trainer_that_waits_for_its_master_longer_than_a_lease_lasts_then_trains(tmp_path: Path) -> None:
    ttl_s, seen = 1.5, list[int]()

    def loop() -> None:
        with connect(url, token=TOKEN, environment={"POD_NAME": "a", "POD_UID": "uid-a"}) as job:
            seen.extend(job.records())

    async with serving(tmp_path, "index:300", shard_size=100, ttl_s=ttl_s) as served:
        port, url = served.port, served.url
    running = asyncio.create_task(in_thread(loop, 60))
    await asyncio.sleep(2 * ttl_s)
    async with serving(tmp_path, None, ttl_s=ttl_s, port=port):
        await running
    assert sorted(seen) == list(range(300))


async def test_a_wrong_token_raises_an_error_in_the_loop(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        with pytest.raises(PermanentError, match="foreign_token"):
            await in_thread(lambda: list(trainer(served, token=CONTROLLER[::-1]).__enter__().records()))


async def test_a_checkpoint_covers_consumed_records_and_one_trainer_saves(tmp_path: Path) -> None:
    def loop() -> tuple[bool, bool]:
        with trainer(served, "a") as job, trainer(served, "b") as other:
            records = job.records()
            for number in range(8):  # the loop has the eighth
                next(records)
                if number == 5:
                    job._session.flush()  # so that only the checkpoint reports the seventh
            saves = job.should_save(1), other.should_save(1)
            with job.checkpoint(1):
                pass
            records.close()
            return saves

    async with serving(tmp_path, shard_size=5) as served:
        assert await in_thread(loop) == (True, False)
        await served.master.restore(None)
        assert served.master.status()["committed"] == 7


async def test_a_failed_save_commits_nothing(tmp_path: Path) -> None:
    def loop() -> None:
        with trainer(served) as job, job.checkpoint(1):
            raise OSError("no capacity for the model")

    async with serving(tmp_path) as served:
        with pytest.raises(OSError, match="no capacity"):
            await in_thread(loop)
        assert served.master.status()["checkpoint"] is None


async def test_training_code_may_set_the_data_set(tmp_path: Path) -> None:
    def loop() -> list[int]:
        with trainer(served) as job:
            job.set_dataset("index:30", seed=1, shard_size=4)
            job.set_dataset("index:30", seed=1, shard_size=4)
            with pytest.raises(PermanentError, match="another data set"):
                job.set_dataset("index:31")
            return list(job.records())

    async with serving(tmp_path, None) as served:
        assert sorted(await in_thread(loop)) == list(range(30))


async def test_a_master_with_tls_needs_a_trusted_certificate(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    async with serving(tmp_path, "index:30", tls=context) as served:
        trusted = trainer(served, ca_file=str(TLS / "cert.pem"))

        def loop() -> list[int]:
            with trusted as job:
                return list(job.records())

        assert sorted(await in_thread(loop)) == list(range(30))
        with pytest.raises(PermanentError, match="certificate"):
            await in_thread(lambda: trainer(served).status())


def offline_session() -> MasterSession:
    """A session that sends no request; a test applies replies to it."""
    return MasterSession(
        MasterConnection("http://localhost:1", "token"), {"pod_uid": "u", "incarnation": 1, "name": "n"}
    )


def apply_reply(session: MasterSession, reply: dict[str, Any]) -> None:
    with session._lock:
        session._apply_reply(reply, ([], []), time.monotonic(), 0.0)


def test_a_truncate_leaves_the_current_record_to_the_loop() -> None:
    session = MasterSession(
        MasterConnection("http://localhost:1", "token"), {"pod_uid": "u", "incarnation": 1, "name": "n"}
    )
    nothing: dict[str, Any] = {
        "results": [],
        "truncate": [],
        "revoked": [],
        "leases": [],
        "epoch": 0,
        "status": "run",
    }
    ranges = [{"epoch": 0, "start": n, "end": n + 10, "fence": n + 7, "ttl_s": 60.0} for n in (0, 10)]
    apply_reply(session, {**nothing, "leases": ranges})
    lease = next(session.leases())
    positions = lease.positions()
    assert [next(positions) for _ in range(6)] == list(range(6))  # five are consumed, the loop has the sixth
    cuts = [{"fence": 7, "end": 3}, {"fence": 17, "end": 10}]
    apply_reply(session, {**nothing, "truncate": cuts})
    body, _ = session._build_request()
    assert body["progress"] == [{"epoch": 0, "start": 0, "end": 6, "fence": 7, "cursor": 5}]
    assert list(positions) == []
    body, _ = session._build_request()
    assert (body["progress"], body["done"]) == ([], [{"epoch": 0, "start": 0, "end": 6, "fence": 7}])


def test_the_loop_leaves_a_revoked_lease_at_once() -> None:
    session = MasterSession(
        MasterConnection("http://localhost:1", "token"), {"pod_uid": "u", "incarnation": 1, "name": "n"}
    )
    nothing: dict[str, Any] = {
        "results": [],
        "truncate": [],
        "revoked": [],
        "leases": [],
        "epoch": 0,
        "status": "run",
    }
    ranges = [{"epoch": 0, "start": n, "end": n + 10, "fence": n + 7, "ttl_s": 60.0} for n in (0, 10)]
    apply_reply(session, {**nothing, "leases": ranges})
    positions = next(session.leases()).positions()
    assert next(positions) == 0
    apply_reply(session, {**nothing, "revoked": [7]})
    assert list(positions) == []
    assert next(session.leases()).start == 10
    assert session._build_request()[0]["done"] == []


@pytest.mark.parametrize(
    ("master", "token", "text"),
    [
        ("", "t", "EDL_MASTER"),
        ("ftp://x", "t", "not the URL of a master"),
        ("http://x:y", "t", "not the URL of a master"),
        ("http://x", "", "EDL_TOKEN_FILE"),
    ],
)
def test_a_missing_or_wrong_setting_is_named(master: str, token: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        connect(master or None, token=token or None, environment={})


def test_the_package_needs_only_the_standard_library() -> None:
    code = "import sys; sys.path.insert(0, '.'); import edl.worker; print({m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True, check=True)
    assert "edl" in done.stdout
    assert not {"aiohttp", "msgspec", "numpy", "pydantic", "typer"} & set(done.stdout.split("'"))
