"""Pods that stay together: node labels whose values are domains, such as blocks, racks or NVLink domains.

A topology has levels, from the widest to the narrowest. A domain is the set of nodes that have the same values of the
labels of a level and of all wider ones, so a rack label that occurs in two blocks names two racks. A node without one
of these labels belongs to no domain of that level, nor of a narrower one. Nothing is decided here;
`edl.planner.topology` chooses the domains of each job. Trainers and pservers stay together: they exchange gradients
and parameters in every step. A master only hands out work, and its journal may be on a volume elsewhere.

A slice is a group of trainers of one job that are of use together alone, such as those of one NVLink domain. The
trainer with index i belongs to slice i // size, for as long as it exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from edl.model.names import Role
from edl.model.pods import Pod
from edl.model.resources import RULE_PREFIX, NodeTerm, PodShape, Requirement

Labels = Iterable[tuple[str, str]]
Path = tuple[str, ...]
"""A domain: the values of the labels of its level and of all wider ones, the widest first."""

SEATS = f"{RULE_PREFIX}whole slices of "
"""Begins the name of the resource that stands for the places of a job's slices; see `edl.planner.topology.slices`."""

TOGETHER = (Role.TRAINER, Role.PSERVER)  # the roles whose pods stay in the domain of their job


class TopologyMode(StrEnum):
    """How strictly the trainers and pservers of a job stay together."""

    PREFERRED = "Preferred"
    REQUIRED = "Required"


class Level(NamedTuple):
    """One level of a topology: a node label, and how strictly the pods of a job share a value of it."""

    key: str
    mode: TopologyMode

    @property
    def word(self) -> str:
        """The name of a domain in messages: the label without its prefix, such as `rack`."""
        return self.key.rpartition("/")[2]


class Slices(NamedTuple):
    """Trainers come and go in slices, each of which is in one domain.

    Attributes:
        size: trainers of a slice, >= 2.
        depth: the number of labels that name its domain: the level and all wider ones.
    """

    size: int
    depth: int


@dataclass(frozen=True, slots=True)
class Topology:
    """`spec.topology` of a job, and what the planner chose for it.

    Attributes:
        levels: from the widest to the narrowest; at most one is Required: all trainers and pservers in one domain of
            it, or none. Preferred: in as few domains as cost no trainer.
        slices: None if each trainer is of use alone.
        domain: the domain that the planner chose; empty before that. Only the planner's view of a job has it, and
            what follows.
        most: trainers that the job could have at most if no other training ran, if it has a Required level or
            slices: those of the largest domain, beside the pservers of the job, or of its slices; else 0.
        within: further labels of the nodes that the choice limits new trainers to.
        order: domains of the narrowest level, the first to fill first; empty without a Preferred level.
    """

    levels: tuple[Level, ...]
    slices: Slices | None = None
    domain: Path = ()
    most: int = 0
    within: tuple[Requirement, ...] = ()
    order: tuple[Path, ...] = ()

    @staticmethod
    def of(key: str, mode: TopologyMode) -> Topology:
        """The topology of one level."""
        return Topology((Level(key, mode),))

    @property
    def keys(self) -> tuple[str, ...]:
        """The labels, the widest first."""
        return tuple(level.key for level in self.levels)

    @property
    def depth(self) -> int:
        """How many labels name the domain that all trainers and pservers must share; 0 if they need not share one."""
        required = (i for i, level in enumerate(self.levels, start=1) if level.mode is TopologyMode.REQUIRED)
        return next(required, 0)

    @property
    def is_required(self) -> bool:
        """True if trainers and pservers may never be in two domains of some level."""
        return self.depth > 0

    @property
    def is_preferred(self) -> bool:
        """True if a level is left on which fewer domains are better."""
        return self.depth < len(self.levels)

    @property
    def pinned_depth(self) -> int:
        """How many labels a new trainer requires: those of the domain of the job, or of its slice."""
        return max(self.depth, self.slices.depth if self.slices else 0)

    @property
    def of_pservers(self) -> Topology:
        """The topology of the job's pservers: they belong to no slice, and only the domain of the job limits them."""
        return replace(self, slices=None, within=())

    @property
    def word(self) -> str:
        """The name in messages of the domain that all pods share; if they share none, of the narrowest level."""
        return self.levels[self.depth - 1].word

    @property
    def slice_word(self) -> str:
        """The name in messages of the domain of a slice."""
        return self.levels[self.slices.depth - 1].word if self.slices else self.word

    @property
    def pins(self) -> tuple[Requirement, ...]:
        """The expressions that a node of the chosen domain meets; without a domain, no node meets them."""
        if self.is_required and not self.domain:
            return (Requirement(self.keys[0], "In", ()), *self.within)
        chosen = zip(self.keys, self.domain[: self.depth], strict=False)
        return (*(Requirement(key, "In", (value,)) for key, value in chosen), *self.within)

    def wishes(self, path: Path) -> NodeTerm:
        """The node selector term for the nodes of a preferred domain."""
        return NodeTerm(tuple(Requirement(k, "In", (v,)) for k, v in zip(self.keys, path, strict=False)))

    def said(self, path: Path) -> str:
        """Name a domain in a sentence: `rack r1`, or `rack r1 of block b2` if the value alone may be ambiguous."""
        if not path:
            return f"no {self.word}"
        words = [level.word for level in self.levels]
        parts = [f"{word} {value}" for word, value in zip(words, path, strict=False)]
        return " of ".join(reversed(parts))


