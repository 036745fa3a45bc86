"""What a ledger holds does not grow with the time that trainers work, only with the pods of the last hour."""

from __future__ import annotations

import gc
import tracemalloc

from benchmarks.master_memory import play

TRAINERS, REPLACED = 40, 1


def test_the_memory_of_a_ledger_does_not_grow_from_hour_to_hour() -> None:
    held: list[int] = []

    def note(_: float) -> None:
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        ledger = play(TRAINERS, 4, REPLACED, note)
    finally:
        tracemalloc.stop()
    in_an_hour = 3600 // 25 * REPLACED
    assert len(ledger.state.sessions) <= TRAINERS + in_an_hour + 5
    assert max(held[12:]) <= 1.1 * max(held[6:9]), "the fourth hour is as the second"
