"""The journal on disk: acknowledged records survive, a torn end is ignored, and other damage is refused."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from edl.errors import ConfigError
from edl.ledger.events import JournalError
from edl.master import journal, journal_files
from edl.master.journal import FileLedgerStore
from edl.master.journal_files import frame
from edl.master.ledger_store import StoreBlockedError

GROUPS = [[b"one"], [b"two", b"three"], [b"four"], [b"five", b"six", b"seven"]]


def content(folder: Path) -> tuple[bytes | None, list[bytes]]:
    """The snapshot and the records that a starting master reads."""
    store = FileLedgerStore(folder)
    try:
        state, records = store.load()
        return state, list(records)
    finally:
        asyncio.run(store.close())


def flat(groups: list[list[bytes]]) -> list[bytes]:
    return [record for group in groups for record in group]


@contextmanager
def opened(folder: Path) -> Iterator[FileLedgerStore]:
    store = FileLedgerStore(folder)
    list(store.load()[1])
    store.start()
    yield store


def write(folder: Path, groups: list[list[bytes]], snapshot_after: int | None = None) -> list[int]:
    """Sync each group before the next one; returns the size of the journal after each group."""
    return asyncio.run(_write(folder, groups, snapshot_after))


async def _write(folder: Path, groups: list[list[bytes]], snapshot_after: int | None) -> list[int]:
    sizes = [0]
    with opened(folder) as store:
        for at, group in enumerate(groups):
            for record in group:
                store.append(record)
            await store.durable(store.appended)
            sizes.append(sizes[-1] + len(frame(0, group)))
            if at == snapshot_after:
                store.snapshot(b"state")
        await store.close()
    return sizes[1:]


async def until_durable(store: FileLedgerStore, number: int) -> None:
    while True:
        with suppress(StoreBlockedError):
            return await store.durable(number)
        await asyncio.sleep(0.01)


def test_acknowledged_records_survive_a_restart(tmp_path: Path) -> None:
    write(tmp_path / "j", GROUPS)
    assert content(tmp_path / "j") == (None, flat(GROUPS))
    write(tmp_path / "j", [[b"eight"]])
    assert content(tmp_path / "j") == (None, [*flat(GROUPS), b"eight"])


def test_a_crash_at_any_byte_keeps_every_acknowledged_record(tmp_path: Path) -> None:
    sizes = [0, *write(tmp_path / "whole", GROUPS)]
    (file,) = (tmp_path / "whole").glob("journal-*")
    data = file.read_bytes()
    for length in range(len(data) + 1):
        folder = tmp_path / f"cut-{length}"
        folder.mkdir()
        (folder / file.name).write_bytes(data[:length])
        synced = sum(size <= length for size in sizes) - 1
        kept = flat(GROUPS[:synced])
        assert content(folder) == (None, kept)
        if length % 7 == 0:  # the journal can be continued
            write(folder, [[b"more"]])
            assert content(folder) == (None, [*kept, b"more"])
        shutil.rmtree(folder)


def test_zeros_at_the_end_of_a_journal_are_ignored(tmp_path: Path) -> None:
    write(tmp_path, GROUPS)
    (file,) = tmp_path.glob("journal-*")
    with file.open("ab") as journal:
        journal.write(bytes(4096))
    assert content(tmp_path)[1] == flat(GROUPS)


def test_a_flipped_bit_before_the_last_group_is_refused(tmp_path: Path) -> None:
    sizes = write(tmp_path / "whole", GROUPS)
    (file,) = (tmp_path / "whole").glob("journal-*")
    data = file.read_bytes()
    for at in range(sizes[-2]):  # not in the last group, where the damage looks like a torn end
        folder = tmp_path / "flipped"
        folder.mkdir()
        (folder / file.name).write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(JournalError, match=r"damaged at byte \d+"):
            content(folder)
        shutil.rmtree(folder)


def test_a_restart_begins_with_the_snapshot(tmp_path: Path) -> None:
    write(tmp_path, GROUPS, snapshot_after=1)
    assert content(tmp_path) == (b"state", flat(GROUPS[2:]))
    write(tmp_path, [[b"eight"]])
    assert content(tmp_path) == (b"state", [*flat(GROUPS[2:]), b"eight"])


def test_without_a_snapshot_the_whole_journal_is_replayed(tmp_path: Path) -> None:
    write(tmp_path, GROUPS, snapshot_after=1)
    (snapshot,) = tmp_path.glob("snapshot-*")
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    with pytest.raises(JournalError, match="delete this one file"):
        content(tmp_path)
    snapshot.unlink()
    assert content(tmp_path) == (None, flat(GROUPS))


def test_a_missing_file_in_the_middle_is_named(tmp_path: Path) -> None:
    write(tmp_path, GROUPS, snapshot_after=1)
    for path in (*tmp_path.glob("snapshot-*"), min(tmp_path.glob("journal-*"))):
        path.unlink()
    with pytest.raises(JournalError, match="missing"):
        content(tmp_path)


@pytest.mark.parametrize("name", ["lock", "journal-000000000000000"])
def test_a_link_in_a_journal_is_refused_and_what_it_leads_to_is_untouched(tmp_path: Path, name: str) -> None:
    precious, folder = tmp_path / "precious", tmp_path / "j"
    precious.write_text("keep")
    folder.mkdir()
    (folder / name).symlink_to(precious)
    with pytest.raises(JournalError, match=f"{name}: is not a plain file; replace it"):
        write(folder, GROUPS)
    assert precious.read_text() == "keep"


def test_a_link_in_place_of_the_next_snapshot_is_not_followed(tmp_path: Path) -> None:
    precious, folder = tmp_path / "precious", tmp_path / "j"
    precious.write_text("keep")
    folder.mkdir()
    (folder / "snapshot-000000000000001.draft").symlink_to(precious)
    write(folder, GROUPS, snapshot_after=0)
    assert precious.read_text() == "keep"
    assert content(folder) == (b"state", flat(GROUPS[1:]))


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket"])
def test_what_is_no_file_in_a_journal_is_refused_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "snapshot-000000000000001"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    with pytest.raises(JournalError, match="is not a plain file"):
        content(tmp_path)


async def test_a_second_master_cannot_use_the_same_journal(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        with pytest.raises(ConfigError, match="another master uses this folder"):
            FileLedgerStore(tmp_path)
        await store.close()
    assert (await asyncio.to_thread(content, tmp_path))[1] == []


async def test_a_full_disk_refuses_records_and_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room, real = [40], os.pwrite

    def pwrite(file: int, data: memoryview, offset: int) -> int:
        if offset + len(data) > room[0]:
            written = real(file, data[: max(0, room[0] - offset)], offset)
            if not written:
                raise OSError(errno.ENOSPC, "No space left on device")
            return written
        return real(file, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr("edl.master.journal._RETRY_S", 0.01)
    with opened(tmp_path) as store:
        await store.durable(store.append(b"fits"))
        number = store.append(b"does not fit")
        with pytest.raises(StoreBlockedError, match="free space"):
            await store.durable(number)
        assert store.blocked
        room[0] = 10_000
        async with asyncio.timeout(60):
            await until_durable(store, number)
        await store.close()
    assert (await asyncio.to_thread(content, tmp_path))[1] == [b"fits", b"does not fit"]


def test_a_master_that_starts_on_a_full_disk_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(JournalError, match="No space left on device; free space on its volume"):
        content(tmp_path)


async def test_after_a_disk_error_no_record_becomes_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fdatasync(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with opened(tmp_path) as store:
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        with pytest.raises(JournalError, match="Input/output error"):
            await store.durable(store.append(b"lost"))
        with pytest.raises(JournalError, match="restart the master"):
            await store.durable(store.append(b"also lost"))
        await store.close()


@pytest.mark.parametrize("fails", ["the draft", "the new file", "its sync", "the rename", "the folder"])
async def test_a_disk_that_is_full_during_a_snapshot_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    folder = tmp_path / "j"
    full = OSError(errno.ENOSPC, "No space left on device")
    with opened(folder) as store:
        await until_durable(store, store.append(b"one"))
        with monkeypatch.context() as patched:
            open_before, replace_before = journal_files.open_plain, Path.replace
            is_new = {"value": False}

            def open_plain(path: Path, flags: int) -> int:
                is_new["value"] = path.name.startswith("journal-")
                if (fails == "the draft" and path.suffix == ".draft") or (
                    fails == "the new file" and is_new["value"]
                ):
                    raise full
                return open_before(path, flags)

            def fsync(_: int) -> None:
                if fails == "its sync" and is_new["value"]:
                    raise full

            def sync_folder(_: Path) -> None:
                if fails == "the folder":
                    raise full

            def replace(path: Path, target: Path) -> Path:
                if fails == "the rename":
                    raise full
                return replace_before(path, target)

            patched.setattr(journal, "open_plain", open_plain)
            patched.setattr(os, "fsync", fsync)
            patched.setattr(journal, "_sync_folder", sync_folder)
            patched.setattr(Path, "replace", replace)
            store.snapshot(b"state of one")
            await until_durable(store, store.append(b"two"))
        store.snapshot(b"state of two")
        await until_durable(store, store.append(b"three"))
        await store.close()
    assert await asyncio.to_thread(content, folder) == (b"state of two", [b"three"])
    assert not list(folder.glob("*.draft"))
    for path in folder.glob("snapshot-*"):
        path.unlink()
    assert await asyncio.to_thread(content, folder) == (None, [b"one", b"two", b"three"])


@pytest.mark.parametrize("fails", ["the sync of the draft", "the rename", "the sync of the folder"])
async def test_a_disk_error_during_a_snapshot_ends_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with opened(tmp_path) as store:
        await until_durable(store, store.append(b"one"))
        owner, name = {
            "the sync of the draft": (os, "fsync"),
            "the rename": (Path, "replace"),
            "the sync of the folder": (journal, "_sync_folder"),
        }[fails]
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, broken)
            store.snapshot(b"state of one")
            with pytest.raises(JournalError, match="Input/output error; check the disk, then restart the master"):
                await store.durable(store.append(b"never acknowledged"))
        with pytest.raises(JournalError, match="restart the master"):
            await store.durable(store.append(b"nor this"))
        await store.close()
    state, records = await asyncio.to_thread(content, tmp_path)
    assert (state, records) in [(None, [b"one"]), (b"state of one", [])]


@pytest.mark.parametrize("does", ["starts beside it", "replaces the file", "removes the file", "appends to the file"])
@pytest.mark.parametrize("is_snapshot", [False, True], ids=["a record", "a snapshot"])
async def test_a_master_ends_if_another_one_may_write_its_journal(
    tmp_path: Path, does: str, *, is_snapshot: bool
) -> None:
    folder = tmp_path / "j"
    store = FileLedgerStore(folder)
    list(store.load()[1])
    store.start()
    await until_durable(store, store.append(b"of the first"))
    (path,) = folder.glob("journal-*")
    second: FileLedgerStore | None = None
    if does == "starts beside it":
        (folder / journal.LOCK).unlink()
        second = FileLedgerStore(folder)
        assert list(second.load()[1]) == [b"of the first"]
    elif does == "replaces the file":
        copy = path.with_suffix(".copy")
        copy.write_bytes(path.read_bytes())
        copy.replace(path)
    elif does == "removes the file":
        path.unlink()
    else:
        with path.open("ab") as file:
            file.write(frame(1, [b"of a second"]))
    before = path.read_bytes() if path.exists() else b""
    if is_snapshot:
        store.snapshot(b"late state")
    with pytest.raises(JournalError, match="another"):
        await until_durable(store, store.append(b"late"))
    assert (path.read_bytes() if path.exists() else b"") == before, "nothing is written over the other's records"
    await store.close()
    if second is not None:
        second.start()
        await until_durable(second, second.append(b"of the second"))
        await second.close()
        read = await asyncio.to_thread(content, folder)
        assert read == (None, [b"of the first", b"of the second"])
