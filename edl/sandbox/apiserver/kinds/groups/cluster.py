"""The kinds of the small groups: leases, events, classes, devices, policies, definitions."""

from __future__ import annotations

from edl.sandbox.apiserver.kinds import defaults, devices
from edl.sandbox.apiserver.kinds.groups.events import EVENT_FIELDS, new_event_fields
from edl.sandbox.apiserver.kinds.groups.group import Group
from edl.sandbox.apiserver.kinds.kind import AGE, NAME
from edl.sandbox.apiserver.kinds.rows import cluster as rows
from edl.sandbox.apiserver.kinds.rows import core as core_rows

_LEASES = Group("coordination.k8s.io", "io.k8s.api.coordination.v1")
_DISCOVERY = Group("discovery.k8s.io", "io.k8s.api.discovery.v1")
_EVENTS = Group("events.k8s.io", "io.k8s.api.events.v1")
_NETWORKING = Group("networking.k8s.io", "io.k8s.api.networking.v1")
_RESOURCE = Group("resource.k8s.io", "io.k8s.api.resource.v1")
_SCHEDULING = Group("scheduling.k8s.io", "io.k8s.api.scheduling.v1")
_STORAGE = Group("storage.k8s.io", "io.k8s.api.storage.v1")
_ADMISSION = Group("admissionregistration.k8s.io", "io.k8s.api.admissionregistration.v1")
_EXTENSIONS = Group("apiextensions.k8s.io", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1")

KINDS = (
    _LEASES.kind("Lease", rows.LEASE_COLUMNS, rows.lease_row, rules=defaults.lease_rules),
    _DISCOVERY.kind("EndpointSlice", rows.SLICE_COLUMNS, rows.slice_row, has_generation=True),
    _EVENTS.kind(
        "Event",
        core_rows.EVENT_COLUMNS,
        core_rows.event_row,
        short="ev",
        stored_as="events",
        selectable=(*EVENT_FIELDS, "reportingController"),
        fields_of=new_event_fields,
        rules=defaults.event_rules,
    ),
    _NETWORKING.kind(
        "NetworkPolicy", rows.NETWORK_POLICY_COLUMNS, rows.network_policy_row, short="netpol", has_generation=True
    ),
    _RESOURCE.kind("DeviceClass", (NAME, AGE), core_rows.aged_row, namespaced=False, has_generation=True),
    _RESOURCE.kind(
        "ResourceClaim",
        rows.DEVICE_CLAIM_COLUMNS,
        rows.device_claim_row,
        has_status=True,
        prepare=devices.claim,
        rules=devices.claim_rules,
    ),
    _RESOURCE.kind(
        "ResourceClaimTemplate",
        (NAME, AGE),
        core_rows.aged_row,
        prepare=devices.template,
        rules=devices.template_rules,
    ),
    _RESOURCE.kind(
        "ResourceSlice",
        rows.RESOURCE_SLICE_COLUMNS,
        rows.resource_slice_row,
        namespaced=False,
        has_generation=True,
        selectable=devices.SLICE_FIELDS,
        fields_of=devices.slice_fields,
        prepare=devices.resource_slice,
    ),
    _SCHEDULING.kind(
        "PriorityClass",
        rows.PRIORITY_CLASS_COLUMNS,
        rows.priority_class_row,
        namespaced=False,
        short="pc",
        has_generation=True,
        prepare=defaults.priority_class,
        rules=defaults.priority_class_rules,
    ),
    _STORAGE.kind(
        "StorageClass",
        rows.STORAGE_CLASS_COLUMNS,
        rows.storage_class_row,
        namespaced=False,
        short="sc",
        prepare=defaults.storage_class,
    ),
    _ADMISSION.kind(
        "ValidatingAdmissionPolicy",
        rows.POLICY_COLUMNS,
        rows.admission_policy_row,
        namespaced=False,
        has_status=True,
        has_generation=True,
        categories=("api-extensions",),
        prepare=defaults.admission_policy,
    ),
    _ADMISSION.kind(
        "ValidatingAdmissionPolicyBinding",
        rows.POLICY_BINDING_COLUMNS,
        rows.admission_binding_row,
        namespaced=False,
        has_generation=True,
        categories=("api-extensions",),
    ),
    _EXTENSIONS.kind(
        "CustomResourceDefinition",
        rows.CREATED_AT,
        rows.created_at_row,
        namespaced=False,
        short="crd crds",
        categories=("api-extensions",),
        has_status=True,
        has_generation=True,
    ),
)
