"""Which devices of each node are of which kind; kept from one snapshot to the next, because slices seldom change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from edl.kube.translate.devices.asks import Kind, UncountedClaimError
from edl.kube.translate.devices.inventory import Device, DeviceId, devices_of_nodes
from edl.kube.translate.devices.objects import ResourceSliceObject
from edl.kube.translate.devices.selectors import SelectorError, is_chosen, short
from edl.kube.translate.devices.selectors import spent_s as clock_s
from edl.model.cluster import Node

READ_S, READ_OF_NAMESPACE_S = 0.4, 0.1
"""The most CPU seconds for evaluating selectors in one snapshot, in all and per namespace; the next one continues."""

SLOW_S = 0.002
"""A selector that takes longer for one device is not evaluated for others.

On a slow machine a usual one takes 50 microseconds, and one that compares quantities 200.
"""

TRIES, DOUBTFUL_S = 4, 5 * SLOW_S
"""How often a slow expression is timed again, if it took no more than the second number."""

Matching = dict[str, frozenset[DeviceId]]
"""The devices of a kind by the name of their node; a node without one is left out."""


class DeviceBook:
    """The devices of all nodes."""

    def __init__(self) -> None:
        self._seen: tuple[tuple[ResourceSliceObject, ...], tuple[tuple[str, tuple[tuple[str, str], ...]], ...]] = (
            (),
            (),
        )
        self._devices: dict[str, list[Device]] = {}
        self._matching: dict[Kind, Matching] = {}
        self._chosen: dict[str, dict[DeviceId, bool]] = {}
        self._slow: dict[str, float] = {}
        self._read_s: defaultdict[str, float] = defaultdict(float)
        self._asked: set[Kind] = set()

    def update(self, slices: tuple[ResourceSliceObject, ...], nodes: tuple[Node, ...]) -> None:
        """Read the ResourceSlices, unless they and the names and labels of the nodes are unchanged."""
        self._read_s.clear()
        self._asked.clear()
        places = tuple((node.name, node.labels) for node in nodes)
        before, there = self._seen
        is_same = len(before) == len(slices) and all(a is b for a, b in zip(before, slices, strict=True))
        if not is_same or places != there:
            self._seen = (slices, places)
            self._devices, self._matching, self._chosen = devices_of_nodes(slices, nodes), {}, {}

    def of_kind(self, kind: Kind, namespace: str) -> Matching:
        """The devices of a kind.

        Args:
            kind: the kind.
            namespace: the namespace of the pods that ask for it, whose share of the time the work is.

        Raises:
            UncountedClaimError: one of them is no whole device of a node, or this snapshot has had its share of work.
            SelectorError: a selector has no truth value for a device, or takes too long for one.
        """
        self._asked.add(kind)
        found = self._matching.get(kind)
        if found is None:
            found = {}
            for node, devices in self._devices.items():
                mine = [device for device in devices if self._is_of(kind, device, namespace)]
                if part := next((device for device in mine if device.problem), None):
                    which = f"device {'/'.join(part.identity)}"
                    raise UncountedClaimError(
                        f"{which}: {part.problem}; choose whole devices of a node by a selector"
                    )
                if mine:
                    found[node] = frozenset(device.identity for device in mine)
            self._matching[kind] = found
        return found

    def _is_of(self, kind: Kind, device: Device, namespace: str) -> bool:
        for expression in kind.selectors:
            known = self._chosen.setdefault(expression, {})
            is_mine = known.get(device.identity)
            if is_mine is None:
                is_mine = known[device.identity] = self._evaluated(expression, device, namespace)
            if not is_mine:
                return False
        return kind.tolerates(device)

    def _evaluated(self, expression: str, device: Device, namespace: str) -> bool:
        """Evaluate for the first time whether an expression chooses a device, within its namespace's CPU budget."""
        if self._read_s[namespace] > READ_OF_NAMESPACE_S or sum(self._read_s.values()) > READ_S:
            raise UncountedClaimError("edl reads other kinds of devices first")
        if expression not in self._slow:
            is_mine, took_s = _timed(expression, device)
            self._read_s[namespace] += took_s
            if took_s <= SLOW_S:
                return is_mine
            for _ in range(TRIES):  # the first time it was compiled, and a busy machine may slow down the next ones
                again_s = _timed(expression, device)[1]
                self._read_s[namespace] += again_s
                if again_s <= SLOW_S:
                    return is_mine
                if again_s > DOUBTFUL_S:
                    break
            self._slow[expression] = again_s
        raise SelectorError(
            f"selector {short(expression)} takes {self._slow[expression] * 1e3:.1f} ms for one device, and edl"
            f" evaluates those that take at most {SLOW_S * 1e3:g}"
        )

    def forget_all_but(self, kinds: Iterable[Kind]) -> None:
        """Forget kinds that nobody asks for any more; those that are half read were asked for."""
        wanted = {*kinds, *self._asked}
        self._matching = {kind: found for kind, found in self._matching.items() if kind in wanted}
        read = {expression for kind in wanted for expression in kind.selectors}
        self._chosen = {expression: known for expression, known in self._chosen.items() if expression in read}
        self._slow = {expression: took_s for expression, took_s in self._slow.items() if expression in read}


def _timed(expression: str, device: Device) -> tuple[bool, float]:
    """Evaluate whether an expression chooses a device; returns that, and the CPU seconds spent."""
    began_s = clock_s()
    is_mine = is_chosen(expression, device.described)
    return is_mine, clock_s() - began_s


def is_part(inner: Matching, outer: Matching) -> bool:
    """Return True if each device of one kind is of the other kind, too."""
    return all(devices <= outer.get(node, frozenset()) for node, devices in inner.items())


def overlap(one: Matching, other: Matching) -> bool:
    """Return True if some device is of both kinds."""
    return any(not devices.isdisjoint(other.get(node, frozenset())) for node, devices in one.items())
