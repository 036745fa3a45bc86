"""The Helm chart in `deploy/chart`, made from the same objects as the manifests.

A template is the text of an object in which the values of the chart stand in place of the defaults; with its default
values the chart renders the objects of `deploy/base`. The CRD is in `crds/`: Helm installs it once, and neither an
upgrade nor an uninstall touches it, because jobs end with it. The namespace is that of the release.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from edl import __version__
from edl.install import objects

Object = dict[str, Any]

FOLDER = "deploy/chart"
_REPLICAS, _LOG_LEVEL = 2, "debug"
_WRONG_NAMESPACE = (
    f'{{{{- if ne .Release.Namespace "{objects.NAMESPACE}" }}}}\n'
    f'{{{{- fail "edl runs in namespace {objects.NAMESPACE}: add --namespace {objects.NAMESPACE}" }}}}\n'
    "{{- end }}\n"
)
_MORE_FLAGS = (
    "        - --log-level={{ .Values.logLevel }}\n"
    "{{- range .Values.flags }}\n"
    "        - {{ . | quote }}\n"
    "{{- end }}\n"
)
VALUES: Object = {
    "image": objects.IMAGE,
    "replicas": _REPLICAS,
    "logLevel": _LOG_LEVEL,
    "flags": [],
}
_SCHEMA: Object = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "image": {
            "type": "string",
            "minLength": 1,
            "description": "The image of the controller and of the masters of jobs that start from now on.",
        },
        "replicas": {
            "type": "integer",
            "minimum": 1,
            "maximum": 5,
            "description": "One leads. With 1 there is no PodDisruptionBudget: it would forbid to drain its node.",
        },
        "logLevel": {"enum": ["debug", "info", "warning", "error"], "description": "Flag --log-level."},
        "flags": {
            "type": "array",
            "items": {"type": "string", "pattern": "^--[a-z][a-z-]*(=.*)?$"},
            "description": "More flags of `edl controller`, such as --serving-headroom=2.",
        },
    },
}


def chart_files(dump: Callable[[list[Object]], str], crd: str) -> dict[str, str]:
    """Path below the root of the repository -> text.

    Args:
        dump: writes objects as YAML.
        crd: the CRD as YAML.
    """
    deployment, service, budget, network = objects.workload()
    templates = {
        "priorityclasses.yaml": dump(objects.priority_classes()),
        "rbac.yaml": _WRONG_NAMESPACE + dump(objects.rights()),
        "admission.yaml": dump(objects.admission()),
        "deployment.yaml": _with_values(dump([deployment])),
        "service.yaml": dump([service, network]),
        "disruptionbudget.yaml": "{{- if gt (int .Values.replicas) 1 }}\n" + dump([budget]) + "{{- end }}\n",
    }
    about = {
        "apiVersion": "v2",
        "name": "edl",
        "description": "Elastic deep learning on Kubernetes: the controller of TrainingJobs.",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": ">=1.30.0-0",
    }
    files = {f"templates/{name}": text for name, text in templates.items()}
    files |= {"Chart.yaml": dump([about]), "values.yaml": dump([VALUES]), "crds/trainingjobs.yaml": crd}
    files["values.schema.json"] = json.dumps(_SCHEMA, indent=1) + "\n"
    return {f"{FOLDER}/{name}": text for name, text in files.items()}


def _with_values(text: str) -> str:
    """The text of the Deployment with the values of the chart in it.

    Raises:
        ValueError: the text has changed, so that a value would have no effect.
    """
    for default, value in (
        (f"  replicas: {_REPLICAS}\n", "  replicas: {{ .Values.replicas }}\n"),
        (f"image: {objects.IMAGE}\n", "image: {{ .Values.image | quote }}\n"),
        (f"value: {objects.IMAGE}\n", "value: {{ .Values.image | quote }}\n"),
        (f"        - --log-level={_LOG_LEVEL}\n", _MORE_FLAGS),
    ):
        if text.count(default) != 1:
            raise ValueError(f"the Deployment has no unique line {default.strip()!r} that the chart could change")
        text = text.replace(default, value)
    return text
