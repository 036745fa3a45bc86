"""The managers of fields: who set what, as metadata.managedFields records it.

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edl.sandbox.apiserver.errors import ApiError
from edl.sandbox.apiserver.patches.fields import (
    CONTAINER,
    Fields,
    Path,
    fields_of,
    from_fields_v1,
    path_text,
    to_fields_v1,
)
from edl.sandbox.apiserver.schema.types import Schema

Object = dict[str, Any]

APPLY, UPDATE = "Apply", "Update"


@dataclass(frozen=True, slots=True)
class Manager:
    """A field manager: its name, and the kind of its writes."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    @property
    def label(self) -> str:
        """The field manager as messages show it."""
        if self.operation == APPLY:
            return f'"{self.name}"'
        part = f' with subresource "{self.subresource}"' if self.subresource else ""
        return f'"{self.name}"{part} using {self.api_version}'


@dataclass(slots=True)
class _Owned:
    manager: Manager
    paths: set[Path]
    time: str


def _read(value: Object | None) -> list[_Owned]:
    found = []
    for entry in ((value or {}).get("metadata") or {}).get("managedFields") or ():
        manager = Manager(
            entry.get("manager", ""),
            entry.get("operation", UPDATE),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        found.append(_Owned(manager, from_fields_v1(entry.get("fieldsV1") or {}), entry.get("time", "")))
    return found


def _written(value: Object, owners: list[_Owned]) -> None:
    """Set the managed fields of an object, in place."""
    entries = [
        {
            "manager": one.manager.name,
            "operation": one.manager.operation,
            "apiVersion": one.manager.api_version,
            "time": one.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(one.paths),
            **({"subresource": one.manager.subresource} if one.manager.subresource else {}),
        }
        for one in sorted(owners, key=lambda one: one.manager.operation)
        if one.paths
    ]
    metadata = {name: item for name, item in value["metadata"].items() if name != "managedFields"}
    value["metadata"] = {**metadata, **({"managedFields": entries} if entries else {})}


def _owner(owners: list[_Owned], manager: Manager) -> _Owned:
    for one in owners:
        if one.manager == manager:
            return one
    owners.append(_Owned(manager, set(), ""))
    return owners[-1]


def record_update(
    schema: Schema, old: Object | None, new: Object, *, manager: Manager, time: str, is_custom: bool
) -> None:
    """Make a manager the owner of what it changed, in place.

    Args:
        schema: the type of the object.
        old: the former state; None for a create.
        new: the new state, whose managed fields are set.
        manager: who writes.
        time: now.
        is_custom: whether it is a custom resource.
    """
    before = {} if old is None else fields_of(schema, old, every_container=is_custom)
    after = fields_of(schema, new, every_container=is_custom)
    changed = {path for path, item in after.items() if path not in before or before[path] != item}
    removed = before.keys() - after.keys()
    owners = _read(old)
    mine = _owner(owners, manager)
    for one in owners:
        one.paths -= removed
        if one is not mine:
            one.paths -= changed
    if not changed <= mine.paths or not mine.time:
        mine.time = time
    mine.paths |= changed
    _written(new, owners)


@dataclass(slots=True)
class Applied:
    """What a server-side apply sets, and what the same manager has set before and omits now.

    Attributes:
        paths: the paths of the fields that the manager owns from now on.
        dropped: paths that it owned before, and that nobody else owns.
    """

    paths: set[Path]
    dropped: set[Path]


def plan_apply(
    schema: Schema, live: Object | None, applied: Object, manager: Manager, *, force: bool, is_custom: bool
) -> Applied:
    """Find out what an apply request changes.

    Raises:
        ApiError: 409, another manager owns a field that it changes, and `force` is not set.
    """
    found = fields_of(schema, applied, every_container=False)
    # Of what has fields of its own, only an item of a list is itself set by an apply.
    wanted = {path: item for path, item in found.items() if item is not CONTAINER or path[-1].startswith("k:")}
    now: Fields = {} if live is None else fields_of(schema, live, every_container=is_custom)
    owners = _read(live)
    mine = _owner(owners, manager)
    others = [one for one in owners if one is not mine]
    changed = {path for path, item in wanted.items() if path in now and now[path] != item}
    conflicts = [(one.manager, sorted(one.paths & changed)) for one in others if one.paths & changed]
    if conflicts and not force:
        raise _conflict(conflicts)
    kept = {path for one in others for path in one.paths}
    dropped = {path for path in mine.paths - wanted.keys() if not _is_kept(path, kept)}
    return Applied(set(wanted), dropped)


def _is_kept(path: Path, kept: set[Path]) -> bool:
    return path in kept or any(other[: len(path)] == path for other in kept)


def record_apply(
    schema: Schema, live: Object | None, new: Object, plan: Applied, *, manager: Manager, time: str, is_custom: bool
) -> None:
    """Make a manager the owner of exactly what it applied, in place."""
    before: Fields = {} if live is None else fields_of(schema, live, every_container=is_custom)
    after = fields_of(schema, new, every_container=is_custom)
    changed = {path for path in plan.paths if path in before and before[path] != after.get(path)}
    gone = before.keys() - after.keys()
    owners = _read(live)
    mine = _owner(owners, manager)
    for one in owners:
        if one is not mine:
            one.paths -= changed | gone
    if mine.paths != plan.paths or changed or not mine.time:
        mine.time = time
    mine.paths = plan.paths
    _written(new, owners)


def _conflict(conflicts: list[tuple[Manager, list[Path]]]) -> ApiError:
    count = sum(len(paths) for _, paths in conflicts)
    causes, parts = [], []
    for manager, paths in conflicts:
        head = f"conflict{'s' if len(paths) > 1 else ''} with {manager.label}"
        texts = [path_text(path) for path in paths]
        parts.append(f"{head}: {texts[0]}" if len(texts) == 1 else f"{head}:\n- " + "\n- ".join(texts))
        detail = f"conflict with {manager.label}"
        causes += [{"reason": "FieldManagerConflict", "message": detail, "field": text} for text in texts]
    message = f"Apply failed with {count} conflict{'s' if count > 1 else ''}: " + "\n".join(parts)
    return ApiError(409, "Conflict", message, {"causes": causes})
