"""The Helm chart in `deploy/chart`, made from the same objects as the manifests.

A template is the text of an object in which the values of the chart stand in place of the defaults; with its default
values the chart renders the objects of `deploy/base`. The CRD is in `crds/`: Helm installs it once, and neither an
upgrade nor an uninstall touches it, because jobs end with it. The namespace is that of the release.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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
    "{{- if .Values.tenants }}\n"
    "        - --tenants=/etc/edl/tenants.yaml\n"
    "{{- end }}\n"
    "{{- if .Values.queues }}\n"
    "        - --queues=/etc/edl/queues.yaml\n"
    "{{- end }}\n"
)
_IF_FILES = "{{- if or .Values.tenants .Values.queues }}\n"
_FILES = f"""{_IF_FILES}apiVersion: v1
kind: ConfigMap
metadata:
  name: edl-files
  namespace: {objects.NAMESPACE}
data:
  tenants.yaml: {{{{ .Values.tenants | default "" | quote }}}}
  queues.yaml: {{{{ .Values.queues | default "" | quote }}}}
{{{{- end }}}}
"""
_CHECKSUM = f"""{_IF_FILES}      annotations:
        checksum/files: {{{{ printf "%s\\n%s" .Values.tenants .Values.queues | sha256sum | quote }}}}
{{{{- end }}}}
"""
"""A change of a file starts new pods: the controller reads --tenants only at its start."""
_MOUNT = f"""{_IF_FILES}        - name: files
          mountPath: /etc/edl
          readOnly: true
{{{{- end }}}}
"""
_VOLUME = f"""{_IF_FILES}      - name: files
        configMap:
          name: edl-files
{{{{- end }}}}
"""
_POD_SPEC = f"    spec:\n      serviceAccountName: {objects.CONTROLLER}\n"
_LAST_MOUNT = "        - name: tmp\n          mountPath: /tmp\n"
_LAST_VOLUME = "      - name: tmp\n        emptyDir:\n          sizeLimit: 64Mi\n"
VALUES: Object = {
    "image": objects.IMAGE,
    "replicas": _REPLICAS,
    "logLevel": _LOG_LEVEL,
    "flags": [],
    "tenants": "",
    "queues": "",
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
        "tenants": {
            "type": "string",
            "description": "Text of the file of flag --tenants; empty for none. Use --set-file tenants=FILE.",
        },
        "queues": {
            "type": "string",
            "description": "Text of the file of flag --queues; empty for none. Use --set-file queues=FILE.",
        },
    },
}


def chart_files(dump: Callable[[list[Object]], str], definitions: Mapping[str, str]) -> dict[str, str]:
    """Path below the root of the repository -> text.

    Args:
        dump: writes objects as YAML.
        definitions: name of a file -> a CRD as YAML.
    """
    deployment, service, budget, network = objects.workload()
    templates = {
        "priorityclasses.yaml": dump(objects.priority_classes()),
        "rbac.yaml": _WRONG_NAMESPACE + dump(objects.rights()),
        "admission.yaml": dump(objects.admission()),
        "files.yaml": _FILES,
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
    files |= {"Chart.yaml": dump([about]), "values.yaml": dump([VALUES])}
    files |= {f"crds/{name}": text for name, text in definitions.items()}
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
        (_POD_SPEC, _CHECKSUM + _POD_SPEC),
        (_LAST_MOUNT, _LAST_MOUNT + _MOUNT),
        (_LAST_VOLUME, _LAST_VOLUME + _VOLUME),
    ):
        if text.count(default) != 1:
            raise ValueError(f"the Deployment has no unique line {default.strip()!r} that the chart could change")
        text = text.replace(default, value)
    return text
