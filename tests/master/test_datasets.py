"""Data sets of files: each line and row once, and the messages about missing, damaged and changed files."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

# pyarrow ships without types.
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edl.worker.pieces
from edl.errors import PermanentError
from edl.ledger.events import DatasetSet, decode_events
from edl.ledger.permutation import BLOCK, EpochOrder
from edl.master import dataset_scan
from edl.master.bodies import DatasetBody
from edl.master.dataset_index import load_index
from edl.master.datasets import Catalog
from edl.worker.data import FileSource, read_records
from edl.worker.files import DatasetError, FileStore
from edl.worker.lease import BadRecord
from tests.worker.test_worker import in_thread, trainer
from tests.worlds.master_server import Served, serving

MAIN = "from edl.cli.main import main; main()"


def look(source: str, folder: Path | None = None) -> tuple[Catalog, DatasetSet]:
    """A catalog, and the data set that it finds."""
    catalog = Catalog(folder)
    return catalog, asyncio.run(catalog.describe(DatasetBody(source=source)))


def reading(source: str, folder: Path | None = None) -> tuple[FileSource, DatasetSet]:
    """The records as a trainer reads them, without a network in between."""
    catalog, found = look(source, folder)

    def locate(record: int) -> dict[str, Any]:
        piece = catalog.piece(found, record)
        rest = {"first": piece.first, "count": piece.records, "place": piece.place, "length": piece.length}
        return {**piece.file._asdict(), **rest}

    return FileSource(source, locate), found


def all_of(source: str) -> list[Any]:
    pieces, found = reading(source)
    return [pieces.record(number) for number in range(found.total)]


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]], group: int) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)


def train(served: Served, read: Any = None) -> list[Any]:
    with trainer(served) as job:
        return list(job.records(read))


# --- records


async def test_every_line_of_every_file_is_handed_out_once(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path, f"{name}.txt", b"".join(b"%s%d\n" % (name.encode(), n) for n in range(1500)))
    async with serving(tmp_path / "j", f"lines:{tmp_path}/*.txt", seed=3, shard_size=100) as served:
        found = await in_thread(lambda: train(served))
        assert served.master.status()["state"] == "finished"
    assert found != sorted(found)  # in the order of the seed
    assert sorted(found) == sorted(f"{name}{n}" for name in "ab" for n in range(1500))


async def test_every_row_of_every_group_is_handed_out_once(tmp_path: Path) -> None:
    rows = [{"number": n, "name": f"r{n}", "more": None if n % 7 else [n]} for n in range(3000)]
    write_parquet(tmp_path / "a.parquet", rows[:2500], 400)
    write_parquet(tmp_path / "b.parquet", rows[2500:], 400)
    async with serving(tmp_path / "j", f"parquet:{tmp_path}/*.parquet", seed=3) as served:
        found = await in_thread(lambda: train(served))
    assert sorted(found, key=lambda row: row["number"]) == rows


async def test_read_gets_each_line_and_a_line_that_it_rejects_is_quarantined(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", b"1\n2\nthree\n4\n")
    async with serving(tmp_path / "j", f"lines:{tmp_path}/a.txt", max_quarantined_fraction=0.5) as served:
        assert sorted(await in_thread(lambda: train(served, int))) == [1, 2, 4]
        assert served.master.status()["quarantined"] == 1


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),  # no line end at the end
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\nb", ["a", "b"]),
        (b"\n\na\n\n", ["", "", "a", ""]),  # empty lines are records
        (b"\r\n\r\n", ["", ""]),
        (b"\n", [""]),
        (b"a\rb\n", ["a\rb"]),  # not a line end
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),  # a byte order mark is not part of the first line
        ("ä\u2028ö\n\x0b\x0c\n".encode(), ["ä\u2028ö", "\x0b\x0c"]),  # str.splitlines would split here
        (b"\0\n", ["\0"]),
    ],
)
def test_what_a_line_is(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    write(tmp_path, "a.txt", data)
    assert all_of(f"lines:{tmp_path}/a.txt") == lines


@settings(max_examples=60)
@given(
    files=st.lists(st.lists(st.binary(max_size=40).map(lambda b: b.hex().encode()), max_size=30), max_size=4),
    chunk=st.integers(1, 64),
    piece=st.tuples(st.integers(1, 8), st.integers(1, 200)),
    open_end=st.booleans(),
)
def test_pieces_hold_every_line_whatever_their_size(
    files: list[list[bytes]], chunk: int, piece: tuple[int, int], open_end: bool
) -> None:
    lines = [line.decode() for file in files for line in file]
    if not lines:
        return
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset_scan, "_CHUNK_BYTES", chunk)
        patch.setattr(dataset_scan, "_PIECE_RECORDS", piece[0])
        patch.setattr(dataset_scan, "_PIECE_BYTES", piece[1])
        for number, file in enumerate(files):
            data = b"".join(line + b"\n" for line in file)
            ends = open_end and file and file[-1]
            write(Path(name), f"{number}.txt", data[:-1] if ends else data)
        assert all_of(f"lines:{name}/*.txt") == lines


def test_an_index_takes_little_memory_even_with_very_long_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.write(b"x" * 30_000_000 + b"\n")
        file.writelines([b"y" * 9 + b"\n"] * 2_000_000)
    tracemalloc.start()
    catalog, found = look(f"lines:{path}")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.total == 2_000_001
    assert peak < 2_000_000
    piece = catalog.piece(found, 1_000_000)
    assert piece.length <= 200_000


def test_the_cache_of_pieces_stays_within_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edl.worker.pieces._KEPT_BYTES", 100_000)
    monkeypatch.setattr("edl.worker.data.cache_limit", lambda _: 300_000)
    path = write(tmp_path, "a.txt", b"".join(b"%099d\n" % n for n in range(20_000)))
    pieces, found = reading(f"lines:{path}")
    for number in [*range(0, found.total, 500), 0, 19_999, 3]:
        assert int(pieces.record(number)) == number
        assert sum(piece.size for _, piece in pieces._cache._cache.values()) <= 300_000


def test_row_groups_are_permuted_as_a_whole_so_that_few_are_read_at_a_time(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [{"n": n} for n in range(20_000)], 5000)
    _, found = look(f"parquet:{tmp_path}/a.parquet")
    assert (found.total, found.block) == (20_000, 5000)
    write_parquet(tmp_path / "b.parquet", [{"n": n} for n in range(20)], 5)
    assert look(f"parquet:{tmp_path}/b.parquet")[1].block == BLOCK


def test_large_rows_are_read_and_turned_into_objects_about_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edl.worker.pieces._KEPT_BYTES", 1_000_000)  # less than one row group
    write_parquet(tmp_path / "a.parquet", [{"n": n, "text": "x" * 5000} for n in range(1200)], 1200)
    write_parquet(tmp_path / "b.parquet", [{"n": n, "text": "x" * 5000} for n in range(1200, 3000)], 1800)
    pieces, found = reading(f"parquet:{tmp_path}/*.parquet")
    reads, real = [], edl.worker.pieces.read_piece

    def read(store: FileStore, place: dict[str, Any]) -> Any:
        reads.append(place["first"])
        return real(store, place)

    monkeypatch.setattr("edl.worker.pieces.read_piece", read)
    order = EpochOrder(found.total, 1, 0, found.block)
    assert [pieces.record(order.record(n))["n"] for n in range(3000)] == list(order.records(0, 3000))
    assert len(reads) <= 3, "each of the two row groups about once"
    assert all(
        len(chunk) <= 13 for _, rows in pieces._cache._cache.values() for chunk in vars(rows)["_chunks"].values()
    )


def test_a_journal_without_a_block_size_keeps_its_order() -> None:
    (event,) = decode_events(b'[["dataset","index:5","",5,1,0,null,0.01,0]]')
    assert isinstance(event, DatasetSet)
    assert event.block == BLOCK


# --- data sets that the master refuses


# --- files that change


async def test_a_trainer_refuses_a_file_that_has_changed_and_blames_no_record(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"a\nb\nc\n")
    async with serving(tmp_path / "j", f"lines:{path}") as served:
        path.write_bytes(b"a\nB\nc\n")
        os.utime(path, (1, 1))
        with pytest.raises(DatasetError, match=r"a\.txt has changed: it had 6 bytes .* create a new job"):
            await in_thread(lambda: train(served))
        state = served.master._ledger.state
        assert (state.available, state.suspects, state.leases) == (3, {}, {})


async def test_a_trainer_names_a_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, last_words = write(tmp_path, "a.txt", b"a\nb\nc\n"), write(tmp_path, "log", b"")
    monkeypatch.setenv("EDL_TERMINATION_LOG", str(last_words))
    async with serving(tmp_path / "j", f"lines:{path}") as served:
        path.unlink()
        with pytest.raises(PermanentError, match=r"a\.txt is missing; the master and every trainer need it"):
            await in_thread(lambda: train(served))
        assert served.master.status()["todo"] == 3
    assert last_words.read_text().endswith("a.txt is missing; the master and every trainer need it there\n")


def test_a_line_that_is_not_utf_8_is_one_bad_record(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", b"good\nb\xe4d\ngood\n")
    pieces, _ = reading(f"lines:{tmp_path}/a.txt")
    assert read_records(pieces, [0, 2], None) == ["good", "good"]
    bad = read_records(pieces, [0, 1, 2], None)
    assert isinstance(bad, BadRecord)
    assert bad.index == 1
    assert "line 2 is not UTF-8: invalid continuation byte at byte 2 of the line; convert the file" in bad.error


async def test_lines_that_are_not_utf_8_are_quarantined_and_too_many_of_them_fail_the_job(tmp_path: Path) -> None:
    write(tmp_path, "few.txt", b"good\n" * 99 + b"\xff\n")
    async with serving(tmp_path / "few", f"lines:{tmp_path}/few.txt") as served:
        assert await in_thread(lambda: train(served)) == ["good"] * 99
    write(tmp_path, "many.txt", b"\xff\n" * 10)
    async with serving(tmp_path / "many", f"lines:{tmp_path}/many.txt") as served:
        with pytest.raises(PermanentError, match="more than maxQuarantinedFraction allows"):
            await in_thread(lambda: train(served))


def test_a_damaged_row_group_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, [{"n": "x" * 50 + str(n)} for n in range(1000)], 500)
    data = bytearray(path.read_bytes())
    data[20:2000] = bytes(1980)
    path.write_bytes(data)
    pieces, _ = reading(f"parquet:{path}")
    with pytest.raises(DatasetError, match="row group 0 cannot be read"):
        pieces.record(0)


def test_an_index_survives_a_restart_and_a_damaged_one_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "a.txt", b"a\n" * 5000)
    catalog, found = look(f"lines:{path}", tmp_path)
    (stored,) = tmp_path.glob("dataset-*")
    read: list[int] = []
    scan = dataset_scan._scan_lines

    def counted(*call: Any) -> None:
        read.append(1)
        scan(*call)

    monkeypatch.setattr(dataset_scan, "_scan_lines", counted)
    numbers = range(0, 5000, 99)
    again = Catalog(tmp_path)
    again.reopen(found)
    assert read == []
    assert [again.piece(found, n) for n in numbers] == [catalog.piece(found, n) for n in numbers]
    data = bytearray(stored.read_bytes())
    for place in (0, 10, len(data) // 2, len(data) - 1):
        stored.write_bytes(bytes(data[:place]) + bytes([data[place] ^ 1]) + bytes(data[place + 1 :]))
        assert load_index(tmp_path, found.version) is None
    rebuilt = Catalog(tmp_path)
    rebuilt.reopen(found)
    assert read == [1]
    assert rebuilt.piece(found, 4999) == catalog.piece(found, 4999)


# --- the extras


@pytest.mark.parametrize(("source", "packages"), [("lines:/data/*", "fsspec"), ("parquet:/data/*", "fsspec pyarrow")])
def test_a_missing_extra_is_named_with_its_remedy(source: str, packages: str) -> None:
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "import edl.worker\n"
        "from edl.errors import ConfigError\n"
        "from edl.worker.data import source_of\n"
        "assert source_of({'source': 'index:3'}, dict).record(2) == 2\n"
        f"try: source_of({{'source': {source!r}}}, dict)\n"
        "except ConfigError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True, check=True)
    assert f"needs the package fsspec, which is not installed here; run pip install {packages}\n" in done.stdout


def test_missing_torch_is_named_with_its_remedy() -> None:
    code = "import sys; sys.path.insert(0, '.'); import edl.worker_torch"
    done = subprocess.run([sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("not installed here; run pip install torch\n"), done.stderr
    assert "edl[" not in done.stderr.splitlines()[-1]
