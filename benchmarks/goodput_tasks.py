"""What `benchmarks.goodput` trains."""

from __future__ import annotations

from typing import NamedTuple


class Task(NamedTuple):
    """What is trained.

    Attributes:
        records: of an epoch.
        epochs: how often each is trained.
        base, largest: the global batches.
        record_s: what a trainer takes for a record, at least.
        target: the accuracy, or minus the loss, that is to be reached.
        rule: for the learning rate of the growing batch.
    """

    records: int
    epochs: int
    base: int
    largest: int
    record_s: float
    target: float
    rule: str


TASKS = {
    "digits": Task(1500, 20, 32, 512, 0.0005, 0.95, "adascale"),
    "text": Task(4000, 8, 16, 256, 0.002, -1.9, "sqrt"),
}
