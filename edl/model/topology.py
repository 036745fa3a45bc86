"""Pods that stay together: a node label whose values are domains, such as racks or NVLink domains.

A domain is the set of nodes with one value of the label. A node without the label belongs to none. Nothing is decided
here; `edl.planner.topology` chooses the domain of each job. Trainers and pservers stay together: they exchange
gradients and parameters in every step. A master only hands out work, and its journal may be on a volume elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from edl.model.names import Role
from edl.model.resources import NodeTerm, PodShape, Requirement

Labels = Iterable[tuple[str, str]]

TOGETHER = (Role.TRAINER, Role.PSERVER)  # the roles whose pods stay in the domain of their job


class TopologyMode(StrEnum):
    """How strictly the trainers and pservers of a job stay together."""

    PREFERRED = "Preferred"
    REQUIRED = "Required"


@dataclass(frozen=True, slots=True)
class Topology:
    """`spec.topology` of a job, and what the planner chose for it.

    Attributes:
        key: the node label.
        mode: Required: all trainers and pservers in one domain, or none. Preferred: as many as cost no trainer.
        domain: the value that the planner chose; empty before that. Only the planner's view of a job has it.
        most: with `Required` and together with `domain`: trainers that the largest domain could hold, beside the
            pservers of the job, if no other training ran; else 0.
    """

    key: str
    mode: TopologyMode
    domain: str = ""
    most: int = 0

    @property
    def is_required(self) -> bool:
        """True if trainers and pservers may never be in two domains."""
        return self.mode is TopologyMode.REQUIRED

    @property
    def word(self) -> str:
        """What a user calls a domain: the name of the label without its prefix, such as `rack`."""
        return self.key.rpartition("/")[2]

    @property
    def pin(self) -> Requirement:
        """The expression that a node of the chosen domain meets; without a domain, no node meets it."""
        return Requirement(self.key, "In", (self.domain,) if self.domain else ())


def domain_of(labels: Labels, key: str) -> str:
    """The domain of a node with these labels; empty if it belongs to none."""
    return next((value for name, value in labels if name == key), "")


def in_domain(shape: PodShape, topology: Topology) -> PodShape:
    """The shape of pods that must go to the chosen domain."""
    return _required(shape, topology.pin)


def in_any_domain(shape: PodShape, topology: Topology) -> PodShape:
    """The shape of pods that may go to any domain; `shape` may have been returned by `in_domain`."""
    pin = (topology.pin,)
    terms = (
        term._replace(expressions=term.expressions[:-1]) if term.expressions[-1:] == pin else term
        for term in shape.placement.required
    )
    is_all = shape.placement.required == (NodeTerm(pin),)
    free = replace(shape.placement, required=() if is_all else tuple(terms))
    return _required(PodShape(shape.request, free), Requirement(topology.key, "Exists"))


def _required(shape: PodShape, wanted: Requirement) -> PodShape:
    """The shape with one more requirement on the labels of its node; a term that selects no node stays so."""
    placement = shape.placement
    if not placement.required:
        return PodShape(shape.request, replace(placement, required=(NodeTerm((wanted,)),)))
    terms = (
        term._replace(expressions=(*term.expressions, wanted)) if term.expressions or term.fields else term
        for term in placement.required
    )
    return PodShape(shape.request, replace(placement, required=tuple(terms)))
