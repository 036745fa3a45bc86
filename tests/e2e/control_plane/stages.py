"""Writes the configuration that tells kwok how its kubelets behave.

kwok does nothing without stages, and with its own it deletes a pod the moment it is asked, which
would make every figure about shrinking fiction. The stages are the YAML files of `stages/`; this
module fills in how long they take. `pod-complete`, which ends every pod of a Job at once, is left
out on purpose.

kwok deletes a pod by its name, and not only the pod that it saw: a second deletion ends the pod of the same name
that a controller has created meanwhile, on a busy machine above all. So each pod is deleted by one stage, once: the
stage that ends a pod leaves the deletion to `pod-delete`, which passes over a pod that is being removed at once.

kwok counts a delay anew each time the pod changes. The delays are therefore bounded by the time
the wait began (the deletion, the binding, the start), which the API keeps in whole seconds: a pod
that changes while it waits is at most one second late.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

STAGES = Path(__file__).parent / "stages"

_DELETED_AT = ".metadata.deletionTimestamp | fromdateiso8601"
_GRACE = ".metadata.deletionGracePeriodSeconds // 0"
_ASKED_AT = f"(({_DELETED_AT}) - ({_GRACE}))"
_STOPPED_AT = "[.status.containerStatuses[]?.state.terminated.finishedAt // empty | fromdateiso8601] | max // 0"
_BOUND_AT = (
    '([.status.conditions[]? | select(.type == "PodScheduled" and .status == "True")][0]'
    ".lastTransitionTime // .metadata.creationTimestamp) | fromdateiso8601"
)
_STARTED_AT = "(.status.startTime // .metadata.creationTimestamp) | fromdateiso8601"


def kwok_config(*, pod_delete_s: float, pod_ready_s: float) -> str:
    """The text of kwok's configuration file.

    Args:
        pod_delete_s: from the deletion of a pod to its disappearance, whatever its grace period; the pod's annotation
            `edl.test/stop-s` overrides it.
        pod_ready_s: from the binding of a pod to Running and Ready; the pod's annotation
            `edl.test/start-s` overrides it.
    """
    deletion = _after(_annotated("stop-s", pod_delete_s), _ASKED_AT)
    ready = _after(_annotated("start-s", pod_ready_s), f"({_BOUND_AT})")
    ended = _after(_annotated("exit-after-s", 0), f"({_STARTED_AT})")
    delays = {
        "pod-delete": f'if ({_STOPPED_AT}) >= {_ASKED_AT} then "0ms" else {deletion} end',
        "pod-terminate": deletion,
        "pod-ready": ready,
        "pod-waiting": ready,
        "pod-exit": ended,
        "pod-crash": ended,
    }
    stages = [yaml.safe_load(path.read_text()) for path in sorted(STAGES.glob("*.yaml"))]
    for stage in stages:
        if jq := delays.get(stage["metadata"]["name"]):
            stage["spec"]["delay"] = {"durationFrom": {"expressionFrom": jq}}
    return yaml.safe_dump_all([_options(), *stages], sort_keys=False)


def _options() -> dict[str, Any]:
    """Every number is given: kwok reads what a file leaves out as 0, which starts no workers."""
    return {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "metadata": {"name": "kwok"},
        "options": {
            "podPlayStageParallelism": 16,
            "nodePlayStageParallelism": 16,
            "nodeLeaseParallelism": 16,
            "podsOnNodeSyncParallelism": 4,
            "enablePodsOnNodeSyncListPager": True,
        },
    }


def _annotated(name: str, default: float) -> str:
    return f'((.metadata.annotations["edl.test/{name}"] // "{default}") | tonumber)'


def _after(seconds: str, began: str) -> str:
    """A jq expression: `seconds` from now, yet no later than a second after `began` + `seconds`."""
    left = f"([$s, {began} + $s + 1 - now] | min)"
    return f'{seconds} as $s | ([{left}, 0] | max * 1000 | floor | tostring) + "ms"'
