"""Samples of tar files, and several sources mixed by weight with an account of each."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import logging
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl.errors import ConfigError
from edl.ledger.permutation import WINDOW, EpochOrder
from edl.master import dataset_scan
from edl.master.bodies import DatasetBody
from edl.master.datasets import Catalog
from edl.master.mixture_progress import done_by_source
from edl.worker import pieces
from edl.worker.data import FileSource, read_records
from edl.worker.files import DatasetError
from edl.worker.lease import BadRecord
from edl.worker.mix import Mixture
from tests.master.test_datasets import all_of, look, reading, train, write
from tests.worker.test_worker import in_thread, trainer
from tests.worlds.master_server import Served, serving


def write_tar(path: Path, files: list[tuple[str, bytes]], kind: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=kind) as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def sample_files(count: int, size: int = 10, folder: str = "train/") -> list[tuple[str, bytes]]:
    found = []
    for n in range(count):
        found += [(f"{folder}{n:06d}.jpg", bytes([n % 256]) * size), (f"{folder}{n:06d}.cls", str(n).encode())]
    return found


def some_of(served: Served, count: int) -> list[Any]:
    """The first records of a trainer that leaves then; it does not consume one more that it gets."""
    with trainer(served) as job:
        records = job.records()
        found = [next(records) for _ in range(count + 1)]
        records.close()
    return found[:-1]


# --- tar


@pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_each_sample_of_tar_files_is_a_record(tmp_path: Path, kind: int) -> None:
    write_tar(tmp_path / "a.tar", sample_files(2500), kind)
    write_tar(tmp_path / "b.tar", sample_files(3, folder="x/"), kind)
    found = all_of(f"tar:{tmp_path}/*.tar")
    assert len(found) == 2503
    assert found[17] == {"__key__": "train/000017", "jpg": bytes([17]) * 10, "cls": b"17"}
    assert [int(one["cls"]) for one in found] == [*range(2500), 0, 1, 2]


def test_long_names_and_large_samples_are_in_pieces_that_can_be_read_alone(tmp_path: Path) -> None:
    folder = "long/" * 60
    write_tar(tmp_path / "a.tar", sample_files(40, size=200_000, folder=folder))
    source, found = reading(f"tar:{tmp_path}/a.tar")
    for number in (39, 0, 20):
        assert source.record(number)["__key__"] == f"{folder}{number:06d}"
        assert source.record(number)["jpg"] == bytes([number]) * 200_000
    assert found.total == 40


def test_files_that_belong_to_no_sample_are_left_out(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, kind in (
            ("./", tarfile.DIRTYPE),
            ("README", tarfile.REGTYPE),
            ("__meta.json__", tarfile.REGTYPE),
            (".hidden", tarfile.REGTYPE),
            ("a.v1/b.SEG.png", tarfile.REGTYPE),
            ("a.v1/b.link", tarfile.SYMTYPE),
            ("a.v1/c.txt", tarfile.REGTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type = kind
            archive.addfile(member)
    assert all_of(f"tar:{tmp_path}/a.tar") == [
        {"__key__": "a.v1/b", "seg.png": b""},
        {"__key__": "a.v1/c", "txt": b""},
    ]


def test_a_field_that_comes_twice_is_one_bad_record(tmp_path: Path) -> None:
    files = [("a.txt", b"1"), ("a.TXT", b"2"), ("b.txt", b"3")]
    source, _ = reading(f"tar:{write_tar(tmp_path / 'a.tar', files)}")
    found = read_records(source, [1, 0], None)
    assert isinstance(found, BadRecord)
    assert found.index == 1
    assert "the sample a has two files for the field txt" in found.error
    assert source.record(1)["txt"] == b"3"


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:30_000])


def compressed(path: Path) -> None:
    path.write_bytes(gzip.compress(path.read_bytes()))


def garbage(path: Path) -> None:
    path.write_bytes(b"x" * 5000)


@pytest.mark.parametrize("spoil", [torn, compressed, garbage])
def test_a_tar_file_that_is_not_whole_is_refused_by_name(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    spoil(write_tar(tmp_path / "a.tar", sample_files(20, size=5000)))
    with pytest.raises(ConfigError, match=r"a\.tar is not a whole tar file: .*not compressed"):
        look(f"tar:{tmp_path}/a.tar")


def test_a_tar_file_that_changes_is_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", sample_files(20))
    source, _ = reading(f"tar:{path}")
    write_tar(path, sample_files(21))
    with pytest.raises(DatasetError, match="has changed"):
        source.record(3)


async def test_trainers_get_each_sample_of_tar_files_once_also_after_the_master_begins_anew(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", sample_files(1500))
    async with serving(tmp_path / "j", f"tar:{tmp_path}/*.tar") as served:
        first = await in_thread(lambda: some_of(served, 100))
    async with serving(tmp_path / "j", None) as served:
        rest = await in_thread(lambda: train(served))
        assert served.master.status()["done"] == 1500
    assert sorted(int(one["cls"]) for one in [*first, *rest]) == list(range(1500))


# --- a cache that fits


def count_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    counts: Counter[int] = Counter()
    read = pieces.read_piece

    def counting(store: Any, found: dict[str, Any]) -> Any:
        counts[found["first"]] += 1
        return read(store, found)

    monkeypatch.setattr(pieces, "read_piece", counting)
    return counts


@pytest.mark.parametrize("kind", ["parquet", "lines", "tar"])
def test_no_piece_is_read_twice_in_an_epoch_however_large_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(pieces, "_KEPT_BYTES", 1000)  # as if the records were a thousand times as large
    rows = 2 * WINDOW
    if kind == "parquet":
        data = [b"%050d" % n for n in range(rows)]
        pq.write_table(pa.table({"x": data}), tmp_path / "a.parquet", row_group_size=1000)
    elif kind == "lines":
        write(tmp_path, "a.lines", b"".join(b"%050d\n" % n for n in range(rows)))
    else:
        write_tar(tmp_path / "a.tar", [(f"{n}.x", b"%050d" % n) for n in range(rows)])
    counts = count_reads(monkeypatch)
    source, found = reading(f"{kind}:{tmp_path}/a.*")
    order = EpochOrder(found.total, 0, 0, found.block)
    for number in order.records(0, found.total):
        source.record(number)
    assert sum(counts.values()) <= len(counts) * 1.5, "only pieces at the edge of two windows"


def test_pieces_that_do_not_fit_into_memory_are_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pieces, "_KEPT_BYTES", 1000)
    monkeypatch.setenv("EDL_DATA_CACHE_MB", "1")
    write(tmp_path, "a.lines", b"".join(b"%01000d\n" % n for n in range(WINDOW)))
    source, found = reading(f"lines:{tmp_path}/a.lines")
    with caplog.at_level(logging.WARNING):
        for number in list(EpochOrder(found.total, 0, 0, found.block).records(0, 50)):
            source.record(number)
    (said,) = [line for line in caplog.messages if "do not all stay in memory" in line]
    assert "more than 1 MB" in said
    assert "EDL_DATA_CACHE_MB" in said


def test_a_cache_size_that_is_no_number_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDL_DATA_CACHE_MB", "2G")
    write(tmp_path, "a.lines", b"1\n")
    with pytest.raises(ConfigError, match="EDL_DATA_CACHE_MB='2G' is no whole number above 0"):
        FileSource(f"lines:{tmp_path}/a.lines", lambda _: {})


# --- mixtures


@given(st.lists(st.integers(1, 40), min_size=2, max_size=5), st.integers(0, 3000))
def test_each_source_has_its_share_at_every_moment(weights: list[int], count: int) -> None:
    mixture = Mixture("mix:5000;" + ";".join(f"{weight} index:7" for weight in weights))
    found = Counter(mixture.place(n)[0] for n in range(count))
    assert [found[part] for part in range(len(weights))] == mixture.counts(count)
    for part, weight in enumerate(weights):
        assert abs(found[part] - count * weight / sum(weights)) < len(weights)
    places = [mixture.place(n) for n in range(count)]
    for part in range(len(weights)):
        assert [place for its, place in places if its == part] == list(range(found[part]))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("mix:100", "it is no mixture of two or more sources; give mix:RECORDS"),
        ("mix:100;1 index:5", "it is no mixture of two or more"),
        ("mix:0;1 index:5;1 index:6", "it is no mixture"),
        ("mix:many;1 index:5;1 index:6", "it is no mixture"),
        ("mix:100;0 index:5;1 index:6", "'0 index:5' is no weight above 0 with a source"),
        ("mix:100;-1 index:5;1 index:6", "'-1 index:5' is no weight above 0"),
        ("mix:100;index:5;1 index:6", "'index:5' is no weight"),
        ("mix:100;1 mix:5;1 index:6", "with a source other than a mixture"),
        ("mix:100;0.123457 index:5;1 index:6", "repeat after 1123457 records, more than 10000; round the weights"),
        ("mix:100;1 nothing:5;1 index:6", "dataset 'nothing:5': unknown kind"),
        ("mix:100;1 index:0;1 index:6", "dataset 'index:0': N of index:N"),
    ],
)
def test_a_mixture_that_makes_no_sense_is_refused(source: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        look(source)


def test_a_mixture_of_several_epochs_is_refused_with_the_number_that_means_the_same() -> None:
    with pytest.raises(ConfigError, match="set epochs to 1, and the number of records to 100 times 3"):
        asyncio.run(Catalog().describe(DatasetBody(source="mix:100;1 index:5;1 index:6", epochs=3)))


@pytest.mark.parametrize("records", [10, 96, 1000, 20_000, 100_000])
def test_the_account_of_each_source_is_that_of_the_records_themselves(records: int) -> None:
    source = f"mix:{records};0.7 index:300;0.2 index:50;0.1 index:9999"
    _, found = look(source)
    mixture, order = Mixture(source), EpochOrder(found.total, 0, 0, found.block)
    assert records <= found.total <= records * 9 / 8 + mixture.length
    parts = [mixture.place(record)[0] for record in order.records(0, found.total)]
    assert Counter(parts) == dict(enumerate(mixture.counts(found.total)))
    for ranges in ([(0, found.total)], [(0, 7)], [(3, found.total - 2)], [(1, 3), (5, found.total // 2)]):
        expected = Counter(parts[at] for start, end in ranges for at in range(start, end))
        assert done_by_source(mixture, found, ranges) == [expected[part] for part in range(3)]


async def test_trainers_get_each_source_by_its_weight_and_the_master_accounts_for_each(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", b"".join(b"%d\n" % n for n in range(600)))
    write_tar(tmp_path / "a.tar", sample_files(100))
    pq.write_table(pa.table({"x": list(range(50))}), tmp_path / "a.parquet", row_group_size=20)
    source = f"mix:2000;6 lines:{tmp_path}/a.txt;3 tar:{tmp_path}/a.tar;1 parquet:{tmp_path}/a.parquet"

    async with serving(tmp_path / "j", source) as served:
        first = await in_thread(lambda: some_of(served, 300))
        _, answer = await served.ask("GET", "/v1/dataset/sources")
        counts = Counter(one.source for one in first)
        assert [one["done"] for one in answer["sources"]] == [counts[part] for part in range(3)]
    async with serving(tmp_path / "j", None) as served:
        rest = await in_thread(lambda: train(served))
        _, answer = await served.ask("GET", "/v1/dataset/sources")
        total = served.master.status()["dataset"]["total"]
    assert [(one["weight"], one["total"], one["planned"], one["done"]) for one in answer["sources"]] == [
        (weight, own, planned, planned)
        for weight, own, planned in zip((0.6, 0.3, 0.1), (600, 100, 50), Mixture(source).counts(total), strict=True)
    ]
    texts = Counter(json.dumps(str(one.record)) for one in [*first, *rest] if one.source == 0)
    assert len(texts) == 600
    assert set(texts.values()) <= {total * 6 // 10 // 600, total * 6 // 10 // 600 + 1}
    keys = Counter(one.record["__key__"] for one in [*first, *rest] if one.source == 1)
    assert len(keys) == 100
    assert max(keys.values()) - min(keys.values()) <= 1


def test_files_that_two_sources_of_a_mixture_read_differently_are_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", sample_files(3))
    with pytest.raises(ConfigError, match="two of its sources read the same files as different kinds of records"):
        look(f"mix:100;1 lines:{tmp_path}/a.tar;1 tar:{tmp_path}/a.tar;1 index:5")


async def test_a_master_that_restarts_does_not_read_the_sources_of_a_mixture_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.txt", b"1\n2\n")
    async with serving(tmp_path / "j", f"mix:100;1 lines:{tmp_path}/a.txt;1 index:5"):
        pass
    monkeypatch.setattr(dataset_scan, "_scan_lines", None)  # a call would be an error
    async with serving(tmp_path / "j", None) as served:
        assert (await served.ask("GET", "/v1/dataset/piece?record=1&part=0"))[1]["count"] == 2


async def test_a_mixture_whose_source_has_changed_is_refused_after_a_restart(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", b"1\n2\n")
    source = f"mix:100;1 lines:{tmp_path}/a.txt;1 index:5"
    async with serving(tmp_path / "j", source):
        pass
    write(tmp_path, "a.txt", b"1\n2\n3\n")
    with pytest.raises(DatasetError, match="has changed since the training began"):
        async with serving(tmp_path / "j", None):
            pass


async def test_the_routes_refuse_what_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", b"1\n2\n")
    async with serving(tmp_path / "j", f"mix:100;1 lines:{tmp_path}/a.txt;1 index:5") as served:
        for query, status, text in (
            ("record=1", 400, "part None does not exist; the mixture has the sources 0 to 1"),
            ("record=1&part=2", 400, "part 2 does not exist"),
            ("record=1&part=x", 400, "part='x' is not the number of a part"),
            ("record=1&part=1", 409, "the data set has no files"),
            ("record=2&part=0", 400, "record 2 does not exist"),
            ("part=0", 400, "the query names no record"),
        ):
            found, answer = await served.ask("GET", f"/v1/dataset/piece?{query}")
            assert (found, text in json.dumps(answer)) == (status, True), (query, answer)
    async with serving(tmp_path / "k", "index:5") as served:
        found, answer = await served.ask("GET", "/v1/dataset/sources")
        assert (found, "the data set is no mixture" in json.dumps(answer)) == (409, True)
