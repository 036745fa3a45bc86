"""Finds Workloads that Kueue can never admit to their ClusterQueue as it is: no capacity is kept for them.

Flavors and quotas are compared here. Whether a resource counts depends on Kueue's configuration, which edl does not
read (`excludeResourcePrefixes`, `quotaCheckStrategy`, `transformations`). So a resource counts once Kueue has missed
it for any Workload: of Workloads that are alike it looks at one only.

Source: sigs.k8s.io/kueue/pkg/scheduler, func nominate; pkg/scheduler/flavorassigner, funcs assignFlavors and
fitsResourceQuota; pkg/workload, func IsAdmissible; 0.19.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import inf

from edl.kube.translate.kueue.flavors import TAKEN, Flavor
from edl.kube.translate.kueue.loads import Load, PodSet
from edl.model.quota_trees import Pool
from edl.model.resources import PODS
from edl.model.units import amount
from edl.printable import one_line

Group = tuple[frozenset[str], tuple[str, ...]]
"""The resources of a ClusterQueue that come from one flavor, and the flavors in their order."""
_NAMED = 2
"""The most flavors that are named."""
_MOST_QUOTED = 100
REMEMBERED_S = 600.0
"""How long a report of Kueue counts after it reports something else: its configuration may have changed."""


@dataclass(frozen=True, slots=True)
class QueueRules:
    """Decides which Workloads a ClusterQueue could ever admit.

    Attributes:
        node: the ClusterQueue, as `QuotaNode.name` has it.
        groups: its resources.
        flavors: every ResourceFlavor, by name; one that is not known takes all pods.
        counted: resources of which it is known that they count for Kueue.
        most: the quota of a pool that it could have if nobody else used anything.
    """

    node: str
    groups: Sequence[Group]
    flavors: Mapping[str, Flavor]
    counted: frozenset[str]
    most: Callable[[Pool], int]

    def taking(self, pods: PodSet, names: Sequence[str]) -> Iterator[str]:
        """Keep of some flavors those that take the pods, in their order."""
        for name in names:
            verdict = pods.place.verdict(name, self.flavors[name]) if name in self.flavors else TAKEN
            if not verdict.why:
                yield name
            if verdict.ends:
                return

    def refusal(self, load: Load, *, of_any_size: bool = False) -> str:
        """Why Kueue never admits a Workload, and the remedy; empty if it may.

        Args:
            load: the Workload.
            of_any_size: do not compare its size with the quotas, because it may be made smaller.
        """
        if load.gated:
            return f"Kueue keeps Workload {load.key} out of {self.node} ({load.gated}): remove the gate or the hold"
        if load.refused:
            return f"Kueue does not admit Workload {load.key} to {self.node} ({load.refused}): correct its pods"
        if missing := self.counted & self.uncovered(load):
            name = one_line(min(missing), _MOST_QUOTED)
            return (
                f"{self.node} does not cover {name}, so Kueue never admits Workload {load.key}: add it to"
                " coveredResources of the ClusterQueue, or request none"
            )
        found = next(filter(None, (self._place(load, pods) for pods in load.pod_sets)), "")
        if found or of_any_size or load.is_reserved or load.replaces:
            return found
        return next(filter(None, (self._size(load, group) for group in self.groups)), "")

    def uncovered(self, load: Load) -> set[str]:
        """The resources that a Workload requests and for which the ClusterQueue has no quota.

        Pods do not count as one.
        """
        return _requested(load).difference({PODS}, *(resources for resources, _ in self.groups))

    def _place(self, load: Load, pods: PodSet) -> str:
        """Why no flavor of a group takes some pods."""
        for resources, names in self.groups:
            wanted = sorted(resource for resource, n in pods.each if n and resource in resources)
            asked = _asked_flavors(pods, wanted, names)
            if wanted and asked and next(self.taking(pods, asked), None) is None:
                why = (
                    f"flavor {name}: {verdict.why}"
                    for name in asked
                    if name in self.flavors and (verdict := pods.place.verdict(name, self.flavors[name])).why
                )
                more = f"; and {len(asked) - _NAMED} more" if len(asked) > _NAMED else ""
                return (
                    f"no flavor of {self.node} for {', '.join(wanted)} takes pods {pods.name} of Workload {load.key}"
                    f" ({'; '.join(islice(why, _NAMED))}{more}): correct the node selector, the node affinity or the"
                    " tolerations of the pods, or the ResourceFlavor"
                )
        return ""

    def _size(self, load: Load, group: Group) -> str:
        """Why the quotas of a group never suffice: for the pods of one template, or for all of them together."""
        resources, names = group
        total: dict[str, int] = {}
        asking: list[PodSet] = []
        for pods in load.pod_sets:
            wanted = {resource: n * pods.least for resource, n in pods.each if n and resource in resources}
            taking = self.taking(pods, names) if wanted else iter(())
            first = next(taking, None)
            if first is not None and all(self._exceeds(name, wanted) for name in chain((first,), taking)):
                return self._too_large(load, wanted, [first])
            asking += [pods] if wanted else []
            for resource, n in wanted.items():
                total[resource] = total.get(resource, 0) + n
        if any(not self._exceeds(name, total) for pods in asking for name in self.taking(pods, names)):
            return ""  # one flavor is enough; nearly always the first
        taken = {name for pods in asking for name in self.taking(pods, names)}
        sums = {name: sum(self.most(Pool(flavor, name)) for flavor in taken) for name in total}
        is_too_large = any(n > sums[name] for name, n in total.items())
        return self._too_large(load, total, sorted(taken)) if is_too_large else ""

    def _exceeds(self, flavor: str, wanted: Mapping[str, int]) -> bool:
        return any(n > self.most(Pool(flavor, resource)) for resource, n in wanted.items())

    def _too_large(self, load: Load, wanted: Mapping[str, int], flavors: Sequence[str]) -> str:
        sums = {name: sum(self.most(Pool(flavor, name)) for flavor in flavors) for name in wanted}
        resource = next(name for name, n in sorted(wanted.items()) if n > sums[name])
        return (
            f"Workload {load.key} needs {amount(resource, wanted[resource])}, and {self.node} has"
            f" {amount(resource, sums[resource])} at most with all that it may borrow (flavor"
            f" {', '.join(flavors[:_NAMED])}): lower the request, or raise the quota"
        )


class CountedResources:
    """Collects the resources that Kueue counts: those that it has reported as missing in a ClusterQueue.

    What Kueue says of a Workload may change from one time to the next: to a quota that is in use, for one.

    Attributes:
        valid_until_s: until when the last answer holds if no object changes, in seconds since the epoch.
    """

    def __init__(self) -> None:
        self.valid_until_s = inf
        self._until_s: dict[str, float] = {}

    def read(self, loads: Iterable[Load], now_s: float) -> frozenset[str]:
        """Read which resources Kueue reports as missing for Workloads that wait, now or recently."""
        said = {resource for load in loads if not load.is_reserved for resource in load.unavailable}
        kept = {resource: until_s for resource, until_s in self._until_s.items() if until_s > now_s}
        self._until_s = kept | dict.fromkeys(said, now_s + REMEMBERED_S)
        self.valid_until_s = min((until_s for name, until_s in kept.items() if name not in said), default=inf)
        return frozenset(self._until_s)


def _asked_flavors(pods: PodSet, wanted: Iterable[str], names: Sequence[str]) -> Sequence[str]:
    """The flavors from which a Workload may get quota: that of its reservation, else all."""
    flavors = dict(pods.flavors)
    return [flavors[name] for name in wanted if name in flavors][:1] or names


def _requested(load: Load) -> set[str]:
    """The resources that a Workload requests, with those into which Kueue has transformed them in vain."""
    return {resource for resource, n in load.asked().items() if n} | load.unavailable