def path_of(labels: Labels, keys: Sequence[str]) -> Path:
    """The domain of a node with these labels; empty if it lacks one of the keys, or if a value is empty."""
    found = {name: value for name, value in labels if name in keys}
    path = tuple(found.get(key, "") for key in keys)
    return path if all(path) else ()


def home_of(pods: Iterable[Pod], labels: Mapping[str, Labels], keys: Sequence[str]) -> Path:
    """The domain that most of some pods are in, bound pods before waiting ones; empty if none is in any.

    Args:
        pods: pods that wait for a node count where it is nominated or planned.
        labels: by name of the node.
        keys: the labels of the level and of all wider ones.
    """
    pods = tuple(pods)
    for has_node in (True, False):
        homes = Counter(
            path_of(labels.get(pod.node or pod.nominated or pod.planned, ()), keys)
            for pod in pods
            if bool(pod.node) is has_node
        )
        homes.pop((), None)
        if homes:
            return max(sorted(homes), key=homes.__getitem__)
    return ()


def slice_of(index: int | None, size: int) -> int:
    """The slice of the trainer with that index."""
    return (index or 0) // size


def in_domain(shape: PodShape, topology: Topology) -> PodShape:
    """Add to a pod shape the labels of the chosen domain; for slices also those of the slice's level."""
    extra = _exist(topology.keys[topology.depth : topology.pinned_depth])
    return _required(shape, (*topology.pins, *extra))


def in_any_domain(shape: PodShape, topology: Topology) -> PodShape:
    """Remove from a pod shape the labels that `in_domain` has added."""
    pins = (*topology.pins, *_exist(topology.keys[topology.depth : topology.pinned_depth]))
    terms = (
        term._replace(expressions=term.expressions[: -len(pins)]) if term.expressions[-len(pins) :] == pins else term
        for term in shape.placement.required
    )
    is_all = shape.placement.required == (NodeTerm(pins),)
    free = replace(shape.placement, required=() if is_all else tuple(terms)) if pins else shape.placement
    return _required(PodShape(shape.request, free), _exist(topology.keys[: topology.pinned_depth]))


def with_labels(shape: PodShape, labels: Iterable[tuple[str, str]]) -> PodShape:
    """The shape of pods whose node must have some labels."""
    return _required(shape, tuple(Requirement(key, "In", (value,)) for key, value in labels))


def _exist(keys: Iterable[str]) -> tuple[Requirement, ...]:
    return tuple(Requirement(key, "Exists") for key in keys)


def _required(shape: PodShape, wanted: tuple[Requirement, ...]) -> PodShape:
    """Return a shape that also requires some labels of its node; a term that selects no node is left as it is."""
    placement = shape.placement
    if not wanted:
        return shape
    if not placement.required:
        return PodShape(shape.request, replace(placement, required=(NodeTerm(wanted),)))
    terms = (
        term._replace(expressions=(*term.expressions, *wanted)) if term.expressions or term.fields else term
        for term in placement.required
    )
    return PodShape(shape.request, replace(placement, required=tuple(terms)))
