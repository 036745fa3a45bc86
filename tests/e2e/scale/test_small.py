"""The scenes of the large clusters on a few dozen nodes: the order of the writes, and none that a plan has dropped.

Nothing here claims a time; `make scale-5000` and `make scale-peer` measure.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.faults.faults import Asked, Fault, held, slow
from tests.e2e.faults.proxy import FaultProxy
from tests.e2e.scale import fill, peer
from tests.e2e.scale.audit import ACCOUNT, Sent
from tests.e2e.scale.world import ScaleWorld, Size, started
from tests.e2e.worlds.harness import install
from tests.worlds.waiting import wait_until

SMALL = Size(nodes=24, jobs=8, trainers=4, serving=2, cpu="12", wide="10")
FULL = Size(nodes=12, jobs=3, trainers=16, least=2, serving=0, cpu="4200m", wide="1")
GROWN = 24
SLOW_S = 0.5
WRITES = "16"
"""So many writes at once: a growth that takes seconds, however fast edl gets to more of them."""
SETTINGS = Settings(audit_level="Metadata", audit_user=ACCOUNT, node_grace_s=40)
Planes = Callable[..., ControlPlane]


def plane_of(control_plane: Planes, size: Size) -> ControlPlane:
    room = {"cpu": size.cpu, "memory": "64Gi", "pods": "110"}
    return control_plane(nodes=[NodeSpec(fill.node_name(n), room) for n in range(size.nodes)], settings=SETTINGS)


@contextmanager
def growing(control_plane: Planes, fault: Fault) -> Iterator[tuple[ScaleWorld, float, list[Asked]]]:
    """Every job grows, and something happens to the creation of each new pod; yields what was asked from then on."""
    plane = plane_of(control_plane, SMALL)
    with (
        FaultProxy(install(plane)) as proxy,
        started(plane, SMALL, "--writes-at-once", WRITES, account=proxy.kubeconfig, is_bare=False) as world,
        proxy.fault(fault, "POST", "/pods$") as asked,
    ):
        began_s = time.time()
        world.grow(world.jobs, GROWN)
        yield world, began_s, asked


def is_creation(sent: Sent) -> bool:
    return sent.what == "create pods"


def is_growth(sent: Sent) -> bool:
    return is_creation(sent) and sent.name.startswith("job-")


def test_what_cannot_wait_is_written_before_a_growth_ends(control_plane: Planes) -> None:
    with growing(control_plane, slow(SLOW_S)) as (world, began_s, _):
        world.audit.wait(began_s, is_creation, 4)
        happened = {world.job_comes, world.serving_comes, world.job_ends}
        for happen in happened:
            happen()
        last = world.audit.wait(began_s, is_growth, SMALL.jobs * (GROWN - SMALL.trainers) * 3 // 4)
        sent = world.audit.since(began_s)
    news = [one for one in sent if one.name.startswith("new")]
    ends = [one for one in sent if one.is_end and one.name.startswith("job-")]
    assert news[0].at_s < last.at_s
    assert ends[0].at_s < last.at_s, "trainers go for a serving pod before the growth is complete"
    ran = {f"{job}-trainer-{index}" for job in world.jobs for index in range(SMALL.trainers)}
    marked = {one.name for one in ends if one.what == "patch pods"}
    assert not marked & ran, "one request for each that runs; its grace period says why"
    trainers = [one.at_s for one in news if is_creation(one) and "-trainer-" in one.name]
    needed = [one.at_s for one in news if one.what in {"create services", "create secrets"}]
    assert max(needed) < min(trainers), "no trainer starts before what it needs"


def test_nothing_is_sent_that_a_newer_plan_has_dropped(control_plane: Planes) -> None:
    """The maximum of a job falls while the job grows; from the line of the new decision on no trainer is created."""
    goes_on = threading.Event()
    with growing(control_plane, held(goes_on)) as (world, began_s, asked):
        wait_until(lambda: len(asked) >= int(WRITES), "all creations that may be under way are")
        job = world.jobs[3]
        now = SMALL.trainers + 2
        world.grow([job], now)
        wait_until(lambda: f"job=default/{job} " in decided(world, f" max={now} "), "the new decision is logged")
        before = {one.name for one in asked}
        goes_on.set()
        others = SMALL.jobs - 1
        world.audit.wait(began_s, is_growth, others * (GROWN - SMALL.trainers))
        sent = world.audit.since(began_s)
    made = Counter(one.name for one in sent if is_creation(one))
    of_job = {name for name in made if name.startswith(f"{job}-")}
    assert of_job - before <= {f"{job}-trainer-{index}" for index in range(now)}
    assert not [name for name, count in made.items() if count > 1]


def decided(world: ScaleWorld, words: str) -> str:
    """The lines of the controller's log about a decision with these words."""
    lines = world.controller.log.read_text().splitlines()
    return "\n".join(line for line in lines if "msg=decision" in line and words in line)


def test_slots_of_running_trainers_are_reclaimed_one_by_one_and_a_giant_gets_its_verdict(
    control_plane: Planes,
) -> None:
    with started(plane_of(control_plane, FULL), FULL, is_bare=False) as world:
        began_s = time.time()
        peer.one_slot(world)
        _, writes = peer.many_slots(world, 6)
        peer.verdict(world)
        ends = [one for one in world.audit.since(began_s) if one.is_end]
    assert Counter(one.what for one in ends) == {"delete pods": 7}, "one request for each; its grace period says why"
    assert writes >= 6
