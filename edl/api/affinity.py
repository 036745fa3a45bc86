"""The node affinity of a pod template: edl reads it, bounds it as a whole, and passes it on.

Each list has a length of its own; rules bound all of them together, because a decision reads every value. Pod
affinity is passed on unread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from edl.api.base import RawPart, Rule, Values, WholeNumber
from edl.model.pod_limits import MAX_EXPRESSIONS, MAX_TERMS, MAX_VALUES


class Expression(RawPart):
    """One requirement on a node."""

    key: Annotated[str, Field(max_length=317)]
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[Annotated[str, Field(max_length=253)]] = Field(default_factory=list, max_length=1000)


class NodeSelectorTerm(RawPart):
    """Requirements that a node must all meet."""

    match_expressions: list[Expression] = Field(default_factory=list, max_length=64)
    match_fields: list[Expression] = Field(default_factory=list, max_length=64)


class RequiredNodes(RawPart):
    """Terms of which a node must meet one."""

    node_selector_terms: list[NodeSelectorTerm] = Field(default_factory=list, max_length=MAX_TERMS)


class PreferredNodes(RawPart):
    """A term that a node should meet, with its weight."""

    weight: Annotated[WholeNumber, Field(ge=1, le=100)]
    preference: NodeSelectorTerm


def _in_all_terms(counted: str) -> str:
    """Write a CEL expression: the sum of a count over required and preferred terms `t` and both lists `{field}`."""
    one = " + ".join(
        f"(has(t.{field}) ? {counted.format(field=field)} : 0)" for field in ("matchExpressions", "matchFields")
    )
    required, preferred = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))
    terms = f"self.{required}.nodeSelectorTerms"
    return (
        f"(has(self.{required}) && has({terms}) ? {terms}.map(t, {one}).sum() : 0)"
        f" + (has(self.{preferred}) ? self.{preferred}.map(p, {one.replace('t.', 'p.preference.')}).sum() : 0)"
    )


def _check_expressions(part: NodeAffinity) -> Iterator[Values]:
    if (count := sum(1 for _ in part.expressions())) > MAX_EXPRESSIONS:
        yield {"count": count}


def _check_values(part: NodeAffinity) -> Iterator[Values]:
    if (count := sum(len(expression.values) for expression in part.expressions())) > MAX_VALUES:
        yield {"count": count}


class NodeAffinity(RawPart):
    """Required and preferred nodes of a pod."""

    required: RequiredNodes | None = Field(default=None, alias="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredNodes] = Field(
        default_factory=list, max_length=MAX_TERMS, alias="preferredDuringSchedulingIgnoredDuringExecution"
    )

    rules = (
        Rule(
            cel=f"{_in_all_terms('t.{field}.size()')} <= {MAX_EXPRESSIONS}",
            message=f"the node affinity has {{count}} expressions, more than {MAX_EXPRESSIONS}; list fewer",
            check=_check_expressions,
            general={"count": "too many"},
        ),
        Rule(
            cel=f"{_in_all_terms('t.{field}.map(e, has(e.values) ? e.values.size() : 0).sum()')} <= {MAX_VALUES}",
            message=f"the node affinity lists {{count}} values, more than {MAX_VALUES}; list fewer, for example by a "
            "label that these nodes share",
            check=_check_values,
            general={"count": "too many"},
        ),
    )

    def expressions(self) -> Iterator[Expression]:
        """All expressions, on labels and fields, of all terms."""
        required = self.required.node_selector_terms if self.required else []
        for term in (*required, *(preferred.preference for preferred in self.preferred)):
            yield from (*term.match_expressions, *term.match_fields)


class Affinity(RawPart):
    """Node affinity; pod affinity is passed on."""

    node_affinity: NodeAffinity | None = None
