"""What a user reads about a job whose trainers stay together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.explain.decision import explained_study
from edl.explain.job_report import report_on_job
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import FixedPods, Job
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.plan import ScaleDecision
from edl.model.resources import Placement
from edl.model.topology import Level, Slices, Topology, TopologyMode, in_domain
from edl.planner.policies.registry import policy_named
from tests.worlds.builders import make_job, make_node, make_shape, make_snapshot
from tests.worlds.small_clusters import decision_of, plan_for

KEY = "example.com/rack"
RACKS = tuple(make_node(f"{rack}{i}", 4, labels={KEY: f"rack-{rack}"}) for rack in "ab" for i in range(2))


def together(job: Job, mode: TopologyMode = TopologyMode.REQUIRED, key: str = KEY) -> Job:
    return replace(job, topology=Topology.of(key, mode))


def decided(*jobs: Job) -> ScaleDecision:
    return decision_of(plan_for(make_snapshot(RACKS, jobs)), "job")


def test_a_job_that_fits_in_no_rack_says_what_the_best_one_holds() -> None:
    decision = decided(together(make_job("job", min_trainers=9, max_trainers=9)))
    assert decision.message == "needs 9 trainers in one rack; the best, rack-b, has capacity for 8"
    assert decision.details.endswith(f"does not fit even without other jobs: {decision.message}")


def running_in(rack: str) -> Job:
    """A job at its minimum of 5 in one rack, whose trainers may not leave it."""
    job = together(make_job(f"r{rack}", trainers=5, min_trainers=5, max_trainers=5, on=(f"{rack}0", f"{rack}1")))
    assert job.topology is not None
    shape = in_domain(job.trainer, replace(job.topology, domain=(f"rack-{rack}",)))
    return replace(job, pods=tuple(replace(pod, shape=shape) for pod in job.pods))


def test_a_job_that_waits_for_room_in_one_rack_says_so() -> None:
    """Six cores are free, three in each rack, and nobody can give more."""
    decision = decided(running_in("a"), running_in("b"), together(make_job("job", min_trainers=5, max_trainers=5)))
    assert decision.message == "needs 5 trainers in one rack; the best, rack-b, has capacity for 3"
    assert decision.details.startswith("waits for capacity: needs 5 trainers (5 cores")


def test_pservers_that_belong_into_the_rack_are_named() -> None:
    job = together(make_job("job", min_trainers=7, max_trainers=7))
    pservers = FixedPods(Role.PSERVER, make_shape(1, 1), 2)
    assert decided(replace(job, fixed=(pservers,))).message == (
        "needs 7 trainers and 2 pservers in one rack; the best, rack-b, has capacity for 6 trainers "
        "beside the pservers"
    )
    nine = replace(pservers, count=9)
    assert decided(replace(job, fixed=(nine,))).message == (
        "needs 7 trainers and 9 pservers in one rack, and no rack has capacity for all pservers"
    )
    elsewhere = Placement(node_selector=(("pool", "cpu"),))
    outside = replace(pservers, shape=make_shape(1, 1, elsewhere))
    assert decided(replace(job, fixed=(outside,))).message == (
        "no node with the label example.com/rack accepts its pservers"
    )


def test_no_rack_and_no_label_are_said() -> None:
    large = together(make_job("job", cpu=5, min_trainers=2))
    assert decided(large).message == "needs 2 trainers in one rack, and no rack has capacity for any"
    nowhere = together(make_job("job"), key="nvlink")
    assert decided(nowhere).message == "no node has the label nvlink"


def test_a_running_job_says_which_rack_is_full() -> None:
    decision = decided(together(make_job("job", min_trainers=2, max_trainers=16)))
    assert decision.message.endswith("(its rack rack-a)")
    assert decision.details.endswith("its trainers stay in rack rack-a")


@pytest.mark.parametrize("mode", [None, TopologyMode.PREFERRED])
def test_other_jobs_read_what_they_read_before(mode: TopologyMode | None) -> None:
    job = make_job("job", min_trainers=17, max_trainers=17)
    assert decided(together(job, mode) if mode else job).message == (
        "the nodes can hold at most 16 trainers, and its minimum is 17"
    )


SMALL = (make_node("s0", 3, labels={KEY: "small"}), *(make_node(f"l{i}", 4, labels={KEY: "large"}) for i in range(2)))


def in_small_rack(mode: TopologyMode = TopologyMode.REQUIRED) -> ClusterSnapshot:
    """A job of three trainers that fills the small rack, while eight cores are free in the large one."""
    job = together(make_job("job", trainers=3, min_trainers=2, max_trainers=6, on=("s0",)), mode)
    assert job.topology is not None
    pinned = (
        in_domain(job.trainer, replace(job.topology, domain=("small",))) if job.topology.is_required else job.trainer
    )
    job = replace(job, pods=tuple(replace(pod, shape=pinned) for pod in job.pods), resize_cost_s=20.0, unsaved_s=40.0)
    return make_snapshot(SMALL, (job,))


def remedies(world: ClusterSnapshot) -> tuple[str, ...]:
    made = explained_study(world, policy_named("maxmin"), Limits())
    return report_on_job(made, JobKey("default", "job"), 10.0).remedies


def test_a_job_that_fills_a_small_rack_is_told_of_a_larger_one() -> None:
    decision = decision_of(plan_for(in_small_rack()), "job")
    assert (decision.target, decision.victims) == (3, ())
    assert decision.details.endswith("its trainers stay in rack small, although rack large has free capacity for 8")
    assert remedies(in_small_rack())[0] == (
        "start it again in rack large, which has free capacity for 8 trainers: set spec.suspend to true, and to false"
        " once its pods are gone; what it repeats is made up after 60 s"
    )


def test_what_is_advised_comes_true() -> None:
    """Without its pods, the job starts in the rack that was named, with as many trainers as were said."""
    world = in_small_rack()
    again = replace(world, jobs=tuple(replace(job, pods=()) for job in world.jobs))
    decision = decision_of(plan_for(again), "job")
    assert (decision.target, {name[0] for name, _ in decision.nodes}) == (6, {"l"})


def test_nothing_is_advised_where_no_rack_is_larger() -> None:
    alone = replace(in_small_rack(), nodes=(SMALL[0], make_node("l0", 3, labels={KEY: "large"})))
    assert "although" not in decision_of(plan_for(alone), "job").details
    assert not any("spec.suspend" in remedy for remedy in remedies(alone))


TREE = (Level("example.com/block", TopologyMode.PREFERRED), Level(KEY, TopologyMode.REQUIRED))
BLOCKS = tuple(
    make_node(f"{block}{rack}{i}", 4, labels={"example.com/block": f"block-{block}", KEY: f"rack-{rack}"})
    for block, rack in ("xa", "xb", "ya")
    for i in range(2)
)


def in_blocks(job: Job, topology: Topology) -> ClusterSnapshot:
    return make_snapshot(BLOCKS, (replace(job, topology=topology),))


def test_a_rack_is_named_with_its_block() -> None:
    world = in_blocks(make_job("job", min_trainers=9, max_trainers=9), Topology(TREE))
    message = decision_of(plan_for(world), "job").message
    assert message == "needs 9 trainers in one rack; the best, rack-a of block-y, has capacity for 8"


def test_the_domains_of_each_level_are_in_the_report() -> None:
    levels = tuple(Level(level.key, TopologyMode.PREFERRED) for level in TREE)
    study = explained_study(
        in_blocks(make_job("job", min_trainers=12, max_trainers=12), Topology(levels)),
        policy_named("maxmin"),
        Limits(),
    )
    report = report_on_job(study, JobKey("default", "job"), 10.0)
    assert report.domains == ("12 in block block-x", "8 in rack rack-a of block-x and 4 in rack rack-b of block-x")


def sliced(low: int, high: int, size: int, *, mode: TopologyMode = TopologyMode.PREFERRED) -> ClusterSnapshot:
    levels = (Level("example.com/block", mode), Level(KEY, TopologyMode.PREFERRED))
    job = make_job("job", min_trainers=low, max_trainers=high)
    job = replace(job, sizes=tuple(range(low, high + 1, size)))
    return in_blocks(job, Topology(levels, Slices(size, 2)))


def test_a_job_says_what_its_slices_lack() -> None:
    waits = decision_of(plan_for(sliced(20, 20, 5)), "job")
    assert waits.message == "needs 20 trainers in 4 slices of 5, each in one rack; there is capacity for 3 slices"
    waits = decision_of(plan_for(sliced(15, 15, 5, mode=TopologyMode.REQUIRED)), "job")
    assert waits.message == (
        "needs 15 trainers in 3 slices of 5, each in one rack, in one block; the best, block-x, has capacity for 10"
    )
    grown = decision_of(plan_for(sliced(5, 20, 5)), "job")
    assert (grown.target, grown.message) == (15, "15 of 20: no rack has capacity for one more slice of 5")


def test_a_cluster_without_the_labels_of_slices_is_named() -> None:
    world = make_snapshot(RACKS, sliced(5, 5, 5).jobs)
    message = decision_of(plan_for(world), "job").message
    assert message == f"no node has the labels example.com/block, {KEY}"
