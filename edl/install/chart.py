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
from edl.install import objects, rights

Object = dict[str, Any]

FOLDER = "deploy/chart"
_REPLICAS, _LOG_LEVEL = 2, "debug"
_WRONG_NAMESPACE = (
    f'{{{{- if ne .Release.Namespace "{objects.NAMESPACE}" }}}}\n'
    f'{{{{- fail "edl runs in namespace {objects.NAMESPACE}: add --namespace {objects.NAMESPACE}" }}}}\n'
    "{{- end }}\n"
)
_FLAG_OF_TEXT = {"tenants": "tenants", "queues": "queues", "expectedNodes": "expect-nodes"}
"""A value that is the text of a file -> the flag that reads the file."""
_MORE_FLAGS = (
    "        - --log-level={{ .Values.logLevel }}\n"
    "{{- range .Values.flags }}\n"
    "        - {{ . | quote }}\n"
    "{{- end }}\n"
    + "".join(
        f"{{{{- if .Values.{value} }}}}\n        - --{flag}=/etc/edl/{flag}.yaml\n{{{{- end }}}}\n"
        for value, flag in _FLAG_OF_TEXT.items()
    )
)
_IF_FILES = f"{{{{- if or {' '.join(f'.Values.{value}' for value in _FLAG_OF_TEXT)} }}}}\n"
_FILES = (
    f"{_IF_FILES}apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: edl-files\n"
    f"  namespace: {objects.NAMESPACE}\ndata:\n"
    + "".join(
        f'  {flag}.yaml: {{{{ .Values.{value} | default "" | quote }}}}\n' for value, flag in _FLAG_OF_TEXT.items()
    )
    + "{{- end }}\n"
)
_FORMAT = "\\n".join(["%s"] * len(_FLAG_OF_TEXT))
_TEXTS = " ".join(f'(.Values.{value} | default "")' for value in _FLAG_OF_TEXT)
_CHECKSUM = f"""{_IF_FILES}      annotations:
        checksum/files: {{{{ printf "{_FORMAT}" {_TEXTS} | sha256sum | quote }}}}
{{{{- end }}}}
"""
"""An annotation that changes with the files, so that new pods start: the controller reads files only at its start."""
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
_RESOURCES = "        resources:\n" + "".join(
    f"          {kind}:\n" + "".join(f"            {name}: {amount}\n" for name, amount in amounts.items())
    for kind, amounts in objects.RESOURCES.items()
)
_MERGED_RESOURCES = (
    f"        resources: {{{{ mergeOverwrite (fromJson `{json.dumps(objects.RESOURCES)}`)"
    " (.Values.resources | default dict) | toJson }}\n"
)
"""An upgrade with --reuse-values from a chart without this value has none."""
_LAST_MOUNT = "        - name: tmp\n          mountPath: /tmp\n"
_LAST_VOLUME = "      - name: tmp\n        emptyDir:\n          sizeLimit: 64Mi\n"
VALUES: Object = {
    "image": objects.IMAGE,
    "replicas": _REPLICAS,
    "logLevel": _LOG_LEVEL,
    "flags": [],
    "resources": objects.RESOURCES,
    **dict.fromkeys(_FLAG_OF_TEXT, ""),
    "kueue": False,
    "kueueTrainingJobs": False,
}
_AMOUNTS: Object = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
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
        "resources": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"requests": _AMOUNTS, "limits": _AMOUNTS},
            "description": "Requests and limits of a controller; docs/operations.md says how much it needs.",
        },
        **{
            value: {
                "type": "string",
                "description": f"Text of the file of flag --{flag}; empty for none. Use --set-file {value}=FILE.",
            }
            for value, flag in _FLAG_OF_TEXT.items()
        },
        "kueue": {
            "type": "boolean",
            "description": "The rights to read the objects of Kueue, for jobs that it admits and edl sizes.",
        },
        "kueueTrainingJobs": {
            "type": "boolean",
            "description": (
                "The rights to make Workloads of Kueue for TrainingJobs, and for Jobs and PyTorchJobs that ask."
                " They need those of kueue too."
            ),
        },
    },
}


def chart_files(dump: Callable[[list[Object]], str], definitions: Mapping[str, str]) -> dict[str, str]:
    """The files of the chart: path below the root of the repository -> text.

    Args:
        dump: writes objects as YAML.
        definitions: name of a file -> a CRD as YAML.
    """
    deployment, service, budget, network = objects.workload()
    templates = {
        "priorityclasses.yaml": dump(objects.priority_classes()),
        "rbac.yaml": _WRONG_NAMESPACE + dump(rights.rights()),
        "rbac-kueue.yaml": "{{- if .Values.kueue }}\n" + dump(rights.kueue_rights()) + "{{- end }}\n",
        "rbac-kueue-trainingjobs.yaml": "{{- if .Values.kueueTrainingJobs }}\n"
        + dump(rights.kueue_trainingjob_rights())
        + "{{- end }}\n",
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
        (_RESOURCES, _MERGED_RESOURCES),
        (_POD_SPEC, _CHECKSUM + _POD_SPEC),
        (_LAST_MOUNT, _LAST_MOUNT + _MOUNT),
        (_LAST_VOLUME, _LAST_VOLUME + _VOLUME),
    ):
        if text.count(default) != 1:
            raise ValueError(f"the Deployment has no unique line {default.strip()!r} that the chart could change")
        text = text.replace(default, value)
    return text
