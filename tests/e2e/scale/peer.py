"""The published scale test of another scheduler: 500 full nodes with 4,000 running trainers, played with edl.

Source: KAI-Scheduler's scale test: reclaim one slot 13.9 s, make room for 250 pods 102 s, the verdict
"unschedulable" 249.5 s.
"""

from __future__ import annotations

import time

from tests.e2e.scale import fill
from tests.e2e.scale.audit import Sent
from tests.e2e.scale.figures import quantiles
from tests.e2e.scale.world import ScaleWorld, Size

PEER = Size(nodes=500, jobs=40, trainers=100, least=10, serving=0, cpu="8200m", wide="1")
PAUSE_S = 3.0


def measure(world: ScaleWorld, *, times: int, many: int) -> None:
    """Print how long one slot, many slots and the verdict on a job that cannot fit take."""
    trainers = world.size.jobs * world.size.trainers
    print(f"{world.size.nodes} nodes, {trainers} trainers, {world.size.jobs} jobs")
    slots = [one_slot(world) for _ in range(times)]
    print(f"one slot, to the deletion:                 {quantiles(slots)}")
    verdicts = [verdict(world) for _ in range(times)]
    print(f"the verdict on a job that cannot fit:      {quantiles(verdicts)}")
    for _ in range(max(1, times // 4)):
        used, began_s = world.usage().cpu_s, time.time()
        seconds, writes = many_slots(world, many)
        ended = sum(map(_is_deletion, world.audit.since(began_s)))
        used = world.usage().cpu_s - used
        print(
            f"{many} slots, to the last deletion: {seconds:.2f} s, {writes} writes, {used:.2f} CPU s; {ended} ended"
        )


def one_slot(world: ScaleWorld) -> float:
    """A serving pod comes that only the controller can help; seconds until a trainer is deleted for it."""
    return many_slots(world, 1)[0]


def many_slots(world: ScaleWorld, count: int) -> tuple[float, int]:
    """So many serving pods come at once; seconds until the last trainer is deleted, and writes until then."""
    names = [world.next("lone") for _ in range(count)]
    pods = [
        fill.create(fill.PODS, fill.serving_pod(name, world.size.wide, priority_class=fill.NEVER)) for name in names
    ]
    began_s = time.time()
    world.filler.send(pods)
    last = world.audit.wait(began_s, _is_deletion, count)
    writes = sum(one.at_s <= last.at_s for one in world.audit.since(began_s))
    world.reap(began_s)
    time.sleep(PAUSE_S)
    return last.at_s - began_s, writes


def verdict(world: ScaleWorld) -> float:
    """A job comes whose trainer no node could hold; seconds until its status says so."""
    name, began_s = world.next("giant"), time.time()
    world.plane.kube.create(fill.job(name, least=1, most=1, cpu="100"))
    statuses = 0
    while True:  # the first status may come ahead of the plan, and says nothing about that
        statuses += 1
        written = world.audit.wait(began_s, lambda sent: sent.is_of(name) and _is_status(sent), statuses)
        if world.plane.kube.get("tj", name)["status"].get("reason") == "Unschedulable":
            break
    time.sleep(PAUSE_S)
    return written.at_s - began_s


def _is_deletion(sent: Sent) -> bool:
    return sent.what == "delete pods"


def _is_status(sent: Sent) -> bool:
    return sent.what == "patch trainingjobs/status"
