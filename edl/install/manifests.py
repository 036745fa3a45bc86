"""The text of the generated files in `crds/` and `deploy/`: the CRD, Kustomize bases, alerts and dashboards.

The objects come from `edl.api` and from the other modules of this package; this module writes them as text. Equal
objects give equal text, so a test can compare the files in the repository with what would be generated now.
`python -m edl.install.reference` writes the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import yaml

from edl.api.crd import render_crd, render_queue_crd
from edl.install import objects as install_objects
from edl.install import rights
from edl.install.alerts import rule_groups
from edl.install.chart import chart_files
from edl.install.dashboards import dashboards
from edl.install.job_network import job_network
from edl.install.operator_objects import operator_objects

CRD_FILE = "crds/paddlepaddle.org_trainingjobs.yaml"
QUEUE_CRD_FILE = "crds/paddlepaddle.org_queues.yaml"
ALL_IN_ONE = "deploy/edl_controller.yaml"

_HEADER = "# Generated from the models in edl/api by `make generate`; changes here are lost.\n"

Object = dict[str, Any]


def _in_full(_dumper: yaml.SafeDumper, _data: object) -> bool:
    """Let YAML repeat equal objects instead of using anchors, which some tools do not expect in a manifest."""
    return True


# With libyaml, if PyYAML was built with it: the same text in a tenth of the time.
_Dumper: type[yaml.SafeDumper] = type(
    "_Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {"ignore_aliases": _in_full}
)


def crd_yaml() -> str:
    """The CustomResourceDefinition of TrainingJob as a YAML file."""
    return _dump([render_crd()])


def queue_crd_yaml() -> str:
    """The CustomResourceDefinition of Queue as a YAML file."""
    return _dump([render_queue_crd()])


def crds_yaml() -> str:
    """The definitions of TrainingJob and Queue, as one YAML file."""
    return _dump([render_crd(), render_queue_crd()])


def manifests_yaml() -> str:
    """All objects that install the controller, as one YAML file."""
    return _dump(controller_manifests())


def controller_manifests() -> list[Object]:
    """All objects that install the controller, in an order in which they can be created."""
    return [
        *install_objects.namespace(),
        render_crd(),
        render_queue_crd(),
        *install_objects.priority_classes(),
        *rights.rights(),
        *install_objects.admission(),
        *install_objects.workload(),
    ]


def generated_files() -> dict[str, str]:
    """Every generated file: path below the root of the repository -> text."""
    base = {
        "namespace.yaml": install_objects.namespace(),
        "priorityclasses.yaml": install_objects.priority_classes(),
        "rbac.yaml": rights.rights(),
        "admission.yaml": install_objects.admission(),
        "controller.yaml": install_objects.workload(),
    }
    definitions = {"trainingjobs.yaml": crd_yaml(), "queues.yaml": queue_crd_yaml()}
    files = {CRD_FILE: crd_yaml(), QUEUE_CRD_FILE: queue_crd_yaml(), ALL_IN_ONE: manifests_yaml()}
    files |= {f"deploy/crd/{name}": text for name, text in definitions.items()}
    files["deploy/crd/kustomization.yaml"] = _kustomization([*definitions])
    files |= {f"deploy/base/{name}": _dump(objects) for name, objects in base.items()}
    files["deploy/base/kustomization.yaml"] = _kustomization(["../crd", *base])
    files["deploy/volcano/rbac.yaml"] = _dump(rights.volcano_rights())
    files["deploy/volcano/kustomization.yaml"] = _kustomization(["rbac.yaml"])
    files["deploy/kuberay/rbac.yaml"] = _dump(rights.ray_rights())
    files["deploy/kuberay/kustomization.yaml"] = _kustomization(["rbac.yaml"])
    files["deploy/lws/rbac.yaml"] = _dump(rights.leader_worker_set_rights())
    files["deploy/lws/kustomization.yaml"] = _kustomization(["rbac.yaml"])
    files["deploy/kueue/rbac.yaml"] = _dump(rights.kueue_rights())
    files["deploy/kueue/kustomization.yaml"] = _kustomization(["rbac.yaml"])
    files["deploy/kueue-trainingjobs/rbac.yaml"] = _dump(rights.kueue_trainingjob_rights())
    files["deploy/kueue-trainingjobs/kustomization.yaml"] = _kustomization(["../kueue", "rbac.yaml"])
    files["deploy/kubeflow/rbac.yaml"] = _dump(rights.kubeflow_rights())
    files["deploy/kubeflow/kustomization.yaml"] = _kustomization(["rbac.yaml"])
    files["deploy/shadow/rbac.yaml"] = _dump(rights.shadow_account())
    files["deploy/shadow/kustomization.yaml"] = _kustomization(["rbac.yaml"], namespace="default")
    files["deploy/pod-reader/rbac.yaml"] = _dump(rights.pod_reader())
    files["deploy/pod-reader/kustomization.yaml"] = _kustomization(["rbac.yaml"], namespace="default")
    files["deploy/job-network/policies.yaml"] = _dump(job_network())
    files["deploy/job-network/kustomization.yaml"] = _kustomization(["policies.yaml"])
    return files | _monitoring_files() | chart_files(_dump, definitions)


def _monitoring_files() -> dict[str, str]:
    objects = operator_objects()
    files = {f"deploy/prometheus/{name}": _dump([body]) for name, body in objects.items()}
    files["deploy/prometheus/kustomization.yaml"] = _kustomization([*objects])
    files["deploy/prometheus/alerts.yaml"] = _dump([rule_groups()])
    boards = {f"deploy/grafana/{name}": json.dumps(body, indent=1) + "\n" for name, body in dashboards().items()}
    return files | boards


def _kustomization(resources: list[str], *, namespace: str = "") -> str:
    body: Object = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return _dump([{**body, **({"namespace": namespace} if namespace else {}), "resources": resources}])


def _dump(objects: Iterable[Object]) -> str:
    texts = (yaml.dump(body, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True) for body in objects)
    return _HEADER + "---\n".join(texts)
