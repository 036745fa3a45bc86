"""A reference ledger that follows the events position by position: slow, and too simple to be wrong."""

from __future__ import annotations

from edl.ledger.events import (
    CheckpointBegun,
    DatasetSet,
    Done,
    EpochClosed,
    Event,
    Failed,
    Granted,
    Restored,
    Returned,
    TruncateAccepted,
)


class ReferenceLedger:
    """The place of every position: todo, leased, done or quarantined."""

    def __init__(self) -> None:
        self.epoch, self.total, self.epochs = 0, 0, 0
        self.place: list[str] = []
        self.leases: dict[int, tuple[int, int]] = {}
        self.checkpoints: dict[int, tuple[int, list[str]]] = {}
        self.serial = 0

    def apply(self, event: Event) -> None:
        self.serial += 1
        match event:
            case DatasetSet():
                self.total, self.epochs = event.total, event.epochs
                self.place = ["todo"] * self.total
            case Granted():
                self.move(event.start, event.end, "todo", "leased")
                self.leases[self.serial] = (event.start, event.end)
            case Done():
                start, end = self.leases.pop(event.fence)
                self.move(start, end, "leased", "done")
            case Returned() | Failed():
                start, end = self.leases.pop(event.fence)
                self.move(start, event.cursor, "leased", "done")
                self.move(event.cursor, end, "leased", "todo")
            case TruncateAccepted():
                start, end = self.leases[event.fence]
                self.move(event.end, end, "leased", "todo")
                self.leases[event.fence] = (start, event.end)
                if start == event.end:
                    del self.leases[event.fence]
            case EpochClosed():
                for start, end in event.quarantined:
                    self.move(start, end, "todo", "quarantined")
                assert set(self.place) <= {"done", "quarantined"}, "the epoch was closed with positions to do"
                assert not self.leases, "the epoch was closed with open leases"
                self.epoch += 1
                self.place = ["todo"] * self.total
            case CheckpointBegun():
                place = self.place.copy()
                for fence, cursor in event.cursors:
                    start = self.leases[fence][0]
                    place[start:cursor] = ["done"] * (cursor - start)
                self.checkpoints[self.serial] = (self.epoch, place)
            case Restored():
                self.leases.clear()
                began = (0 if event.from_first_epoch else self.epoch, list[str]())
                epoch, place = self.checkpoints.get(event.checkpoint, began)
                self.epoch = epoch
                self.place = ["done" if p == "done" else "todo" for p in place] or ["todo"] * self.total
            case _:
                pass

    def move(self, start: int, end: int, old: str, new: str) -> None:
        assert all(p == old for p in self.place[start:end]), f"[{start}, {end}) is not all {old}"
        self.place[start:end] = [new] * (end - start)

    def count(self, place: str) -> int:
        return self.place.count(place)
