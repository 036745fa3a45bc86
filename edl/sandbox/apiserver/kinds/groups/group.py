"""An API group, and how its kinds are written down: what follows from the name of a kind is not repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict, Unpack

from edl.sandbox.apiserver.kinds.kind import (
    AGE,
    NAME,
    Column,
    FieldsOf,
    Kind,
    Prepare,
    Row,
    Rule,
    Scale,
    name_and_age,
)


class Special(TypedDict, total=False):
    """The properties in which a kind differs from others; see the fields of `Kind`."""

    singular: str
    categories: tuple[str, ...]
    verbs: tuple[str, ...]
    stored_as: str
    has_generation: bool
    has_status: bool
    scale: Scale
    subresources: Mapping[str, tuple[str, str, str, tuple[str, ...]]]
    selectable: tuple[str, ...]
    fields_of: FieldsOf
    prepare: Prepare
    rules: Rule
    name_form: str


@dataclass(frozen=True, slots=True)
class Group:
    """One version of an API group.

    Attributes:
        name: the name of the group; empty for the core group.
        types: the package of its types in `builtin_types.json`.
        version: the version of the group.
    """

    name: str
    types: str
    version: str = "v1"

    def kind(
        self,
        name: str,
        columns: tuple[Column, ...] = (NAME, AGE),
        row: Row = name_and_age,
        *,
        namespaced: bool = True,
        plural: str = "",
        short: str = "",
        **special: Unpack[Special],
    ) -> Kind:
        """Define a kind of the group.

        Args:
            name: in the singular, as `kind` says it in an object.
            columns: the columns of its table.
            row: makes a row of that table.
            namespaced: whether its objects have a namespace.
            plural: if it does not follow from the name.
            short: short names, with spaces between them.
            special: the other fields of `Kind`.
        """
        return Kind(
            self.name,
            self.version,
            name,
            plural or plural_of(name),
            namespaced=namespaced,
            type_name=f"{self.types}.{name}",
            columns=columns,
            row=row,
            short_names=tuple(short.split()),
            **special,
        )


def plural_of(name: str) -> str:
    """The name of the resource: in lower case, and with the ending that Kubernetes gives to regular names.

    Source: UnsafeGuessKindToResource in k8s.io/apimachinery/pkg/api/meta.
    """
    lower = name.lower()
    if lower.endswith("s"):
        return f"{lower}es"
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"
