"""Measures the memory of the data master's ledger in virtual time: `python -m benchmarks.master_memory`.

10,000 trainers report a lease and take another one every 25 s, some are replaced by new pods, and a snapshot is made
as the master makes it. Prints the memory of the process at every quarter of the hour, without the connections that a
master has beside it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from edl.ledger.dispatch import LedgerSettings
from edl.ledger.events import DatasetSet
from edl.ledger.ledger import Ledger
from edl.ledger.request import SessionKey
from edl.ledger.snapshot import state_to_json
from tests.worlds.ledger.simulation import Item, Request

EVERY_S = 25
_SIZE = 10**12


def play(trainers: int, hours: float, replaced: int, at_quarter: Callable[[float], None]) -> Ledger:
    """Let trainers work for some virtual hours.

    Args:
        trainers: how many there are.
        hours: of virtual time.
        replaced: how many of them are replaced by new pods every 25 s.
        at_quarter: is called after each quarter of an hour, with the hours so far.
    """
    ledger = Ledger(settings=LedgerSettings())
    ledger.set_dataset(DatasetSet("index:100", "", _SIZE, 2, 0, 100, 0.05, 0))
    pods, seqs, held = list(range(trainers)), [0] * trainers, [tuple[Item, ...]()] * trainers
    newest, now_s = trainers, 0
    while now_s < hours * 3600:
        for number in range(trainers):
            seqs[number] += 1
            key = SessionKey(f"pod-{pods[number]}", 1, f"trainer-{number}")
            reply = ledger.sync(key, Request(seqs[number], held[number], (), (), 1), float(now_s))
            held[number] = tuple(Item(epoch, start, end, fence) for epoch, start, end, fence in reply.leases)
        for number in range(newest % trainers, newest % trainers + replaced):
            pods[number % trainers], seqs[number % trainers], held[number % trainers] = newest, 0, ()
            newest += 1
        now_s += EVERY_S
        ledger.tick(float(now_s))
        ledger.take_events()  # the master journals them
        if now_s % 900 < EVERY_S:
            state_to_json(ledger.state)
            at_quarter(now_s / 3600)
    return ledger


def main() -> None:
    """Print the memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainers", type=int, default=10_000)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--replaced", type=int, default=10)
    chosen = parser.parse_args()

    def show(hours: float) -> None:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        print(f"{hours:5.2f} h  {pages * os.sysconf('SC_PAGE_SIZE') / 2**20:6.0f} MiB", flush=True)

    ledger = play(chosen.trainers, chosen.hours, chosen.replaced, show)
    print(f"{len(ledger.state.sessions)} sessions, {len(ledger.state.leases)} leases")


if __name__ == "__main__":
    main()
