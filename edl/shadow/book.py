"""The use of each node, updated event by event: the cluster just before an answer of kube-scheduler.

The snapshots of the cache come a few times a second and leave out what happened in between. This book follows each
event, and is filled anew after each list. It keeps the requests of bound pods as `edl.kube.translate` computes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from edl.errors import ConfigError
from edl.kube.translate.books.node_book import read_node
from edl.kube.translate.objects import NodeMetadata, NodeObject, PodMetadata, PodObject, PodSpec, PodStatus
from edl.kube.translate.pods import pinned_node
from edl.kube.translate.shapes import shape_of
from edl.model.cluster import Node
from edl.model.resources import HOST_PORT_PREFIX, PodShape, Resources, port_at_every_address
from edl.planner.eligibility import first_untolerated, is_selected
from edl.shadow.document import Predicate
from edl.shadow.rules import RuleJudge, Ruling

_FINISHED = {"Succeeded", "Failed"}


@dataclass(slots=True)
class _NodeUse:
    """A node, and the pods that are bound to it.

    Attributes:
        node: None until it is read, and once it is gone.
        pods: what each pod requests, by UID.
        used: the sum of that.
        free: what the node has beyond that; None until somebody asks again.
    """

    node: Node | None = None
    pods: dict[str, Resources] = field(default_factory=dict)
    used: Resources = Resources()
    free: Resources | None = None

    def change(self, difference: Resources) -> None:
        """Add to what the pods of the node request."""
        self.used += difference
        self.free = None

    def obstacles(
        self, shape: PodShape, without: Resources = Resources(), ruling: Ruling | None = None
    ) -> Iterable[Predicate]:
        """The obstacles for a pod on this node if its use were lower by an amount; empty for an unreadable node."""
        if self.node is None:
            yield Predicate.OTHER
            return
        if self.free is None:
            self.free = self.node.allocatable - self.used
        ports, amounts = _split(shape.request)
        free = self.free + without if without else self.free
        if not amounts.fits(free if ruling is None else free + ruling.more_of(self.node.name)):
            yield Predicate.RESOURCES
        if not self.node.ready or first_untolerated(self.node, shape.placement.tolerations) is not None:
            yield Predicate.TAINTS
        if not is_selected(self.node, shape.placement):
            yield Predicate.SELECTOR
        if ports and _conflict(ports, _split(self.used - without)[0]):
            yield Predicate.PORTS
        if ruling is not None:
            yield from ruling.obstacles(self.node)


class Book:
    """The nodes and bound pods of a cluster.

    Args:
        rules: judges by rules between pods, volumes and devices.

    Attributes:
        freed_s: the monotonic time at which a pod or node last freed capacity; minus infinity before that.
    """

    def __init__(self, rules: RuleJudge) -> None:
        self.freed_s = float("-inf")
        self._rules = rules
        self._uses: dict[str, _NodeUse] = {}
        self._places: dict[str, str] = {}  # UID of a bound pod -> its node
        self._found: dict[PodShape, str] = {}  # of shapes that were looked for since capacity was last made

    def fill(self, nodes: Iterable[NodeObject], pods: Iterable[PodObject]) -> None:
        """Replace everything by what a list shows."""
        self._uses, self._places = {}, {}
        self._found.clear()
        self._rules.clear()
        for node in nodes:
            self.note_node(None, node, self.freed_s)
        for pod in pods:
            self.note_pod(pod, self.freed_s)

    def note_node(self, before: NodeObject | None, after: NodeObject | None, now_s: float) -> None:
        """Update the node that an event is about."""
        source = after or before
        name = (source.metadata or NodeMetadata()).name or "" if source else ""
        use = self._uses.setdefault(name, _NodeUse())
        node = None
        if after is not None:
            try:
                node = read_node(after)
            except ConfigError:
                node = None  # the cache reports it
        if node != use.node:
            use.node, use.free = node, None
            self._make_room(now_s)

    def note_pod(self, pod: PodObject, now_s: float, *, is_gone: bool = False) -> None:
        """Update the pod that an event is about."""
        metadata, spec, status = pod.metadata or PodMetadata(), pod.spec or PodSpec(), pod.status or PodStatus()
        uid, node = metadata.uid or "", spec.node_name or ""
        uses_node = bool(node) and not is_gone and status.phase not in _FINISHED
        shape = shape_of_pod(pod) if uses_node else None
        request = shape.request if shape is not None else Resources()
        if before := self._places.get(uid, ""):
            use = self._uses[before]
            ends = metadata.deletion_timestamp is not None
            if uses_node and use.pods[uid] == request and self._rules.ends(uid) == ends:
                return  # most changes of a pod are its readiness
            use.change(Resources() - use.pods.pop(uid))
            del self._places[uid]
            self._rules.drop(uid)
            self._make_room(now_s)
        if shape is not None:
            use = self._uses.setdefault(node, _NodeUse())
            use.pods[uid] = request
            use.change(request)
            self._places[uid] = node
            self._rules.put(pod, shape)

    def nodes(self) -> tuple[Node, ...]:
        """Every node that is read, by name."""
        return tuple(use.node for _, use in sorted(self._uses.items()) if use.node is not None)

    def obstacles(
        self, node: str, shape: PodShape, ruling: Ruling | None = None, *, without: str = ""
    ) -> tuple[Predicate, ...]:
        """Say what keeps a pod from a node in edl's view; empty if nothing does.

        Args:
            node: the name; one that edl does not know fails `OTHER`.
            shape: the shape of the pod.
            ruling: what the rules say about it; None if none is about it.
            without: UID of a pod whose own request does not count.
        """
        use = self._uses.get(node) or _NodeUse()
        return tuple(use.obstacles(shape, use.pods.get(without, Resources()), ruling))

    def free_node(self, shape: PodShape, ruling: Ruling | None = None) -> str:
        """Find a node that edl would let a pod use; empty if there is none.

        A burst has many refusals of few shapes. While no capacity is made, a shape that fits nowhere still fits
        nowhere; not so for a pod with rules, for which a pod that comes may free capacity.
        """
        if ruling is not None:
            return self._first_free(shape, ruling)
        found = self._found.get(shape)
        if found is None or (found and self.obstacles(found, shape)):
            found = self._found[shape] = self._first_free(shape)
        return found

    def _first_free(self, shape: PodShape, ruling: Ruling | None = None) -> str:
        uses = self._uses.items()
        return next((name for name, use in uses if not any(use.obstacles(shape, ruling=ruling))), "")

    def _make_room(self, now_s: float) -> None:
        self.freed_s = now_s
        self._found.clear()


def shape_of_pod(pod: PodObject) -> PodShape | None:
    """The shape of a pod; None if a quantity of it cannot be read, which the cache reports."""
    metadata = pod.metadata or PodMetadata()
    try:
        return shape_of(pod.spec or PodSpec(), pod.status, pinned_to=pinned_node(metadata))
    except ConfigError:
        return None


@lru_cache(maxsize=4096)
def _split(request: Resources) -> tuple[tuple[str, ...], Resources]:
    """The host ports of a request, and its amounts."""
    ports = tuple(name for name in request if name.startswith(HOST_PORT_PREFIX))
    rest = {name: amount for name, amount in request.amounts if not name.startswith(HOST_PORT_PREFIX)}
    return ports, Resources.of(rest) if ports else request


def _conflict(wanted: Iterable[str], taken: Iterable[str]) -> bool:
    """True if a port is taken: at the same address, or if one of the two is at every address."""
    return any(_collide(one, other) for one in wanted for other in taken)


def _collide(one: str, other: str) -> bool:
    port = port_at_every_address(one)
    return one == other or (port == port_at_every_address(other) and port in {one, other})
