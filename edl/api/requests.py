"""What edl asked for when it made a pod, as a short text on the pod.

Admission may change the requests of a pod. Only with this text can edl tell such a pod from one that was made from an
older spec of its job.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

_DIGITS = 16


def requests_digest(spec: dict[str, Any]) -> str:
    """A digest of everything in a pod spec that a plan counts as requests.

    Args:
        spec: the pod spec, before trainers lend a part of their CPU.
    """
    containers = [
        [one.get("name"), one.get("restartPolicy"), one.get("resources")]
        for name in ("initContainers", "containers")
        for one in spec.get(name) or ()
    ]
    whole = [containers, spec.get("resources"), spec.get("overhead"), spec.get("runtimeClassName")]
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()[:_DIGITS]
