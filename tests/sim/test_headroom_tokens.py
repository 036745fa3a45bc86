"""The second load of two weeks: how a HorizontalPodAutoscaler follows the tokens of a service."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from benchmarks.headroom import TOKENS, nodes
from benchmarks.headroom_tokens import LEAST_MORE, STABLE_S, SYNC_S, replicas
from edl.sim.importers.azure_llm import CHANGE_DAY, DAY_S

DAYS = 10


@cache
def load() -> tuple[tuple[float, int], ...]:
    return replicas(DAYS, pods=24)


def mean_of_day(day: int) -> float:
    begin_s, end_s = day * DAY_S, (day + 1) * DAY_S
    steps = [*load(), (float(DAYS * DAY_S), 0)]
    return sum(n * max(0.0, min(until, end_s) - max(at, begin_s)) for (at, n), (until, _) in pairwise(steps)) / DAY_S


def test_pods_change_only_when_the_autoscaler_looks_and_at_most_double() -> None:
    assert all(at_s % SYNC_S == 0 for at_s, _ in load())
    assert all(after != before for (_, before), (_, after) in pairwise(load()))
    assert all(after <= max(2 * before, before + LEAST_MORE) for (_, before), (_, after) in pairwise(load()))


def test_pods_leave_only_if_they_were_not_wanted_for_five_minutes() -> None:
    """After a rise the number stays for so long, unless it rises again."""
    rises = [at_s for (_, before), (at_s, after) in pairwise(load()) if after > before]
    falls = [at_s for (_, before), (at_s, after) in pairwise(load()) if after < before]
    last = {fall_s: max((rise_s for rise_s in rises if rise_s < fall_s), default=-STABLE_S) for fall_s in falls}
    assert len(falls) > 100
    assert all(fall_s - rise_s >= STABLE_S - SYNC_S for fall_s, rise_s in last.items())


def test_the_load_grows_by_half_with_the_change_of_regime() -> None:
    assert 1.35 < mean_of_day(CHANGE_DAY + 1) / mean_of_day(CHANGE_DAY - 1) < 1.65


def test_a_seed_gives_the_same_load_and_another_one_another() -> None:
    assert replicas(1, pods=24) == replicas(1, pods=24) != replicas(1, pods=24, seed=1)


def test_the_nodes_take_this_load() -> None:
    tokens, requests = (nodes(0, load=load).serving[0].replicas for load in (TOKENS, 0))
    assert tokens == replicas(14, pods=40) != requests
