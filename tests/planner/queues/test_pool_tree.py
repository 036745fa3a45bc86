"""What is left of a pool below a tree of Cohorts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edl.model.quota_trees import Pool, PoolLimits, QuotaNode
from edl.planner.queues.pool_tree import PoolTree

POOL = Pool("a", "cpu")


def node(
    name: str, nominal: int, parent: str = "", borrowing: int | None = None, lending: int | None = None
) -> QuotaNode:
    return QuotaNode(name, parent, ((POOL, PoolLimits(nominal, borrowing, lending)),))


def test_a_queue_alone_has_its_own() -> None:
    tree = PoolTree([node("blue", 10)], POOL)
    assert (tree.most("blue"), tree.available("blue")) == (10, 10)
    tree.take("blue", 12)
    assert tree.available("blue") == -2


def test_queues_of_a_cohort_share_within_their_limits() -> None:
    nodes = [node("blue", 10, "all", borrowing=3), node("green", 10, "all", lending=4), node("all", 0)]
    tree = PoolTree(nodes, POOL)
    assert (tree.most("blue"), tree.most("green")) == (13, 20)
    tree.take("blue", 13)
    assert (tree.available("blue"), tree.available("green")) == (0, 7), "the lender has the rest of its own"
    tree.take("green", 6)
    assert tree.available("green") == 1


def test_a_cohort_lends_and_borrows_as_a_whole() -> None:
    nodes = [
        *(node("blue", 4, "team"), node("red", 4, "team"), node("green", 20, "firm")),
        *(node("team", 2, "firm", borrowing=3, lending=5), node("firm", 0)),
    ]
    tree = PoolTree(nodes, POOL)
    assert (tree.most("blue"), tree.most("green")) == (13, 25)
    tree.take("red", 4)
    assert tree.available("blue") == 9
    tree.take("blue", 9)
    assert (tree.available("blue"), tree.available("red"), tree.available("green")) == (0, 0, 17)


def test_another_pool_and_a_missing_parent_are_nothing() -> None:
    tree = PoolTree([node("blue", 10, "missing")], Pool("b", "cpu"))
    assert (tree.most("blue"), tree.top("blue")) == (0, "blue")


def test_nodes_in_a_circle_borrow_from_nobody() -> None:
    nodes = [node("a", 1, "b"), node("b", 2, "a"), node("blue", 3, "a")]
    tree = PoolTree(nodes, POOL)
    assert {name: tree.most(name) for name in ("a", "b", "blue")} == {"a": 1, "b": 2, "blue": 3}


@st.composite
def trees(draw: st.DrawFn) -> tuple[QuotaNode, ...]:
    """Up to four Cohorts in a tree, and up to five ClusterQueues below them."""
    limit = st.none() | st.integers(0, 12)
    cohorts = [f"cohort-{i}" for i in range(draw(st.integers(1, 4)))]
    nodes = [
        node(
            name,
            draw(st.integers(0, 6)),
            draw(st.sampled_from(cohorts[:i])) if i else "",
            draw(limit) if i else None,
            draw(limit) if i else None,
        )
        for i, name in enumerate(cohorts)
    ]
    for i in range(draw(st.integers(1, 5))):
        parent = draw(st.sampled_from(cohorts))
        nodes.append(node(f"queue-{i}", draw(st.integers(0, 10)), parent, draw(limit), draw(limit)))
    return tuple(nodes)


@given(trees(), st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), max_size=30))
def test_taking_what_is_available_never_exceeds_what_there_is(
    nodes: tuple[QuotaNode, ...], wishes: list[tuple[int, int]]
) -> None:
    queues = [one.name for one in nodes if one.name.startswith("queue-")]
    limits = {one.name: dict(one.limits)[POOL] for one in nodes}
    tree, taken = PoolTree(nodes, POOL), dict.fromkeys(queues, 0)
    for number, amount in wishes:
        queue = queues[number % len(queues)]
        if amount <= tree.available(queue):
            tree.take(queue, amount)
            taken[queue] += amount
    assert sum(taken.values()) <= sum(one.nominal for one in limits.values())
    for queue, amount in taken.items():
        assert amount <= tree.most(queue)
        if (borrowing := limits[queue].borrowing) is not None:
            assert amount <= limits[queue].nominal + borrowing
    for lender in queues:
        if (lending := limits[lender].lending) is not None:
            kept = max(0, limits[lender].nominal - lending)
            assert tree.available(lender) >= max(0, kept - taken[lender]), "nobody takes what it lends to nobody"
