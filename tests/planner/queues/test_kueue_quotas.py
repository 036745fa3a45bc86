"""What the jobs that edl sizes may use of their ClusterQueues."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from edl.model.quota_trees import QuotaNode
from edl.planner.queues.kueue_quotas import SizedUse, allotted
from edl.planner.queues.pool_tree import PoolTree
from tests.planner.queues.test_pool_tree import POOL, node, trees

SHARED = node("blue", 10, "all"), node("green", 10, "all"), node("all", 0)


def use(queue: str = "blue", *, least: int = 0, wanted: int = 30, reserved: int = 0, **more: float) -> SizedUse:
    return SizedUse(queue, queue, more.get("weight", 1.0), least, wanted, reserved, int(more.get("step", 1)))


def holding(nodes: tuple[QuotaNode, ...], name: str, held: int = 0, claimed: int = 0) -> tuple[QuotaNode, ...]:
    return tuple(
        replace(one, held=((POOL, held),), claimed=((POOL, claimed),)) if one.name == name else one for one in nodes
    )


def test_a_queue_borrows_what_nobody_holds_or_claims() -> None:
    assert allotted(SHARED, POOL, [use()]) == {"blue": 20}
    assert allotted(holding(SHARED, "green", held=3, claimed=4), POOL, [use()]) == {"blue": 13}


def test_what_is_borrowed_comes_back_for_a_claim_but_never_a_minimum() -> None:
    claimed = holding(SHARED, "green", claimed=8)
    assert allotted(claimed, POOL, [use(reserved=20)]) == {"blue": 12}
    assert allotted(claimed, POOL, [use(reserved=20, least=15)]) == {"blue": 15}


def test_growth_waits_until_others_have_given_back() -> None:
    uses = [use("blue", reserved=18), use("green", reserved=2)]
    assert allotted(SHARED, POOL, uses) == {"blue": 10, "green": 2}
    uses = [use("blue", reserved=10), use("green", reserved=2)]
    assert allotted(SHARED, POOL, uses) == {"blue": 10, "green": 10}


def test_what_is_borrowed_is_shared_by_weight_in_whole_trainers() -> None:
    nodes = (*SHARED, node("idle", 12, "all"))
    uses = [use("blue", weight=2.0), use("green")]
    assert allotted(nodes, POOL, uses) == {"blue": 18, "green": 14}
    assert allotted((node("blue", 10),), POOL, [use(step=4, wanted=28)]) == {"blue": 8}


def test_who_needs_its_own_has_it_before_anybody_borrows() -> None:
    uses = [use("blue", wanted=30, weight=100.0), use("green", wanted=9)]
    assert allotted(SHARED, POOL, uses) == {"blue": 11, "green": 9}


@st.composite
def scenes(draw: st.DrawFn) -> tuple[tuple[QuotaNode, ...], list[SizedUse]]:
    """A tree in which some is held and claimed, and what the jobs of its queues want and have."""
    nodes = list(draw(trees()))
    free, uses = PoolTree(nodes, POOL), []
    for i, one in enumerate(nodes):
        if not one.name.startswith("queue-"):
            continue
        held = draw(st.integers(0, max(0, free.available(one.name))))
        free.take(one.name, held)
        claimed = draw(st.integers(0, max(0, free.nominal(one.name) - held)))
        nodes[i] = replace(one, held=((POOL, held),), claimed=((POOL, claimed),))
        reserved = draw(st.integers(0, max(0, free.available(one.name))))
        free.take(one.name, reserved)
        least = draw(st.integers(0, reserved))
        wanted = least + draw(st.integers(0, 20))
        uses.append(SizedUse(one.name, one.name, draw(st.sampled_from([0.5, 1.0, 2.0])), least, wanted, reserved, 1))
    return tuple(nodes), uses


@given(scenes())
def test_shares_are_within_reach_and_nobody_loses_its_minimum(
    scene: tuple[tuple[QuotaNode, ...], list[SizedUse]],
) -> None:
    nodes, uses = scene
    shares = allotted(nodes, POOL, uses)
    now = PoolTree(nodes, POOL)
    for one in nodes:
        now.take(one.name, dict(one.held).get(POOL, 0))
    for asked in uses:
        now.take(asked.node, asked.reserved)
    for asked in uses:
        share = shares[asked.queue]
        assert asked.least <= share <= max(asked.least, asked.wanted)
        if share > asked.reserved:
            assert share - asked.reserved <= now.available(asked.node), "more than is unused"
            now.take(asked.node, share - asked.reserved)


@given(scenes())
def test_what_is_given_back_is_enough_for_every_claim(scene: tuple[tuple[QuotaNode, ...], list[SizedUse]]) -> None:
    nodes, uses = scene
    shares = allotted(nodes, POOL, [replace(one, least=0) for one in uses])
    tree = PoolTree(nodes, POOL)
    for one in nodes:
        tree.take(one.name, dict(one.held).get(POOL, 0))
    for asked in uses:
        tree.take(asked.node, min(asked.reserved, shares[asked.queue]))
    borrowed = any(tree.used(one.name) > tree.nominal(one.name) for one in nodes if one.name.startswith("queue-"))
    for one in nodes:
        claimed = dict(one.claimed).get(POOL, 0)
        if claimed and not borrowed:
            assert claimed <= tree.available(one.name)
