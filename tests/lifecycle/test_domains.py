"""New pods that must stay together require the labels of their planned node, and slices are created whole."""

from __future__ import annotations

from dataclasses import replace

from edl.lifecycle.domains import places_of_slices, require_domains
from edl.lifecycle.pod_actions import create
from edl.model.actions import CreatePod, EnsureService
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.topology import Level, Slices, Topology, TopologyMode
from tests.worlds.builders import make_job, make_node

KEY = "example.com/rack"
JOB = replace(make_job("job"), topology=Topology.of(KEY, TopologyMode.REQUIRED))
NODES = (make_node("a1", labels={KEY: "a"}), make_node("bare"))
NEW = CreatePod(JobKey("default", "job"), "uid", Role.TRAINER, 0, node="a1")
SERVICE = EnsureService(JobKey("default", "job"), "uid")


def test_a_trainer_requires_the_domain_of_its_planned_node() -> None:
    assert require_domains((SERVICE, NEW), JOB, NODES) == (SERVICE, replace(NEW, labels=((KEY, "a"),)))


def test_a_pserver_requires_it_too() -> None:
    pserver = replace(NEW, role=Role.PSERVER)
    assert require_domains((pserver,), JOB, NODES) == (replace(pserver, labels=((KEY, "a"),)),)


def test_masters_may_be_anywhere_and_so_may_trainers_without_a_domain() -> None:
    others = (replace(NEW, role=Role.MASTER), replace(NEW, node="bare"), replace(NEW, node=None))
    assert require_domains(others, JOB, NODES) == others


def test_a_preference_requires_nothing() -> None:
    for topology in (None, Topology.of(KEY, TopologyMode.PREFERRED)):
        assert require_domains((NEW,), replace(JOB, topology=topology), NODES) == (NEW,)


TREE = Topology((Level("x/block", TopologyMode.PREFERRED), Level(KEY, TopologyMode.REQUIRED)))
IN_BLOCK = make_node("b1", labels={KEY: "a", "x/block": "b"})


def test_the_labels_of_all_wider_levels_are_required_too() -> None:
    job = replace(JOB, topology=TREE)
    placed = replace(NEW, node="b1")
    assert require_domains((placed,), job, (IN_BLOCK,)) == (replace(placed, labels=(("x/block", "b"), (KEY, "a"))),)
    assert require_domains((NEW,), job, NODES) == (NEW,)  # a rack without a block is none


def test_a_trainer_requires_the_domain_of_its_slice_and_a_pserver_that_of_the_job() -> None:
    levels = (Level("x/block", TopologyMode.REQUIRED), Level(KEY, TopologyMode.PREFERRED))
    job = replace(JOB, topology=Topology(levels, Slices(4, 2)))
    trainer, pserver = replace(NEW, node="b1"), replace(NEW, node="b1", role=Role.PSERVER)
    assert require_domains((trainer, pserver), job, (IN_BLOCK,)) == (
        replace(trainer, labels=(("x/block", "b"), (KEY, "a"))),
        replace(pserver, labels=(("x/block", "b"),)),
    )


SLICES = Slices(2, 2)
SLICED = Topology((Level("block", TopologyMode.PREFERRED), Level("rack", TopologyMode.PREFERRED)), SLICES)
LABELS = {
    f"{block}{rack}{i}": (("block", block), ("rack", rack)) for block in "ab" for rack in "xy" for i in range(4)
} | {"bare": ()}


def sliced(trainers: int = 0, on: tuple[str, ...] = (), low: int = 2) -> Job:
    made = make_job("job", trainers=trainers, min_trainers=low, max_trainers=8, on=on)
    return replace(made, topology=SLICED, sizes=(2, 4, 6, 8))


def places(made: Job, *nodes: str, most: int = 8) -> list[tuple[int, str]]:
    return places_of_slices(made, SLICES, nodes, LABELS, most)


def test_new_slices_start_whole_under_free_numbers() -> None:
    assert places(sliced(), "ax0", "bx0", "ax1", "bx1") == [(0, "ax0"), (1, "ax1"), (2, "bx0"), (3, "bx1")]
    assert places(sliced(2, ("ay0", "ay1")), "ax0", "ax1") == [(2, "ax0"), (3, "ax1")]


def test_a_part_of_a_slice_waits() -> None:
    assert places(sliced(), "ax0", "bx0") == []
    assert places(sliced(), "ax0", "bx0", "bx1") == [(0, "bx0"), (1, "bx1")]
    assert places(sliced(), "bare", "bare") == []


def test_racks_of_one_name_in_two_blocks_are_not_one() -> None:
    assert places(sliced(), "ax0", "bx0", "ay0", "by0") == []


def test_what_a_slice_lacks_is_created_in_its_domain_under_its_numbers() -> None:
    made = sliced(4, ("ax0", "ax1", "by0", "by1"))
    lost = replace(made, pods=tuple(pod for pod in made.pods if pod.index not in {1, 2}))
    assert places(lost, "by2", "ax2") == [(1, "ax2"), (2, "by2")]
    assert places(lost, "by2", "by3") == [(2, "by2")]  # the other one is in another rack than its slice
    assert places(lost, "by2", "by3", "by0") == [(2, "by2"), (4, "by3"), (5, "by0")]


def test_a_name_that_a_terminating_pod_has_is_not_free() -> None:
    made = sliced(4, ("ax0", "ax1", "by0", "by1"))
    ending = tuple(replace(pod, terminating=pod.index in {0, 1}) for pod in made.pods)
    assert places(replace(made, pods=ending), "ax2", "ax3") == [(4, "ax2"), (5, "ax3")]
    ending = tuple(replace(pod, terminating=pod.index == 1) for pod in made.pods)
    assert places(replace(made, pods=ending), "ax2", "ax3") == [(4, "ax2"), (5, "ax3")]


def test_no_more_are_created_than_may_be() -> None:
    assert places(sliced(), "ax0", "ax1", most=1) == [(0, "ax0")]


def created(made: Job, *nodes: str, trainers: int = 8) -> list[tuple[int, str | None]]:
    starts = [(Role.TRAINER, node) for node in nodes]
    actions = create(made, starts, trainers, frozenset({(Role.TRAINER, 3)}), LABELS)
    return [(action.index, action.node) for action in actions if isinstance(action, CreatePod)]


def test_a_pod_that_pauses_leaves_its_node_to_no_other_one() -> None:
    assert created(sliced(), "ax0", "ax1", "by0", "by1") == [(0, "ax0"), (1, "ax1"), (2, "by0")]


def test_a_gang_starts_with_all_its_slices_or_none() -> None:
    gang = replace(sliced(low=4), fault_tolerant=False, max_trainers=4, sizes=(4,))
    assert created(gang, "ax0", "ax1", "by0", trainers=4) == []
    elastic = replace(gang, fault_tolerant=True)
    assert created(elastic, "ax0", "ax1", "by0", trainers=4) == [(0, "ax0"), (1, "ax1")]
