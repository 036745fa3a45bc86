"""What the objects of all kinds have in common, as the API server sends it: only the fields that edl reads."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from edl.kube.translate.objects import ObjectMetadata
from edl.kube.translate.scalars import ApiStruct, Scalar

Owned = TypeVar("Owned")
"""Which fields of the spec of a kind a manager owns."""


class ManagedFields(ApiStruct, Generic[Owned]):
    """The fields that a manager owns."""

    spec: Owned | None = msgspec.field(default=None, name="f:spec")


class Manager(ApiStruct, Generic[Owned]):
    """One entry of managedFields."""

    manager: str | None = None
    fields_v1: ManagedFields[Owned] | None = msgspec.field(default=None, name="fieldsV1")


class WorkloadMetadata(ObjectMetadata, Generic[Owned]):
    """Metadata of a workload."""

    annotations: dict[str, Scalar] | None = None
    labels: dict[str, Scalar] | None = None
    managed_fields: list[Manager[Owned]] | None = None
