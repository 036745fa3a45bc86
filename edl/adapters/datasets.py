"""Data sets by their source: how many records they have, and what tells that their files have changed."""

from __future__ import annotations

from edl.adapters.master_bodies import DatasetBody
from edl.core.ledger_events import DatasetSet
from edl.errors import ConfigError

MOST_RECORDS = 10**18


def describe(body: DatasetBody) -> DatasetSet:
    """Look at a data set.

    Raises:
        ConfigError: it is empty, cannot be read, or is of a kind that is not known.
    """
    kind, _, rest = body.source.partition(":")
    if kind != "index":
        raise ConfigError(
            f"dataset {body.source!r}: only index:N is read by this version; number the records yourself"
        )
    if not rest.isascii() or not rest.isdecimal() or len(rest) > 19 or not 0 < int(rest) <= MOST_RECORDS:
        raise ConfigError(
            f"dataset {body.source!r}: index:N needs N between 1 and {MOST_RECORDS}, such as index:60000"
        )
    return DatasetSet(
        body.source, "", int(rest), body.epochs, body.seed, body.shard_size, body.max_quarantined_fraction, 0
    )
