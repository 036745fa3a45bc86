"""Which kinds are served: the built-in ones and those of the stored CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edl.sandbox.apiserver.kinds.builtin import builtin_kinds
from edl.sandbox.apiserver.kinds.custom import kinds_of
from edl.sandbox.apiserver.kinds.kind import Kind, Object

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


class Registry:
    """The served kinds by group, version and plural."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self._custom: dict[str, Sequence[Kind]] = {}
        for kind in builtin_kinds():
            self._add(kind)

    def _add(self, kind: Kind) -> None:
        self._kinds[(kind.group, kind.version, kind.plural)] = kind

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind of a resource."""
        return self._kinds.get((group, version, plural))

    def of_kind(self, api_version: str, name: str) -> Kind | None:
        """The kind of an object by its apiVersion and kind."""
        found = (kind for kind in self._kinds.values() if kind.api_version == api_version and kind.name == name)
        return next(found, None)

    def stored(self, resource: str) -> Kind | None:
        """The kind that stores its objects in a collection."""
        return next((kind for kind in self._kinds.values() if kind.qualified == resource), None)

    def __iter__(self) -> Iterator[Kind]:
        return iter(list(self._kinds.values()))

    def groups(self) -> dict[str, list[str]]:
        """Every group with its versions, in the order of discovery."""
        groups: dict[str, list[str]] = {}
        for kind in self:
            versions = groups.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        return groups

    def of_group(self, group: str, version: str) -> list[Kind]:
        """The kinds of a version of a group, by plural."""
        found = [kind for kind in self if (kind.group, kind.version) == (group, version)]
        return sorted(found, key=lambda kind: kind.plural)

    def custom(self, definition_name: str) -> Sequence[Kind]:
        """The kinds that a CustomResourceDefinition makes."""
        return self._custom.get(definition_name, ())

    def define(self, definition: Object) -> None:
        """Serve the kinds of a CustomResourceDefinition, and no others of it."""
        self.undefine(definition["metadata"]["name"])
        kinds = kinds_of(definition)
        self._custom[definition["metadata"]["name"]] = kinds
        for kind in kinds:
            self._add(kind)

    def undefine(self, definition_name: str) -> None:
        """Stop serving the kinds of a CustomResourceDefinition."""
        for kind in self._custom.pop(definition_name, ()):
            self._kinds.pop((kind.group, kind.version, kind.plural), None)
