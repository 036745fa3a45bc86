"""How fast the controller deletes 250 trainers on API servers of many kinds: `python -m benchmarks.requests_at_once`.

The controller's own sender, in virtual time. The simulated API server carries out so many requests at once,
and each takes a random time around its median. Before the deletions the controller makes single writes for minutes,
as it does at rest. Prints the seconds to the last deletion, how many requests were under way at most, the longest
request, and how many requests may be under way afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import median

from edl.clock import Clock
from edl.controller.pace import Pace
from edl.controller.pending_writes import Lane, PendingWrites, Write
from edl.controller.sender import Sender
from edl.model.actions import Action, DeletePod, MarkPod, Outcome, Result
from edl.model.names import JobKey
from edl.model.status import Reason
from edl.sim.virtual_time import LoopClock, run_virtual
from tests.worlds.fakes import FakeCluster, FakeLease, FakeRecorder, PodWorld

JOBS, PODS = 40, 250
AT_REST, PAUSE_S = 200, 1.0
RUNS = 9


@dataclass(frozen=True, slots=True)
class Server:
    """An API server.

    Attributes:
        median_s: of the time that a request takes once it is carried out.
        spread: sigma of the logarithm of that time; 0 for always the same time.
        at_once: how many requests are carried out at once; the others wait.
    """

    name: str
    median_s: float
    spread: float = 0.0
    at_once: int = 1000


SERVERS = (
    Server("5 ms", 0.005),
    Server("50 ms", 0.05),
    Server("200 ms", 0.2),
    Server("5 ms, far apart", 0.005, 1.2),
    Server("50 ms, far apart", 0.05, 1.2),
    Server("200 ms, far apart", 0.2, 1.2),
    Server("20 ms, 8 at once", 0.02, 0.5, 8),
    Server("20 ms, 2 at once", 0.02, 0.5, 2),
    Server("200 ms, 4 at once", 0.2, 0.5, 4),
)


class Offered:
    """The writes that are to be sent, for the sender."""

    def __init__(self) -> None:
        self._pending = PendingWrites()
        self.looked_at = 0

    def put(self, number: int, kind: type[MarkPod | DeletePod], count: int) -> None:
        """Offer writes of a job."""
        self._pending.replace(f"job-{number % JOBS:02}", _writes(number, kind, count))

    def take(self, *, background: bool) -> Write | None:
        """Return the next write."""
        return self._pending.take(Lane) if background or self.has_urgent() else None

    def ended(self, write: Write, outcomes: Sequence[Outcome]) -> None:
        """Nothing follows from the end of a write."""

    def has_urgent(self) -> bool:
        """True: serving waits for each deletion."""
        return self._pending.has(Lane)


class SimulatedServer(FakeCluster):
    """Takes a while for each request."""

    def __init__(self, server: Server, chance: Random) -> None:
        super().__init__(PodWorld())
        self._server, self._chance = server, chance
        self._places = asyncio.Semaphore(server.at_once)
        self._clock = LoopClock()
        self.counts = Counter[str]()
        self.longest_s = 0.0

    async def apply(self, action: Action) -> Outcome:
        """Carry out an action: a deletion is two requests, the mark and the deletion itself."""
        began_s = self._clock.monotonic_s()
        for _ in range(2 if isinstance(action, DeletePod) else 1):
            await self._request()
        return replace(Outcome(action, Result.DONE), seconds=self._clock.monotonic_s() - began_s)

    async def _request(self) -> None:
        began_s = self._clock.monotonic_s()
        self.counts["now"] += 1
        self.counts["most"] = max(self.counts.values())
        async with self._places:
            await asyncio.sleep(self._server.median_s * self._chance.lognormvariate(0.0, self._server.spread))
        self.counts["now"] -= 1
        self.longest_s = max(self.longest_s, self._clock.monotonic_s() - began_s)


async def deleted(server: Server, seed: int) -> tuple[float, int, float, int]:
    """Delete the pods after a time at rest; returns the figures in the order in which they are printed."""
    clock, simulated = LoopClock(), SimulatedServer(server, Random(seed))  # noqa: S311 - not a secret
    offered, wake = Offered(), asyncio.Event()
    sender = Sender(offered, simulated, clock, FakeLease(), FakeRecorder(), writes=Pace().writes, wake=wake.set)

    async def send_all() -> None:
        sender.send()
        while not sender.is_idle or offered.has_urgent():
            await sender.wait()
            sender.end()
            sender.send()

    for number in range(AT_REST):
        offered.put(number, MarkPod, 1)
        await send_all()
        await clock.sleep(PAUSE_S)
    simulated.longest_s, began_s = 0.0, _now_s(clock)
    for job in range(JOBS):
        offered.put(job, DeletePod, PODS // JOBS + (job < PODS % JOBS))
    await send_all()
    return _now_s(clock) - began_s, simulated.counts["most"], simulated.longest_s, sender.allowed


def _now_s(clock: Clock) -> float:
    return clock.monotonic_s()


def _writes(number: int, kind: type[MarkPod | DeletePod], count: int) -> list[Write]:
    job = JobKey("default", f"job-{number % JOBS:02}")
    reason = str(Reason.SERVING_NEEDS_ROOM)
    actions = (kind(job, job.name, f"{job.name}-trainer-{k}", f"{job.name}-{k}", reason) for k in range(count))
    return [Write((action,), Lane.EVICT) for action in actions]


def main() -> None:
    """Print a line for each server: medians over random runs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    print(f"{'a request takes':<20}{'last of 250':>12}{'at once':>9}{'longest':>9}{'allowed then':>14}")
    for server in SERVERS:
        found = [run_virtual(deleted(server, seed)) for seed in range(options.runs)]
        seconds, most, longest_s, allowed = (median(column) for column in zip(*found, strict=True))
        print(f"{server.name:<20}{seconds:>10.2f} s{most:>9.0f}{longest_s:>7.2f} s{allowed:>14.0f}", flush=True)


if __name__ == "__main__":
    main()
