"""Data sets that cannot be read, or that have changed, are refused by name."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# pyarrow ships without types.
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edl.errors import ConfigError
from edl.master import dataset_scan
from edl.master.dataset_index import DatasetIndex
from edl.master.datasets import Catalog
from edl.worker.files import DatasetError
from tests.master.test_datasets import look, write
from tests.worlds.master_processes import TOKEN, cluster, free_port
from tests.worlds.master_server import serving


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may read."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("kind", ["lines", "parquet"])
def test_a_glob_without_readable_files_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    (tmp_path / "folder").mkdir()
    write(tmp_path, "empty", b"")
    for glob, text in (
        ("none*", "the glob matches no file; name files that the master can read"),
        ("none", "matches no file"),
        ("fold*", "matches only folders or devices"),
        ("folder/*", "matches no file"),
    ):
        with pytest.raises(ConfigError, match=text):
            look(f"{kind}:{tmp_path}/{glob}")
    with pytest.raises(ConfigError, match="only folders or devices"):
        look(f"{kind}:/dev/zero")
    with pytest.raises(ConfigError, match="hold no record" if kind == "lines" else "is not a Parquet file"):
        look(f"{kind}:{tmp_path}/empty")
    for source in ("nowhere://a/*", f"{kind}://:::"):
        with pytest.raises(ConfigError, match="dataset '"):
            look(f"{kind}:{source}")


def test_an_empty_parquet_file_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match=r"its files hold no record \(files: 1\)"):
        look(f"parquet:{tmp_path}/a.parquet")


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + bytes(40) + b"PAR1", bytes(range(200))])
def test_a_file_that_is_not_parquet_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    write(tmp_path, "a.parquet", data)
    with pytest.raises(ConfigError, match=r"a\.parquet (is not a Parquet file|cannot be read)"):
        look(f"parquet:{tmp_path}/a.parquet")


def test_a_file_without_read_permission_is_refused_by_name(open_folder: Path) -> None:
    write(open_folder, "a.txt", b"a\n").chmod(0)
    command = [
        sys.executable,
        "-c",
        "import os, sys, asyncio\n"
        "from edl.master.datasets import Catalog; from edl.master.bodies import DatasetBody\n"
        "asyncio.run(Catalog().describe(DatasetBody(source=sys.argv[2])))\n"  # import first: another user may not
        "os.getuid() or os.setuid(65534)\n"
        "try: asyncio.run(Catalog().describe(DatasetBody(source=sys.argv[1])))\n"
        "except Exception as error: print(type(error).__name__, error)",
        f"lines:{open_folder}/a*",
        f"lines:{write(open_folder, 'b.txt', b'b')}",
    ]
    expected = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert expected.startswith("ConfigError dataset")
    assert "a.txt cannot be read: Permission denied; make it readable" in expected


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a.txt", b"a\n" * 10)
    real = DatasetIndex.add

    def add(index: DatasetIndex, owner: int, place: int, count: int) -> None:
        if path.stat().st_size < 1000:
            with path.open("ab") as file:
                file.write(b"more\n")
        real(index, owner, place, count)

    monkeypatch.setattr(dataset_scan, "_PIECE_RECORDS", 1)
    monkeypatch.setattr(DatasetIndex, "add", add)
    with pytest.raises(ConfigError, match="has changed"):
        look(f"lines:{path}")
    assert path.stat().st_size < 100, "the master followed the growing file"


def test_a_file_with_a_wrong_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="name files that no program writes to"):
        look("lines:/sys/class/net/lo/mtu")


async def test_the_api_explains_a_refused_data_set_and_accepts_the_next_one(tmp_path: Path) -> None:
    async with serving(tmp_path / "j", None) as served:
        status, body = await served.ask("POST", "/v1/dataset", {"source": f"lines:{tmp_path}/none"})
        assert (status, body["error"]["code"]) == (400, "malformed")
        assert "matches no file" in body["error"]["message"]
        assert (await served.ask("GET", "/v1/dataset/piece?record=0"))[0] == 409
        write(tmp_path, "none", b"a\nb\n")
        answers = await asyncio.gather(
            *(served.ask("POST", "/v1/dataset", {"source": f"lines:{tmp_path}/none"}) for _ in range(5))
        )
        assert [status for status, _ in answers] == [200] * 5
        assert (await served.ask("GET", "/v1/dataset/piece?record=1"))[1]["count"] == 2
        for query in ("", "?record=", "?record=-1", "?record=x", "?record=2", "?record=" + "9" * 30):
            assert (await served.ask("GET", f"/v1/dataset/piece{query}"))[0] == 400, query
        assert (await served.ask("GET", "/v1/dataset/piece?record=0", token=None))[0] == 401
        assert (await served.ask("POST", "/v1/dataset", {"source": f"lines:{tmp_path}/*"}))[0] == 409


@pytest.mark.parametrize("change", ["grown", "touched", "gone", "new"])
def test_a_restarted_master_refuses_changed_files(tmp_path: Path, change: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(data, "a.txt", b"a\n")
    write(data, "b.txt", b"b\n")
    _, found = look(f"lines:{data}/*", tmp_path)
    Catalog(tmp_path).reopen(found)
    if change == "grown":
        write(data, "a.txt", b"a\nc\n")
    elif change == "touched":
        os.utime(data / "a.txt", (1, 1))
    elif change == "gone":
        (data / "a.txt").unlink()
    else:
        write(data, "c.txt", b"c\n")
    expected = {
        "grown": "a.txt had 2 bytes",
        "touched": "a.txt had 2 bytes",
        "gone": "a.txt is gone",
        "new": "c.txt is new",
    }
    with pytest.raises(DatasetError, match=f"has changed since the training began: .*{expected[change]}"):
        Catalog(tmp_path).reopen(found)


def test_the_command_exits_1_for_a_changed_data_set_and_2_for_an_unreadable_one(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"a\nb\n")
    with cluster(tmp_path, json.dumps({"source": f"lines:{path}"})) as world:
        assert world.master is not None
        world.master.terminate()
        assert world.master.wait(timeout=60) == 0
        world.start_master()
        world.await_master()  # the same data set again is accepted
        world.master.kill()
        world.master.wait(timeout=60)
    write(tmp_path, "a.txt", b"a\nb\nc\n")

    def start(journal: str, *flags: str) -> subprocess.CompletedProcess[str]:
        command = ["master", "--listen", f"127.0.0.1:{free_port()}", "--journal", str(tmp_path / journal), *flags]
        call = [
            sys.executable,
            "-c",
            "from edl.cli.main import main; main()",
            *command,
            "--token-file",
            f"{tmp_path}/token",
        ]
        return subprocess.run(call, capture_output=True, text=True, check=False, timeout=60)

    changed = start("journal")
    assert changed.returncode == 1
    assert "has changed since the training began" in changed.stderr
    missing = start("other", "--dataset", '{"source": "lines:/none/*"}')
    assert missing.returncode == 2
    assert "matches no file" in missing.stderr
    assert "Traceback" not in changed.stderr + missing.stderr
    assert TOKEN not in changed.stderr + missing.stderr
