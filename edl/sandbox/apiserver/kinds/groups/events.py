"""The fields of events that a field selector may name, in both versions of the kind."""

from __future__ import annotations

from collections.abc import Mapping

from edl.sandbox.apiserver.kinds.kind import Object, dig

EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)


def event_fields(event: Object) -> Mapping[str, str]:
    """The values of the fields of a core/v1 event."""
    about = event.get("involvedObject", {})
    fields = {f"involvedObject.{name}": str(about.get(name, "")) for name in about}
    source = dig(event, "source", "component") or event.get("reportingComponent", "")
    plain = {name: str(event.get(name, "")) for name in ("reason", "reportingComponent", "type")}
    return {**fields, **plain, "source": source}


def new_event_fields(event: Object) -> Mapping[str, str]:
    """The values of the fields of an events.k8s.io/v1 event."""
    fields = event_fields(event)
    return {**fields, "reportingController": fields["reportingComponent"]}
