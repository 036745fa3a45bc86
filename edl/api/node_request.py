"""The request pod: a pod without a node that shows an autoscaler which node a job asks for.

It has the labels and taints of the group, so that no other group can serve it, and requests what the pods that are
meant for the node request together. Its priority is that of trainers up to the minimum: serving preempts it, it
preempts nobody, and Cluster Autoscaler, which ignores pods below -10, sees it. It runs nothing but a pause.
"""

from __future__ import annotations

from edl.api.manifest import Object, owner_reference
from edl.api.pods import SAFE_TO_EVICT
from edl.api.priorities import PRIORITY_TRAINING
from edl.api.v1 import TrainingJob
from edl.model.actions import RequestNode
from edl.model.names import LABEL_NODE_GROUP, LABEL_REQUESTS_NODE
from edl.model.resources import CPU, PODS, is_amount

_PAUSE = ["sh", "-c", "while :; do sleep 3600; done"]


def node_request_manifest(job: TrainingJob, action: RequestNode) -> Object:
    """The request pod of an action."""
    requests = {
        name: f"{amount}m" if name == CPU else str(amount)
        for name, amount in action.request.amounts
        if name != PODS and is_amount(name)
    }
    limits = {name: amount for name, amount in requests.items() if "/" in name}  # devices have equal limits
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": action.pod_name,
            "namespace": job.metadata.namespace,
            "labels": {
                "app.kubernetes.io/name": "edl",
                "app.kubernetes.io/managed-by": "edl",
                LABEL_REQUESTS_NODE: job.metadata.name,
                LABEL_NODE_GROUP: action.group.name,
            },
            "annotations": {SAFE_TO_EVICT: "true"},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "priorityClassName": PRIORITY_TRAINING,
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": dict(action.group.labels),
            "tolerations": [
                {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
                for taint in action.group.taints
            ],
            "imagePullSecrets": [secret.model_dump(by_alias=True) for secret in job.spec.image_pull_secrets],
            "containers": [
                {
                    "name": "waits-for-node",
                    "image": job.spec.image,
                    "command": _PAUSE,
                    "resources": {"requests": requests, **({"limits": limits} if limits else {})},
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }
