"""The pydantic models as a CustomResourceDefinition that a real API server accepts.

JSON schema and structural schema differ: references are inlined, null alternatives dropped, and what has no type
keeps its unknown fields. Everything else, the rules included, comes from the models; only what concerns the change of
an object stands here. The result is a dictionary; YAML is the adapters' business.
"""

from __future__ import annotations

from typing import Any

from edl.api.spec import MAX_NAME_LENGTH, NAME_PATTERN, Spec
from edl.api.status import Status
from edl.api.v1 import GROUP, KIND, PLURAL, VERSION
from edl.model.names import Role
from edl.model.status import JobPhase

Schema = dict[str, Any]

_COLUMNS = (
    ("Phase", "string", ".status.phase", "what the job is doing"),
    ("Min", "integer", ".spec.trainer.min-instance", "fewest trainers"),
    ("Max", "integer", ".spec.trainer.max-instance", "most trainers"),
    ("Desired", "integer", ".status.trainer.desired", "trainers that the planner gives it"),
    ("Ready", "integer", ".status.trainer.ready", "trainers that are ready"),
    ("Reason", "string", ".status.reason", "why this count"),
    ("Age", "date", ".metadata.creationTimestamp", "time since its creation"),
)
_DROPPED = ("title", "$defs")
# pydantic leaves a bound under its own name where a validator runs before the type's.
_RENAMED = {"ge": "minimum", "le": "maximum"}
_WITH_PODS = (JobPhase.CREATING, JobPhase.RUNNING, JobPhase.SCALING)


def render_crd() -> Schema:
    """The definition of `trainingjobs.paddlepaddle.org`, ready to be sent to an API server."""
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
                # `ready`, not `desired`: who waits for a scale to finish waits for trainers that work.
                "statusReplicasPath": ".status.trainer.ready",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "description": description}
            for name, kind, path, description in _COLUMNS
        ],
    }


def render_schema() -> Schema:
    """The structural schema of a whole TrainingJob."""
    return {
        "type": "object",
        "description": "A training job whose trainer count moves between its bounds.",
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
        "x-kubernetes-validations": _transition_rules(),
    }


def _transition_rules() -> list[Schema]:
    """What must not change while pods exist.

    Whether pods exist is read from the stored status, which is all that an expression can see of them: the phase, or
    any ready or pending pod of any role. On an update of the spec the API server takes the status from the stored
    object, so it cannot be forged in the same request. Between the creation of the first pod and the first status
    there is a moment in which a change passes, and pods made before and after it differ.

    Templates are compared within lists, because the cost estimate takes an object for boundless and a list for its
    length.
    """
    unchanged = {
        "image": "self.spec.image == oldSelf.spec.image",
        **{
            f"{role.value}.template": f"[self.spec.?{role.value}.?template] == [oldSelf.spec.?{role.value}.?template]"
            for role in Role
        },
    }
    return [
        {
            "rule": f"{same} || !({_pods_exist()})",
            "message": f"{field} cannot change while the job has pods; suspend it",
        }
        for field, same in unchanged.items()
    ]


def _pods_exist() -> str:
    counts = [
        f"oldSelf.?status.?{role.value}.?{count}.orValue(0) > 0" for role in Role for count in ("ready", "pending")
    ]
    phases = [phase.value for phase in _WITH_PODS]
    return " || ".join([f"oldSelf.?status.?phase.orValue('') in {phases}", *counts])


def _structural(model: type[Spec] | type[Status]) -> Schema:
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(schema, schema.get("$defs", {}))


def _convert(schema: Schema, definitions: Schema) -> Schema:
    """One node of JSON schema as a node of structural schema."""
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
