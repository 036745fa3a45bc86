"""The most that edl reads of one pod: ports, resources, and requirements on nodes.

A decision is made for all jobs at once, so a list that one user writes costs everybody time. Each number here is far
above what a real pod needs, and small enough that a job at all of them costs the others a few milliseconds. The
TrainingJob states the same numbers in its schema. They are applied again before a decision, because an older
definition of the resource may be installed, and because pods of others have no such definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from edl.model.resources import HOST_PORT_PREFIX, NodeTerm, PodShape, Preference

MAX_SELECTORS = 64  # labels of a node selector
MAX_TOLERATIONS = 64
MAX_TERMS = 64  # terms of the required node affinity, and as many of the preferred one
MAX_EXPRESSIONS = 256  # of all terms of the node affinity together
MAX_VALUES = 2000  # of all these expressions together
MAX_TEMPLATE_PORTS = 256  # of all containers of a template together
MAX_HOST_PORTS = 512  # of a pod: those of its template, and at most 256 by ports_num and ports_num_for_sparse
MAX_TEMPLATE_AMOUNTS = 96  # requests and limits of all containers of a template together
MAX_RESOURCES = 128  # resource names of a pod: those of its template, its role and its overhead

# The same of any pod and of any template, also of other controllers: it is read only within these.
MAX_LABELS = 256  # of a pod, of a node selector, and requirements of one label selector
MAX_RULES = 32  # terms of a pod affinity, as many of an anti-affinity, and as many spread constraints
MAX_READ_TOLERATIONS = 256
MAX_READ_VOLUMES = 512
MAX_READ_CLAIMS = 128  # on devices, and as many scheduling gates
MAX_READ_TERMS = 256  # of a required node affinity, and as many of a preferred one
MAX_READ_EXPRESSIONS = 2048  # of all these terms together: edl adds to each the nodes that it avoids
MAX_READ_VALUES = 4000  # of all these expressions together


def check_counts(*counts: tuple[int, int, str]) -> None:
    """Reject an object that has more entries of some kind than edl reads.

    Args:
        counts: (how many it has, how many are read, of what).

    Raises:
        ValueError: it has more; the message names them and the remedy.
    """
    for count, most, what in counts:
        if count > most:
            raise ValueError(f"{count} {what} exceed the {most} that edl reads; list fewer")


def excess_of(shape: PodShape, preferred: Iterable[Preference] = ()) -> str:
    """Name the limit that a pod exceeds, and the remedy; empty if it is within all limits.

    Args:
        shape: its request and placement.
        preferred: its preferred node affinity.
    """
    preferred = tuple(preferred)
    for count, most, what in _counts(shape, preferred):
        if count > most:
            return f"{count} {what} exceed the {most} that a pod may have; list fewer"
    return ""


def _counts(shape: PodShape, preferred: tuple[Preference, ...]) -> Iterator[tuple[int, int, str]]:
    """(how many a pod has, how many it may have, of what)."""
    place, names = shape.placement, len(shape.request.amounts)
    if names > MAX_RESOURCES:
        ports = sum(name.startswith(HOST_PORT_PREFIX) for name in shape.request)
        yield ports, MAX_HOST_PORTS, "host ports"
        yield names - ports, MAX_RESOURCES, "resource names"
    yield len(place.node_selector), MAX_SELECTORS, "labels of the node selector"
    yield len(place.tolerations), MAX_TOLERATIONS, "tolerations"
    yield len(place.required), MAX_TERMS, "terms of the required node affinity"
    yield len(preferred), MAX_TERMS, "terms of the preferred node affinity"
    terms: list[NodeTerm] = [*place.required, *(preference.term for preference in preferred)]
    expressions = [one for term in terms for one in (*term.expressions, *term.fields)]
    yield len(expressions), MAX_EXPRESSIONS, "expressions of the node affinity"
    yield sum(len(one.values) for one in expressions), MAX_VALUES, "values of the node affinity"
