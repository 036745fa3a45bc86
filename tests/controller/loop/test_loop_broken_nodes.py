"""A node that breaks whatever trains on it: found, avoided, reported, tried again; healthy trainers are untouched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from edl.lifecycle.node_troubles import NODE_AVOIDED
from edl.model.actions import DeletePod
from edl.model.jobs import Job
from edl.model.limits import Limits, NodeLimits
from edl.model.names import JobKey
from edl.model.pods import Pod, PodPhase
from edl.model.status import Condition
from tests.worlds.builders import make_job, make_nodes, make_serving
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living
from tests.worlds.simulated_objects import now_s

FIRST_S = 60.0
LIMITS = Limits(nodes=NodeLimits(avoid_after=2, avoid_for_s=FIRST_S))
BROKEN = "n001"
A, B = JobKey("default", "a"), JobKey("default", "b")


def jobs(*names: str) -> list[Job]:
    return [make_job(name, min_trainers=1, max_trainers=12, cpu=1) for name in names]


def add(living: Living, job: Job) -> None:
    living.do(lambda world: world.add(job))


def fail_for_long(living: Living, key: JobKey) -> None:
    living.do(lambda world: world.edit(key, backoff_limit=10_000))


def degraded(living: Living, key: JobKey) -> Condition:
    found = living.status_of(key).condition("Degraded")
    assert found is not None
    return found


def start(limits: Limits = LIMITS, *names: str) -> Living:
    living = Living(make_nodes(4, cpu=4), limits)
    for job in jobs(*(names or ("a", "b"))):
        add(living, job)
    return living


@pytest.fixture
def living() -> Iterator[Living]:
    with closing(start()) as made:
        yield made


def on(living: Living, node: str) -> list[Pod]:
    pods = (owned.pod for owned in living.world.pods.values())
    return [pod for pod in pods if pod.node == node and pod.is_live]


def break_all(world: World, broken: Callable[[Pod], bool]) -> None:
    """What runs on the node for a second fails."""
    for owned in list(world.pods.values()):
        pod = owned.pod
        runs = pod.phase is PodPhase.RUNNING and not pod.terminating and pod.started_s is not None
        if runs and broken(pod) and now_s() - (pod.started_s or 0.0) >= 1:
            world.finish(pod.name, exit_code=1)


def run(living: Living, seconds: float, broken: Callable[[Pod], bool] = lambda _: False) -> None:
    for _ in range(int(seconds)):
        living.step(1.0)
        living.do(lambda world: break_all(world, broken))


def is_on_broken(pod: Pod) -> bool:
    return pod.node == BROKEN


def until_avoided(living: Living) -> None:
    run(living, 20)
    assert len(on(living, BROKEN)) == 4
    for _ in range(60):
        run(living, 1, is_on_broken)
        if all(degraded(living, key).reason == NODE_AVOIDED for key in (A, B)):
            run(living, 8, is_on_broken)  # trainers that were on their way
            assert not on(living, BROKEN)
            return
    raise AssertionError([living.status_of(key).troubles for key in (A, B)])


def test_a_node_that_breaks_trainers_of_two_jobs_is_avoided_and_reported(living: Living) -> None:
    until_avoided(living)
    uids = {pod.uid for node in ("n000", "n002", "n003") for pod in on(living, node)}
    failures = sum(living.status_of(key).failures for key in (A, B))
    run(living, FIRST_S - 20, is_on_broken)
    assert not on(living, BROKEN)
    assert sum(living.status_of(key).failures for key in (A, B)) <= failures + 4  # those that were on their way
    assert uids <= {pod.uid for node in ("n000", "n002", "n003") for pod in on(living, node)}
    assert {event.reason for event in living.world.events} >= {NODE_AVOIDED}
    assert BROKEN in next(e.message for e in living.world.events if e.reason == NODE_AVOIDED)
    assert living.broken == []
    assert living.world.violations == []


def test_serving_pods_still_start_there(living: Living) -> None:
    until_avoided(living)
    run(living, 10, is_on_broken)
    living.do(lambda world: world.serving.update({"web": make_serving("web", cpu=4)}))
    run(living, 10)
    assert living.world.serving["web"].node == BROKEN


def test_one_trainer_is_tried_and_if_it_fails_the_node_is_avoided_for_longer(living: Living) -> None:
    until_avoided(living)
    first = max(t.time_s for key in (A, B) for t in living.status_of(key).troubles)
    tried: set[str] = set()
    for _ in range(int(4 * FIRST_S)):
        run(living, 1)
        present = on(living, BROKEN)
        assert len(present) <= 1
        tried |= {pod.uid for pod in present}
        living.do(lambda world: break_all(world, is_on_broken))
    troubles = [t for key in (A, B) for t in living.status_of(key).troubles]
    assert len(tried) == 2  # after one wait, and after one that is twice as long
    assert max(t.waits for t in troubles) == 2
    assert first + FIRST_S < max(t.time_s for t in troubles)


def test_a_node_that_is_sound_again_fills_after_one_trainer_did_well(living: Living) -> None:
    until_avoided(living)
    run(living, FIRST_S + 20)
    assert len(on(living, BROKEN)) == 1
    run(living, FIRST_S)
    assert len(on(living, BROKEN)) == 4
    assert all(living.status_of(key).troubles == () for key in (A, B))
    run(living, 10)
    assert all(degraded(living, key).status == "False" for key in (A, B))


def test_a_restarted_controller_avoids_the_same_nodes(living: Living) -> None:
    until_avoided(living)
    run(living, 5, is_on_broken)
    living.crash()
    run(living, 20, is_on_broken)
    assert not on(living, BROKEN)


def test_trainers_that_run_on_an_avoided_node_stay() -> None:
    with closing(start(LIMITS, "a", "b", "c")) as living:
        run(living, 20)
        spared = {pod.uid for pod in on(living, BROKEN) if pod.job == JobKey("default", "c")}
        assert spared
        for _ in range(30):
            run(living, 1, lambda pod: pod.node == BROKEN and pod.uid not in spared)
        assert spared == {pod.uid for pod in on(living, BROKEN)}
        deleted = {a.pod_uid for a in living.world.writes if isinstance(a, DeletePod)}
        assert not deleted & spared


def test_a_job_that_fails_everywhere_condemns_no_node() -> None:
    with closing(start(LIMITS, "a", "b", "c")) as living:
        for key in (A, B):
            fail_for_long(living, key)
        run(living, 20)
        run(living, 90, lambda pod: pod.job in {A, B})
        assert not any(e.reason == NODE_AVOIDED for e in living.world.events)


def test_without_the_flag_nothing_is_stored_and_the_node_is_used() -> None:
    with closing(start(Limits())) as living:
        run(living, 20)
        run(living, 3, is_on_broken)
        run(living, 60)
        assert on(living, BROKEN)
        assert all(living.status_of(key).troubles == () for key in (A, B))
