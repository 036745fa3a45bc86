"""What the server knows of one kind of object.

A kind is data: names, verbs, columns, and a few functions for what is special about it. A new kind is a new line in
a module of `groups`; a CustomResourceDefinition makes one at run time (`custom.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from edl.sandbox.apiserver.errors import FieldError

Object = dict[str, Any]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""


Row = Callable[[Object, datetime], Sequence[Any]]
Rule = Callable[[Object, Object | None], Sequence[FieldError]]
"""Judges a new object, given the stored one for an update."""
Prepare = Callable[[Object, Object | None], None]
"""Fills in the fields of a new object in place; the second argument is the stored object if this is an update."""
FieldsOf = Callable[[Object], Mapping[str, str]]


def _nothing(_new: Object, _old: Object | None) -> None:
    """Fill in nothing."""


def _no_rules(_new: Object, _old: Object | None) -> Sequence[FieldError]:
    return ()


def _no_fields(_value: Object) -> Mapping[str, str]:
    return {}


def name_and_age(value: Object, now: datetime) -> Sequence[Any]:
    """The row of a kind without columns of its own."""
    del now
    return (value["metadata"]["name"], value["metadata"].get("creationTimestamp"))


NAME = Column("Name", format="name", description="name of the object")
AGE = Column("Age", "date", description="time since the object was created")


@dataclass(frozen=True, slots=True)
class Scale:
    """The paths of the replica counts in objects of a kind, as keys."""

    spec: tuple[str, ...]
    status: tuple[str, ...]
    selector: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind in one version.

    Attributes:
        type_name: in `builtin_types.json`; empty for a custom resource.
        schema: the structural schema of a custom resource.
        stored_as: the resource whose objects these are, if another one stores them (events.k8s.io).
        has_generation: whether a change of the spec counts up metadata.generation.
        has_status: whether there is a status subresource.
        subresources: the others: name to kind and verbs.
        selectable: fields that a field selector may name, besides name and namespace.
        fields_of: the values of these.
        label_name: whether a name is checked as a label (Service) rather than as a subdomain.
    """

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool
    type_name: str = ""
    schema: Object | None = None
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    stored_as: str = ""
    has_generation: bool = False
    has_status: bool = False
    scale: Scale | None = None
    subresources: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = field(default_factory=dict)
    columns: tuple[Column, ...] = (NAME, AGE)
    row: Row = name_and_age
    selectable: tuple[str, ...] = ()
    fields_of: FieldsOf = _no_fields
    prepare: Prepare = _nothing
    rules: Rule = _no_rules
    name_form: str = "subdomain"
    list_kind: str = ""

    @property
    def resource(self) -> str:
        """The key of the collection in the store: `pods`, `deployments.apps`."""
        return self.stored_as or self.qualified

    @property
    def qualified(self) -> str:
        """The plural with the group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_custom(self) -> bool:
        """True if a CustomResourceDefinition has made the kind."""
        return self.schema is not None


def dig(value: Any, *path: str | int, default: Any = None) -> Any:
    """The value at a path of keys and indexes; the default if something on the way is absent or null."""
    for part in path:
        if isinstance(part, int):
            value = value[part] if isinstance(value, list) and -len(value) <= part < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            return default
    return value
