"""The alerts and the scraping of edl as objects of Prometheus Operator."""

from __future__ import annotations

from edl.install.alerts import rule_groups
from edl.install.objects import COMPONENT_LABELS, CONTROLLER, NAMESPACE, Object
from edl.model.names import LABEL_JOB, LABEL_ROLE, Role


def operator_objects() -> dict[str, Object]:
    """The objects of the Prometheus Operator (what to scrape, and the alerts): file name -> object.

    The controller labels its series with the namespace and the name of a job; `honorLabels` keeps those labels
    instead of the ones that Prometheus adds.
    """
    return {
        "servicemonitor.yaml": _operator_object(
            "ServiceMonitor",
            CONTROLLER,
            {
                "selector": {"matchLabels": COMPONENT_LABELS},
                "endpoints": [{"port": "http", "interval": "15s", "honorLabels": True}],
            },
        ),
        "podmonitor.yaml": _operator_object(
            "PodMonitor",
            "edl-masters",
            {
                "selector": {"matchLabels": {LABEL_ROLE: Role.MASTER.value}},
                "namespaceSelector": {"any": True},
                "podMetricsEndpoints": [
                    {
                        "port": "master-port",
                        "interval": "15s",
                        "relabelings": [{"sourceLabels": [_pod_label(LABEL_JOB)], "targetLabel": "job"}],
                    }
                ],
            },
        ),
        "prometheusrule.yaml": _operator_object("PrometheusRule", "edl", rule_groups()),
    }


def _operator_object(kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": COMPONENT_LABELS},
        "spec": spec,
    }


def _pod_label(label: str) -> str:
    """The name of a pod label during relabeling in Prometheus."""
    return "__meta_kubernetes_pod_label_" + "".join(c if c.isalnum() else "_" for c in label)
