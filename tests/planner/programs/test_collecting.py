"""Pods that a packing leaves out get a place by exchanges between nodes, in whole numbers, where pods may go."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from edl.planner.clock import Clock, OutOfTimeError
from edl.planner.programs.collecting import HALF, Pods, place_left_out

CAPACITY = (20_000, 64 * 2**30)  # millicores, bytes
PODS, FREE = 6, 4  # on each node; millicores for each node that are free in all, when all pods are placed
TRIES = 600


def tight(nodes: int, seed: int) -> tuple[Pods, np.ndarray]:
    """Nodes that some pods of unlike sizes fill but for 4 millicores a node; best fit, which leaves pods out."""
    random, rows = Random(seed), list[tuple[int, int]]()  # noqa: S311 - sizes, no secrets
    for _ in range(nodes):
        cuts = sorted(random.sample(range(300, CAPACITY[0] - 300), PODS - 1))
        sizes = [b - a for a, b in zip((0, *cuts), (*cuts, CAPACITY[0]), strict=True)]
        rows += [(size, random.randint(1, CAPACITY[1] // PODS)) for size in sizes]
    rows[0] = (rows[0][0] - FREE * nodes, rows[0][1])
    request = np.array(sorted(rows, reverse=True), dtype=np.int64)
    room = np.tile(np.array(CAPACITY, dtype=np.int64), (nodes, 1))
    size = (request / np.array(CAPACITY)).max(axis=1)
    pods = Pods(request, np.ones(len(rows), np.int64), room, np.ones((len(rows), nodes), np.int64), size)
    return pods, best_fit(pods)


def best_fit(pods: Pods) -> np.ndarray:
    placed, free = np.zeros_like(pods.most), pods.capacity.copy()
    for s, request in enumerate(pods.request):
        fits = [n for n in range(len(free)) if pods.most[s, n] and (request <= free[n]).all()]
        if fits:
            node = min(fits, key=lambda n: int(free[n, 0]))
            placed[s, node] += 1
            free[node] -= request
    return placed


def is_whole(pods: Pods, placed: np.ndarray) -> bool:
    """Whether all pods have a place on a node that may have them and has the room."""
    return bool(
        (placed >= 0).all()
        and (placed.sum(axis=1) == pods.count).all()
        and (placed <= pods.most).all()
        and (placed.T @ pods.request <= pods.capacity).all()
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("nodes", [5, 9])
def test_all_pods_have_a_place_although_next_to_nothing_is_left_free(nodes: int, seed: int) -> None:
    pods, placed = tight(nodes, seed)
    before = placed.copy()
    assert (placed.sum(axis=1) < pods.count).any()

    found = place_left_out(pods, placed, TRIES, Clock())

    assert found is not None
    assert is_whole(pods, found)
    assert (placed == before).all()


@pytest.mark.parametrize("seed", range(3))
def test_pods_go_to_nodes_that_may_have_them_only(seed: int) -> None:
    pods, _ = tight(6, seed)
    home = tight(6, seed)[1].argmax(axis=1)
    barred = np.array([[own != n and (s + n) % 4 == 0 for n in range(6)] for s, own in enumerate(home)])
    pods = Pods(pods.request * 99 // 100, pods.count, pods.capacity, np.where(barred, 0, pods.most), pods.size)

    found = place_left_out(pods, best_fit(pods), TRIES, Clock())

    assert found is not None
    assert is_whole(pods, found)


def test_many_pods_of_one_shape_are_more_than_a_half_holds() -> None:
    request = np.array([[1, 1], [7, 1]], dtype=np.int64)
    count, room = np.array([2 * HALF, 2], dtype=np.int64), np.array([[HALF + 7, 10**6]] * 2, dtype=np.int64)
    pods = Pods(request, count, room, np.tile(count[:, None], (1, 2)), np.ones(2))

    found = place_left_out(pods, np.array([[HALF + 7, HALF - 7], [0, 2]], dtype=np.int64), TRIES, Clock())

    assert found is not None
    assert is_whole(pods, found)


@pytest.mark.parametrize("nodes", [1, 4])
def test_one_pod_too_many_has_no_place(nodes: int) -> None:
    pods, placed = tight(nodes, 0)
    more = pods.count.copy()
    more[0] += 1

    assert place_left_out(Pods(pods.request, more, pods.capacity, pods.most, pods.size), placed, 40, Clock()) is None


def test_a_packing_of_all_pods_stays_as_it_is() -> None:
    pods, placed = tight(5, 1)
    whole = place_left_out(pods, placed, TRIES, Clock())
    assert whole is not None

    again = place_left_out(pods, whole, 0, Clock())

    assert again is not None
    assert (again == whole).all()


def test_equal_questions_have_equal_answers() -> None:
    (pods, placed), clock = tight(8, 2), Clock()

    first, second = (place_left_out(pods, placed, TRIES, clock) for _ in range(2))

    assert first is not None
    assert second is not None
    assert (first == second).all()


def test_without_exchanges_pods_stay_without_a_place() -> None:
    pods, placed = tight(5, 1)

    assert place_left_out(pods, placed, 0, Clock()) is None


def test_the_deadline_ends_the_search() -> None:
    pods, placed = tight(5, 1)
    clock = Clock(10.0)
    clock.allow(-1.0)

    with pytest.raises(OutOfTimeError, match="repacking"):
        place_left_out(pods, placed, TRIES, clock)
