"""Records the types of the served built-in kinds from the OpenAPI documents of a real API server.

The embedded server reads the result for strict field validation, strategic merge patch, server-side apply and its own
OpenAPI documents. Descriptions are left out: they are long, and the official client has them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds.harness import ROOT

TYPES_FILE = ROOT / "edl" / "sandbox" / "apiserver" / "schema" / "builtin_types.json"
Schema = dict[str, Any]

_API = "io.k8s.api."
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
ROOTS = (
    *(
        f"{_API}{name}"
        for name in [
            "core.v1.Binding",
            "core.v1.ConfigMap",
            "core.v1.Endpoints",
            "core.v1.Event",
            "core.v1.LimitRange",
            "core.v1.Namespace",
            "core.v1.Node",
            "core.v1.PersistentVolume",
            "core.v1.PersistentVolumeClaim",
            "core.v1.Pod",
            "core.v1.ResourceQuota",
            "core.v1.Secret",
            "core.v1.Service",
            "core.v1.ServiceAccount",
            "apps.v1.DaemonSet",
            "apps.v1.Deployment",
            "apps.v1.ReplicaSet",
            "batch.v1.Job",
            "policy.v1.Eviction",
            "policy.v1.PodDisruptionBudget",
            "coordination.v1.Lease",
            "discovery.v1.EndpointSlice",
            "events.v1.Event",
            "resource.v1.DeviceClass",
            "resource.v1.ResourceClaim",
            "resource.v1.ResourceClaimTemplate",
            "resource.v1.ResourceSlice",
            "scheduling.v1.PriorityClass",
            "storage.v1.StorageClass",
            "rbac.v1.ClusterRole",
            "rbac.v1.ClusterRoleBinding",
            "rbac.v1.Role",
            "rbac.v1.RoleBinding",
            "networking.v1.NetworkPolicy",
            "admissionregistration.v1.ValidatingAdmissionPolicy",
            "admissionregistration.v1.ValidatingAdmissionPolicyBinding",
            "authentication.v1.SelfSubjectReview",
            "authentication.v1.TokenRequest",
            "authentication.v1.TokenReview",
            "authorization.v1.SelfSubjectAccessReview",
            "authorization.v1.SelfSubjectRulesReview",
            "authorization.v1.SubjectAccessReview",
            "autoscaling.v1.Scale",
        ]
    ),
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    f"{_META}DeleteOptions",
    f"{_META}Status",
)


def render_types(read: Callable[[str], Schema]) -> str:
    """The text of the file of types.

    Args:
        read: reads a path of an API server that serves every built-in kind.
    """
    known: dict[str, Schema] = {}
    for name, place in read("/openapi/v3")["paths"].items():
        if name.endswith("/v1"):
            known.update(read(place["serverRelativeURL"])["components"]["schemas"])
    types: dict[str, Schema] = {}
    waiting = list(ROOTS)
    while waiting:
        if (name := waiting.pop()) not in types:
            types[name] = _without_descriptions(known[name])
            waiting += _references(types[name])
    lines = (f"{json.dumps(name)}:{json.dumps(types[name], separators=(',', ':'))}" for name in sorted(types))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _without_descriptions(schema: Schema) -> Schema:
    """A schema with plain references and without prose. The keys of `properties` are names, not keywords."""
    node: Schema = {}
    for key, value in schema.items():
        if key == "properties":
            node[key] = {name: _without_descriptions(inner) for name, inner in value.items()}
        elif key in {"items", "additionalProperties"} and isinstance(value, dict):
            node[key] = _without_descriptions(value)
        elif key == "allOf":
            node["$ref"] = value[0]["$ref"].rpartition("/")[2]
        elif key == "$ref":
            node[key] = value.rpartition("/")[2]
        elif key not in {"description", "x-kubernetes-group-version-kind"}:
            node[key] = value
    return node


def _references(schema: Schema) -> Iterator[str]:
    if "$ref" in schema:
        yield schema["$ref"]
    for inner in schema.get("properties", {}).values():
        yield from _references(inner)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _references(schema[key])


def write(read: Callable[[str], Schema], path: Path = TYPES_FILE) -> None:
    """Write the file."""
    path.write_text(render_types(read), encoding="utf-8")


def main() -> int:
    """Record the types from a control plane that is started for it."""
    with tempfile.TemporaryDirectory(prefix="edl-types-") as folder, ControlPlane.start(Path(folder)) as plane:
        write(lambda path: plane.kube.request("GET", path.partition("?")[0]))
    print(f"recorded {TYPES_FILE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
