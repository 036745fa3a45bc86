"""Every cluster that the controller sees gives an unchanged job as the same Python object."""

from __future__ import annotations

from contextlib import closing

from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey
from tests.worlds.builders import changed_jobs, make_job, make_node, make_nodes
from tests.worlds.simulated_controller import Living
from tests.worlds.small_scope.cluster import Stream
from tests.worlds.small_scope.scenes import SCENES

A, B = JobKey("default", "a"), JobKey("default", "b")


def test_the_cluster_of_the_histories() -> None:
    with closing(Living(make_nodes(2))) as living:
        living.do(lambda world: world.add(make_job("a", min_trainers=1, max_trainers=2)))
        living.do(lambda world: world.add(make_job("b", min_trainers=1, max_trainers=2)))
        living.settle()
        before = seen(living)
        living.do(lambda world: world.change("a-trainer-0", grace_s=7))
        assert changed_jobs(before, seen(living)) == {A}
        before = seen(living)
        living.do(lambda world: world.add(make_job("c")))
        assert changed_jobs(before, seen(living)) == {JobKey("default", "c")}
        before = seen(living)
        living.do(lambda world: world.delete_job(B))
        assert B in changed_jobs(before, seen(living))
        assert A not in changed_jobs(before, seen(living))


def seen(living: Living) -> ClusterSnapshot:
    found: list[ClusterSnapshot] = []
    living.do(lambda world: found.append(world.snapshot()))
    return found[0]


def test_the_cluster_of_the_small_scope() -> None:
    scene = SCENES["pods-end"]
    cluster = scene.cluster()
    world = cluster.begin(scene.jobs, (make_node("n1", 4, 64),))
    before = cluster.snapshot(world)
    jobs = cluster.value(world, Stream.JOBS)
    after = cluster.put(world, Stream.JOBS, jobs[:1])
    after = cluster.show(after, Stream.JOBS)
    assert changed_jobs(before, cluster.snapshot(after)) == {jobs[1].key}
