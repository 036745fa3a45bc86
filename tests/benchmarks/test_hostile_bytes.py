"""Changed bytes are read or refused by every parser and every port: a few of those that `make fuzz` tries."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from edl.errors import EdlError, TemporaryError
from edl.kube.client.api_errors import LONGEST_RETRY_AFTER_S, error_of
from edl.ledger.events import JournalError, decode_events
from tests.worlds.hostile import fuzz
from tests.worlds.hostile.changed_bytes import MOST_BYTES, changed
from tests.worlds.hostile.listeners import LISTENERS, answer_changed, serve_changed
from tests.worlds.hostile.readers import READERS, Reader


def few(most: int) -> fuzz.GoesOn:
    return lambda tried: tried < most


@pytest.mark.parametrize("name", READERS)
def test_no_changed_bytes_do_a_parser_harm(name: str) -> None:
    assert fuzz.read_changed(name, Random(7), few(12 if name == "scenario" else 150)) >= 0  # noqa: S311


@pytest.mark.parametrize("name", LISTENERS)
async def test_no_changed_request_does_a_port_harm(name: str, tmp_path: Path) -> None:
    assert await serve_changed(name, Random(7), few(40), tmp_path) > 10  # noqa: S311


async def test_no_changed_answer_of_a_master_does_the_controller_harm(tmp_path: Path) -> None:
    assert await answer_changed(Random(7), few(200), tmp_path) > 50  # noqa: S311


@pytest.mark.parametrize(
    ("reader", "says"),
    [
        (Reader((b"12",), lambda data, _: int(data)), "ValueError"),
        (Reader((b"12",), lambda *_: (_ for _ in ()).throw(EdlError())), "a valid input is refused"),
    ],
)
def test_what_nobody_expects_is_found(reader: Reader, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READERS, "planted", reader)
    with pytest.raises(fuzz.FoundError, match=f"planted: {says}"):
        fuzz.read_changed("planted", Random(7), few(300))  # noqa: S311


def test_memory_that_an_input_takes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([100.0, 200.0, 357.0, 357.0])
    monkeypatch.setattr(fuzz, "peak_mib", lambda: next(peaks))
    monkeypatch.setitem(READERS, "planted", Reader((b"12",), lambda *_: None))
    with pytest.raises(fuzz.FoundError, match="planted: 257 MiB more"):
        fuzz.read_changed("planted", Random(7), few(300))  # noqa: S311


def test_changes_are_the_same_for_a_seed_and_bounded() -> None:
    first, again = ([changed(b"abc 12", random) for _ in range(500)] for random in (Random(1), Random(1)))  # noqa: S311
    assert first == again
    assert max(map(len, first)) <= MOST_BYTES
    assert len(set(first)) > 200


@pytest.mark.parametrize("seconds", [10**400, 86_400])
def test_a_server_that_asks_to_wait_for_ever_is_asked_again_soon(seconds: int) -> None:
    body = b'{"details": {"retryAfterSeconds": %d}}' % seconds
    error = error_of(503, body, "list")
    assert isinstance(error, TemporaryError)
    assert error.retry_after_s == LONGEST_RETRY_AFTER_S


@pytest.mark.parametrize("record", [b"[" * 5000, b'[["grant"]]', b"[[[]]]", b'{"a": 1}', b'[["dataset", null]]'])
def test_a_record_that_no_ledger_writes_is_refused(record: bytes) -> None:
    with pytest.raises(JournalError, match="this version of edl cannot read the record"):
        decode_events(record)
