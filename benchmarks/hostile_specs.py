"""Searches for objects of one tenant that cost a decision most; a part of `make fuzz`.

An object is drawn field by field from what its schema allows, extremes most often (`tests.worlds.hostile.drawn`). The
costliest so far are changed further. Alone and ten at once, beside an honest job, on 200, 1,000 and 5,000 nodes.
Counted are CPU seconds from the decoded objects to the plan. Prints each that is the worst so far and exits with 1 if
one costs more than a second, or ten cost more than three. Compare figures only with those of the same run.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from edl.controller.planning import plan_snapshot
from edl.errors import PlanError
from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.snapshot import ClusterObjects, Translator
from edl.kube.workloads.registry import ADAPTERS
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScalePlan
from tests.worlds import raw_objects
from tests.worlds.hostile.drawn import Genes, changed, drawn, objects_of

MOST_S = {1: 1.0, 10: 3.0}
"""CPU seconds that a decision may take with so many objects of a kind."""

NOW_S = 1e9
_HONEST = {
    "min-instance": 1,
    "max-instance": 20,
    "entrypoint": "x",
    "resources": {"requests": {"cpu": "2", "memory": "1Gi"}},
}


class World:
    """A cluster of equal nodes in racks of ten with one honest job.

    Args:
        nodes: how many there are.
        deadline_s: of a decision.
    """

    def __init__(self, nodes: int, deadline_s: float = 10.0) -> None:
        self.nodes = nodes
        self._translator, self._limits = Translator(), Limits(deadline_s=deadline_s)
        self._nodes = [raw_objects.decoded(_node(number)) for number in range(nodes)]
        self._honest = raw_objects.job("honest", uid="uid-honest", spec={"image": "x", "trainer": _HONEST})

    def decode(self, genes: Genes, count: int) -> dict[str, list[Any]]:
        """So many objects as the watch decodes them, by kind; what cannot be read is left out, as there."""
        found: dict[str, list[Any]] = {kind: [] for kind in raw_objects.DECODERS}
        for body in [self._honest, *(one for i in range(count) for one in objects_of(genes, i, self.nodes))]:
            kind = raw_objects.KIND_OF.get((body.get("apiVersion", ""), body["kind"])) or body["kind"]
            decoded = raw_objects.DECODERS[kind].from_dict(body)
            if not isinstance(decoded, Quarantined):
                found[kind].append(decoded)
        return found

    def snapshot(self, objects: dict[str, list[Any]], *, pods: bool = True) -> ClusterSnapshot:
        """Translate objects as the controller does; what did not change since the last time costs nothing again."""
        return self._translator.snapshot(
            now_s=NOW_S,
            objects=ClusterObjects(
                nodes=self._nodes,
                pods=objects["Pod"] if pods else (),
                jobs=objects["TrainingJob"],
                workloads=[(adapter, one) for adapter in ADAPTERS.values() for one in objects[adapter.decoder.kind]],
                queues=objects["Queue"],
            ),
        )

    def decide(self, snapshot: ClusterSnapshot, policy: str = "") -> ScalePlan:
        """Plan as the controller does.

        Raises:
            PlanError: there is no plan, or it breaks a rule.
        """
        return plan_snapshot(snapshot, policy, self._limits)


def _node(number: int) -> raw_objects.Object:
    labels = {"rack": f"r{number // 10}", "kind": "abcd"[number % 4], "zone": f"z{number % 3}"}
    name = f"n{number:05d}"
    sizes = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    labels |= {"kubernetes.io/hostname": name}
    return raw_objects.node(name, metadata={"labels": labels}, status={"allocatable": sizes})


def measure(world: World, genes: Genes, count: int, policy: str = "") -> tuple[float, str]:
    """CPU seconds of a decision beside so many objects, and what was cut short or why there is no plan.

    Pods were translated when they came, so they are not counted.
    """
    objects = world.decode(genes, count)
    gc.collect()
    since_s = time.process_time()
    world.snapshot(objects, pods=False)
    read_s = time.process_time() - since_s
    world.snapshot(objects)
    since_s = time.process_time()
    try:
        plan = world.decide(world.snapshot(objects), policy)
    except PlanError as error:
        return read_s + time.process_time() - since_s, f"no plan: {error.failure}"
    spent_s = read_s + time.process_time() - since_s
    got = next(decision.target for decision in plan.decisions if decision.job.name == "honest")
    return spent_s, f"{len(plan.decisions) - 1} read, honest job {got}/20, cut {', '.join(plan.cut) or 'nothing'}"


@dataclass(frozen=True, slots=True)
class Found:
    """An object, and what it costs a decision: CPU seconds, or whatever else was counted."""

    genes: Genes
    cost: float


def search(
    cost: Callable[[Genes], float], random: Random, goes_on: Callable[[int], bool], kept: int = 6
) -> list[Found]:
    """The costliest objects that were found, the worst first.

    Args:
        cost: what an object costs.
        random: draws the objects.
        goes_on: whether to try another one after so many.
        kept: how many of the costliest are changed further.
    """
    best: list[Found] = []
    tried = 0
    while goes_on(tried):
        genes = changed(random.choice(best).genes, random) if len(best) == kept and tried % 4 else drawn(random)
        best = sorted([*best, Found(genes, cost(genes))], key=lambda found: -found.cost)[:kept]
        tried += 1
    return best


def _search(world: World, count: int, policy: str, chosen: argparse.Namespace, seconds: float) -> bool:
    """Search for some time; False if something costs too much, also when it is measured again."""
    ends_s, worst_s, tried = time.monotonic() + seconds, 0.0, 0

    def cost(genes: Genes) -> float:
        nonlocal worst_s, tried
        tried += 1
        spent_s, outcome = measure(world, genes, count, policy)
        if spent_s > MOST_S[count]:
            spent_s = min(spent_s, *(measure(world, genes, count, policy)[0] for _ in range(2)))
        if spent_s > worst_s:
            worst_s = spent_s
            print(f"  {spent_s:6.2f} CPU s, {outcome}: {json.dumps(asdict(genes))[: chosen.width]}", flush=True)
        return spent_s

    print(f"{world.nodes} nodes, {count} at once:", flush=True)
    search(cost, Random(chosen.seed), lambda _: time.monotonic() < ends_s)  # noqa: S311
    print(f"  the worst of {tried}: {worst_s:.2f} CPU s, allowed {MOST_S[count]:.0f}", flush=True)
    return worst_s <= MOST_S[count]


def main() -> None:
    """Search, or measure one object again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=(200, 1000, 5000))
    parser.add_argument("--seconds", type=float, default=120.0, help="of all searches together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", default="")
    parser.add_argument("--width", type=int, default=400, help="characters of an object that are printed")
    parser.add_argument("--again", metavar="JSON", help="an object that an earlier search has printed")
    chosen = parser.parse_args()
    worlds = [World(nodes) for nodes in chosen.nodes]
    if chosen.again:
        genes = Genes(**json.loads(chosen.again))
        for world, count in ((world, count) for world in worlds for count in MOST_S):
            print(f"{world.nodes} nodes, {count} at once: {measure(world, genes, count, chosen.policy)}", flush=True)
        return
    each_s = chosen.seconds / len(worlds) / len(MOST_S)
    kept = [_search(world, count, chosen.policy, chosen, each_s) for world in worlds for count in MOST_S]
    sys.exit(not all(kept))


if __name__ == "__main__":
    main()
