"""CSI drivers: which nodes can attach the volumes of a driver, and how many, as a resource of the nodes.

A volume that several pods of a node use counts once. So a claim that only one waiting pod uses is requested by that
pod; one that others share keeps it to nodes where the volume is attached or one more can be. Volumes in the spec of a
pod itself count for nothing, as in kube-scheduler. A node where the driver does not run attaches any number, unless
its CSIDriver has `preventPodSchedulingIfMissing`: then no new pod with such a volume goes there.

Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits, csi.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from edl.kube.translate.rules.anti_affinity import Capacity
from edl.kube.translate.rules.facts import Claim
from edl.kube.translate.rules.free_capacity import FreeCapacity
from edl.kube.translate.rules.one_node import choose_nodes
from edl.kube.translate.rules.terms import PodRules
from edl.kube.translate.rules.view import Unit, View
from edl.kube.translate.rules.volumes import driver_of, driver_of_own, to_be_made
from edl.model.resources import RULE_PREFIX, NodeRule, NodeTerm, Requirement

_UNLIMITED = 1 << 30
_ONCE = "ReadWriteOnce"
_ONE_NODE = frozenset({_ONCE, "ReadWriteOncePod"})  # of the second alone its one pod ends first


class Attachments:
    """The volumes that nodes can attach, in one snapshot.

    Args:
        view: the snapshot.
        units: what a plan places.
    """

    def __init__(self, view: View, units: Sequence[Unit]) -> None:
        self._view, self._units = view, units
        self._drivers: dict[Claim, tuple[str, str] | None] = {}
        self._attached: dict[tuple[str, str], set[int]] = {}
        self._to_choose: dict[str, list[Unit]] = {}  # by the volume of one node that nobody uses yet
        for rules, nodes in view.fixed.values():
            for volume in self._volumes(rules):
                self._attached.setdefault(volume, set()).update(nodes)

    def require_drivers(self) -> None:
        """Keep pods to nodes on which the drivers of their volumes run, if a driver must run on the node."""
        if not self._view.facts.needed:
            return
        rules: dict[str, NodeRule] = {}
        for driver, nodes in self._view.facts.needed.items():
            if lacking := sorted(node.name for node in self._view.nodes if node.name not in nodes):
                term = NodeTerm(fields=(Requirement("metadata.name", "NotIn", tuple(lacking)),))
                rules[driver] = NodeRule((term,), f"CSI driver {driver} must run on the node")
        for unit in self._units:
            used = {driver for driver, _ in self._volumes(unit.rules)}
            used.update(
                driver_of_own(volume, self._view.facts) for volume in to_be_made(unit.rules, self._view.facts)
            )
            unit.required.extend(rules[driver] for driver in sorted(used & rules.keys()))

    def keep_to_attached(self) -> None:
        """Keep pods to the node of a volume that only one node may attach, while pods there use it.

        kube-scheduler sends them anywhere, but the attach controller lets no second node have the volume.
        """
        used: dict[tuple[str, str], set[int]] = {}
        for key, (rules, nodes) in self._view.fixed.items():
            stays = nodes - self._view.leaving.get(key, Counter())
            for volume in self._volumes(rules):
                used.setdefault(volume, set()).update(stays)
        for unit in self._units:
            for volume in self._volumes(unit.rules) if unit.live else ():
                used.setdefault(volume, set()).update(unit.live)
        for unit in self._units:
            for volume in self._volumes(unit.rules):
                if not self._is_for_one_node(*volume):
                    continue
                if not used.get(volume):
                    self._to_choose.setdefault(volume[1], []).append(unit)
                    continue
                names = sorted(self._view.nodes[number].name for number in used[volume])
                why = f"volume {volume[1]} is in use on node {names[0]}, and its access mode allows no other one"
                unit.required.append(_on(names, why))

    def choose_nodes(self, capacity: FreeCapacity) -> None:
        """Choose one node for the pods of a job that share a volume which only one node may attach at a time."""
        for name, units, node in choose_nodes(self._view, self._to_choose, capacity):
            why = f"the access mode of volume {name} allows one node, and most pods that share it fit {node}"
            for unit in units:
                unit.required.append(_on((node,), why))

    def _is_for_one_node(self, driver: str, name: str) -> bool:
        volume = self._view.facts.volumes.get(name)
        modes = (volume.spec.access_modes if volume is not None and volume.spec else None) or ()
        return _ONCE in modes and _ONE_NODE.issuperset(modes) and driver not in self._view.facts.unattached

    def capacities(self) -> Iterator[Capacity]:
        """Yield a resource for each driver that limits the volumes of a node and has a volume of a planned pod."""
        if not self._view.facts.limits:
            return
        users = Counter(dict.fromkeys(self._attached, 1))
        for unit in self._units:
            for volume in self._volumes(unit.rules):
                users[volume] += unit.number if unit.pods else 2  # the pods of a role share it
        needed: set[str] = set()
        for unit in self._units:
            own = Counter(driver for driver, name in self._volumes(unit.rules) if users[driver, name] == 1)
            own.update(driver_of_own(volume, self._view.facts) for volume in to_be_made(unit.rules, self._view.facts))
            for driver, number in own.items():
                if any(driver in limits for limits in self._view.facts.limits.values()):
                    unit.request[_name(driver)] = number
                    needed.add(driver)
            shared: dict[str, set[str]] = {}
            for driver, name in self._volumes(unit.rules):
                if users[driver, name] > 1:
                    shared.setdefault(driver, set()).add(name)
            for driver, names in shared.items():
                self._keep_to_limit(unit, driver, names, own[driver])
        for driver in sorted(needed):
            yield Capacity(_name(driver), self._left(driver), _UNLIMITED)

    def _volumes(self, rules: PodRules) -> list[tuple[str, str]]:
        """The driver and the volume of each claim whose driver is known."""
        found = []
        for name in rules.claims:
            claim = (rules.namespace, name)
            if claim not in self._drivers:
                self._drivers[claim] = driver_of(claim, self._view.facts)
            if (driver := self._drivers[claim]) is not None:
                found.append(driver)
        return found

    def _left(self, driver: str) -> dict[int, int]:
        """How many more volumes of a driver each node can attach, those of the jobs' pods included."""
        used: Counter[int] = Counter()
        for volume, nodes in self._attached.items():
            if volume[0] == driver:
                used.update(dict.fromkeys(nodes, 1))
        limits = (
            (number, self._view.facts.limits.get(node.name, {})) for number, node in enumerate(self._view.nodes)
        )
        return {number: max(0, of[driver] - used[number]) for number, of in limits if driver in of}

    def _keep_to_limit(self, unit: Unit, driver: str, names: set[str], own: int) -> None:
        """Exclude nodes that cannot attach the volumes shared by some pods in addition to those attached there.

        Args:
            unit: the pods.
            driver: the driver of the volumes.
            names: the names of the volumes that others use, too.
            own: so many more volumes of the driver each of the pods has alone.
        """
        full = []
        for node, left in self._left(driver).items():
            here = node in unit.live
            new = 0 if here else sum(node not in self._attached.get((driver, name), ()) for name in names)
            if new and new + own > left:
                full.append(self._view.nodes[node].name)
        if full:
            term = NodeTerm(fields=(Requirement("metadata.name", "NotIn", tuple(sorted(full))),))
            unit.required.append(NodeRule((term,), f"{_name(driver)}: the node attaches no more"))


def _on(names: Sequence[str], why: str) -> NodeRule:
    return NodeRule((NodeTerm(fields=(Requirement("metadata.name", "In", tuple(names)),)),), why)


def _name(driver: str) -> str:
    return f"{RULE_PREFIX}volumes of driver {driver} that a node attaches"
