"""What the state machine keeps from turn to turn equals what a new one computes from the same plans and writes.

The states are those that the search of the small scope meets.
"""

from __future__ import annotations

from collections import Counter

import pytest

from edl.controller.core import Core
from edl.controller.job_writes import Facts
from edl.controller.pending_writes import Lane, Write
from edl.model.cluster import ClusterSnapshot
from tests.worlds.histories.remembered_plans import RememberedPlans
from tests.worlds.small_scope.desk import Desk
from tests.worlds.small_scope.scenes import SCENES
from tests.worlds.small_scope.search import Search
from tests.worlds.small_scope.space import Space

STATES = 300
NAMES = ("growth-of-three", "arrival", "edits", "pods-end", "serving-two-early", "growth-refused", "a-node-is-lost")


@pytest.fixture(scope="module")
def plans() -> RememberedPlans:
    return RememberedPlans()


@pytest.mark.parametrize("name", NAMES)
def test_pending_writes_equal_those_of_a_state_machine_that_begins_anew(name: str, plans: RememberedPlans) -> None:
    space = Space(SCENES[name], plans)
    Search(space, STATES).run()
    desk, compared = space.automaton.desk, 0
    for node in space.automaton.nodes:
        desk.take_over(node.memory)
        core = desk.parts.core
        skipped = _not_looked_at(core)
        kept = (_pending(core, skipped), core.allotments.unknown, core.allotments.obsolete, core._waits, core._facts)
        _begin_anew(desk)
        anew = (_pending(core, skipped), core.allotments.unknown, core.allotments.obsolete, core._waits, core._facts)
        assert kept == anew
        compared += sum(map(len, kept[0].values()))
    assert compared, "no state has a write that waits for its turn"


def _not_looked_at(core: Core) -> set[str]:
    """The jobs whose writes are not computed now: they wait for a write or a pause, or for the next turn."""
    now_s = core._clock.monotonic_s()
    pausing = {uid for uid in core._jobs if core._due._backs_off(uid, now_s)}
    return pausing | set(core.under_way.jobs_that_wait()) | core._due._now.keys()


def _pending(core: Core, skipped: set[str]) -> dict[str, Counter[Write]]:
    """The writes of each job, in any order."""
    found: dict[str, Counter[Write]] = {}
    for lane in Lane:
        for jobs in core._pending._ready[lane].values():
            for uid in (uid for uid, writes in jobs.items() if uid not in skipped and writes):
                found.setdefault(uid, Counter()).update(jobs[uid])
    return found


def _begin_anew(desk: Desk) -> None:
    """Forget all but the plans, the writes under way and what the API server has answered, and look at each job."""
    core, snapshot = desk.parts.core, desk.parts.core.snapshot
    asked = dict(core._probes._asked)
    core.snapshot, core._jobs, core._facts, core._waits = ClusterSnapshot(0.0), {}, Facts(), frozenset()
    core._due._now, core._due._later, core.allotments.unknown, core.allotments.obsolete = {}, {}, set(), set()
    core._pending.clear()
    core._due._ends = []
    desk.seen(snapshot)
    core._probes._asked = asked
    while core.has_more:
        core._compute(core._clock.monotonic_s())
