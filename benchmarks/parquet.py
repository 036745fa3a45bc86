"""How fast a trainer reads Parquet files in the shuffled order, beside pyarrow in the order of the file.

.venv/bin/python -m benchmarks.parquet
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from edl.ledger.permutation import EpochOrder
from edl.master.bodies import DatasetBody
from edl.master.datasets import Catalog
from edl.worker.data import read_records, source_of

_BATCH = 256
_DRAW = np.random.default_rng(0)


def large_rows() -> tuple[Any, int]:
    """A table of 20,000 pictures of 20 kB, and how many rows a group has."""
    return pa.table({"image": [_DRAW.bytes(20_000) for _ in range(20_000)], "label": list(range(20_000))}), 1000


def small_rows() -> tuple[Any, int]:
    """A table of 500,000 rows with three short columns, and how many rows a group has."""
    count = 500_000
    columns = {
        "x": _DRAW.random(count),
        "y": _DRAW.integers(0, 9, count),
        "text": [f"text {n}" for n in range(count)],
    }
    return pa.table(columns), 50_000


def by_edl(path: Path) -> float:
    """Rows in a CPU second, as a trainer reads them."""
    catalog = Catalog()
    dataset = asyncio.run(catalog.describe(DatasetBody(source=f"parquet:{path}")))

    def get(address: str) -> dict[str, Any]:
        piece = catalog.piece(dataset, int(parse_qs(address.partition("?")[2])["record"][0]))
        rest = {"first": piece.first, "count": piece.records, "place": piece.place, "length": piece.length}
        return {**piece.file._asdict(), **rest}

    source = source_of({"source": dataset.source}, get)
    order = EpochOrder(dataset.total, dataset.seed, 0, dataset.block)
    since_s = time.process_time()
    for start in range(0, dataset.total, _BATCH):
        read_records(source, list(order.records(start, min(dataset.total, start + _BATCH))), None)
    return dataset.total / (time.process_time() - since_s)


def by_pyarrow(path: Path) -> float:
    """The same by pyarrow alone, in the order of the file."""
    since_s, count = time.process_time(), 0
    for batch in pq.ParquetFile(path).iter_batches(batch_size=_BATCH):
        count += len(batch.to_pylist())
    return count / (time.process_time() - since_s)


def main() -> None:
    """Print a line for each table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        for name, make in (("rows of 20 kB", large_rows), ("rows of three short columns", small_rows)):
            table, rows = make()
            pq.write_table(table, path, row_group_size=rows)
            del table
            mine, theirs = by_edl(path), by_pyarrow(path)
            sys.stdout.write(
                f"{name}: edl {mine:,.0f} rows/CPU s, pyarrow {theirs:,.0f}, {theirs / mine:.1f} times as many\n"
            )


if __name__ == "__main__":
    main()
