"""The CustomResourceDefinition that the pydantic models become.

Kubernetes accepts structural schemas only: this module inlines references, drops null alternatives and keeps the
unknown fields of untyped objects. Descriptions, bounds and rules come from the models. The rules that compare an
object with its former version are in `transitions.py`. The result is a dictionary; `edl.install` writes it as YAML.
"""

from __future__ import annotations

from typing import Any

from edl.api.base import Part
from edl.api.queues import MAX_QUEUE_NAME, QUEUE_KIND, QUEUE_NAME, QUEUE_PLURAL, QueueSpec, QueueStatusPart
from edl.api.spec import MAX_NAME_LENGTH, NAME_PATTERN, Spec
from edl.api.status import Status
from edl.api.transitions import transition_rules
from edl.api.v1 import GROUP, KIND, PLURAL, VERSION

Schema = dict[str, Any]
Columns = tuple[tuple[str, str, str, str], ...]
"""Name, type, JSON path and description of each."""

_COLUMNS = (
    ("Phase", "string", ".status.phase", "phase of the job"),
    ("Min", "integer", ".spec.trainer.min-instance", "minimum number of trainers"),
    ("Max", "integer", ".spec.trainer.max-instance", "maximum number of trainers"),
    ("Desired", "integer", ".status.trainer.desired", "number of trainers that the planner decided"),
    ("Ready", "integer", ".status.trainer.ready", "number of trainers that are ready"),
    ("Reason", "string", ".status.reason", "reason for the desired number of trainers"),
    ("Age", "date", ".metadata.creationTimestamp", "time since the job was created"),
)
_WIDE_COLUMNS = (
    ("QoS", "string", ".status.qosClass", "QoS class of the trainers"),
    ("Lent", "string", ".status.lending.cpu", "CPU that the trainers declare and do not request"),
    ("Slowed", "integer", ".status.lending.slowed", "number of trainers that serving slows"),
)
_QUEUE_COLUMNS = (
    ("Weight", "integer", ".spec.weight", "part of what others leave"),
    ("Used", "string", ".status.summary.used", "what its jobs use"),
    ("Borrowed", "string", ".status.summary.borrowed", "what they use beyond the nominal quota"),
    ("Share", "string", ".status.summary.share", "what they may use now"),
    ("Running", "integer", ".status.running", "jobs that run"),
    ("Pending", "integer", ".status.pending", "jobs that wait"),
    ("Age", "date", ".metadata.creationTimestamp", "time since the queue was created"),
)
_WIDE_QUEUE_COLUMNS = (
    ("Cohort", "string", ".spec.cohort", "queues that lend to each other"),
    ("Reclaim", "string", ".spec.reclaim", "queues from which it takes back what it lent"),
    ("Message", "string", ".status.message", "who uses what the queue lacks"),
)
_DROPPED = ("title", "$defs")
# pydantic keeps its own name for a bound if a validator runs before that of the type.
_RENAMED = {"ge": "minimum", "le": "maximum"}


def render_crd() -> Schema:
    """The definition of `trainingjobs.paddlepaddle.org`, as an API server accepts it."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["tj"],
                "categories": ["edl"],
            },
            "scope": "Namespaced",
            "versions": [_version()],
        },
    }


def _version() -> Schema:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": render_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.trainer.instances",
                # `ready`, not `desired`: a client that waits for the end of a resize waits for ready trainers.
                "statusReplicasPath": ".status.trainer.ready",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": _columns(_COLUMNS, _WIDE_COLUMNS),
    }


def _columns(usual: Columns, wide: Columns) -> list[Schema]:
    """The columns that kubectl prints, and those of `-o wide`."""
    return [
        {"name": name, "type": kind, "jsonPath": path, "description": description, **more}
        for columns, more in ((usual, {}), (wide, {"priority": 1}))
        for name, kind, path, description in columns
    ]


def render_queue_crd() -> Schema:
    """The definition of `queues.paddlepaddle.org`, as an API server accepts it."""
    names = {"name": {"type": "string", "maxLength": MAX_QUEUE_NAME, "pattern": QUEUE_NAME}}
    schema = {
        "type": "object",
        "description": "What the jobs of a team may request together, what the team lends, and what it borrows.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": names},
            "spec": _structural(QueueSpec),
            "status": _structural(QueueStatusPart),
        },
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": _columns(_QUEUE_COLUMNS, _WIDE_QUEUE_COLUMNS),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{QUEUE_PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": QUEUE_KIND,
                "listKind": f"{QUEUE_KIND}List",
                "plural": QUEUE_PLURAL,
                "singular": QUEUE_KIND.lower(),
                "categories": ["edl"],
            },
            "scope": "Cluster",
            "versions": [version],
        },
    }


def render_schema() -> Schema:
    """The structural schema of a whole TrainingJob."""
    return {
        "type": "object",
        "description": "A training job; edl changes its number of trainers between min-instance and max-instance.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": MAX_NAME_LENGTH, "pattern": NAME_PATTERN}},
            },
            "spec": _structural(Spec),
            "status": _structural(Status),
        },
        "x-kubernetes-validations": transition_rules(),
    }


def _structural(model: type[Part]) -> Schema:
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(schema, schema.get("$defs", {}))


def _convert(schema: Schema, definitions: Schema) -> Schema:
    """Convert one node of JSON schema to structural schema."""
    node = dict(schema)
    if reference := node.pop("$ref", None):
        node = {**definitions[reference.rpartition("/")[2]], **node}
    if "x-kubernetes-int-or-string" not in node and (choices := node.pop("anyOf", None)):
        (choice,) = [c for c in choices if c != {"type": "null"}]
        return _convert({**choice, **node}, definitions)
    if node.get("default", 0) is None:
        del node["default"]
    if node.get("additionalProperties") is True:
        del node["additionalProperties"]
    if isinstance(node.get("additionalProperties"), dict):
        node["additionalProperties"] = _convert(node["additionalProperties"], definitions)
    if "items" in node:
        node["items"] = _convert(node["items"], definitions)
    if "properties" in node:
        node["properties"] = {name: _convert(inner, definitions) for name, inner in node["properties"].items()}
    return {_RENAMED.get(key, key): value for key, value in node.items() if key not in _DROPPED}
