"""The generated files of `crds/` and `deploy/`: the CRD, Kustomize bases, everything in one file, alerts, dashboards.

What they say stands in `edl.api`; here it only becomes text, always the same for the same objects, so that a test can
compare the files in the repository with what would be generated now. `python -m edl.install.reference` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import yaml

from edl.api.crd import render_crd
from edl.install import alerts as monitoring
from edl.install import objects as deploy
from edl.install.dashboards import dashboards

CRD_FILE = "crds/paddlepaddle.org_trainingjobs.yaml"
ALL_IN_ONE = "deploy/edl_controller.yaml"

_HEADER = "# Generated from the models in edl/api by `make generate`; changes here are lost.\n"

Object = dict[str, Any]


class _Dumper(yaml.SafeDumper):
    """Writes every object out in full: an anchor in a manifest confuses people and some tools."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base class names it
        return True


def crd_yaml() -> str:
    """The CustomResourceDefinition as a YAML file."""
    return _dump([render_crd()])


def manifests_yaml() -> str:
    """Everything that installs the controller, as one YAML file."""
    return _dump(controller_manifests())


def controller_manifests() -> list[Object]:
    """Everything that installs the controller, in an order in which it can be created."""
    return [
        *deploy.namespace(),
        render_crd(),
        *deploy.priority_classes(),
        *deploy.rights(),
        *deploy.admission(),
        *deploy.workload(),
    ]


def generated_files() -> dict[str, str]:
    """Path below the root of the repository -> text, of every generated file."""
    base = {
        "namespace.yaml": deploy.namespace(),
        "priorityclasses.yaml": deploy.priority_classes(),
        "rbac.yaml": deploy.rights(),
        "admission.yaml": deploy.admission(),
        "controller.yaml": deploy.workload(),
    }
    files = {CRD_FILE: crd_yaml(), ALL_IN_ONE: manifests_yaml(), "deploy/crd/trainingjobs.yaml": crd_yaml()}
    files["deploy/crd/kustomization.yaml"] = _kustomization(["trainingjobs.yaml"])
    files |= {f"deploy/base/{name}": _dump(objects) for name, objects in base.items()}
    files["deploy/base/kustomization.yaml"] = _kustomization(["../crd", *base])
    files["deploy/volcano/rbac.yaml"] = _dump(deploy.volcano_rights())
    files["deploy/volcano/kustomization.yaml"] = _kustomization(["rbac.yaml"])
    files["deploy/pod-reader/rbac.yaml"] = _dump(deploy.pod_reader())
    files["deploy/pod-reader/kustomization.yaml"] = _kustomization(["rbac.yaml"], namespace="default")
    return files | _monitoring_files()


def _monitoring_files() -> dict[str, str]:
    objects = monitoring.operator_objects()
    files = {f"deploy/prometheus/{name}": _dump([body]) for name, body in objects.items()}
    files["deploy/prometheus/kustomization.yaml"] = _kustomization([*objects])
    files["deploy/prometheus/alerts.yaml"] = _dump([monitoring.rule_groups()])
    boards = {f"deploy/grafana/{name}": json.dumps(body, indent=1) + "\n" for name, body in dashboards().items()}
    return files | boards


def _kustomization(resources: list[str], *, namespace: str = "") -> str:
    body: Object = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return _dump([{**body, **({"namespace": namespace} if namespace else {}), "resources": resources}])


def _dump(objects: Iterable[Object]) -> str:
    texts = (yaml.dump(body, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True) for body in objects)
    return _HEADER + "---\n".join(texts)
