"""What kube-scheduler says of a pod that it found no node for: whether the eviction of other pods could help.

For each node on which it looks for victims it says whether preemption could help there at all. It cannot where
something else than running pods keeps the pod away: a volume claim that does not exist or is not bound, a selector, a
taint, the zone of a volume. edl's evictions do not help there either.

Source: k8s.io/kubernetes/pkg/scheduler/framework/preemption; the plugins VolumeBinding and NodeAffinity.
"""

from __future__ import annotations

import re

from edl.kube.translate.objects import PodConditionObject
from edl.printable import printable, shortened

MISSING_CLAIM = re.compile(r'persistentvolumeclaim "([^"]{1,253})" not found')
"""What kube-scheduler says of a pod without its claim (plugin VolumeBinding)."""
_NOT_HELPFUL = re.compile(
    r"preemption: 0/([0-9]{1,9}) nodes are available: ([0-9]{1,9}) Preemption is not helpful for scheduling\.?\s*$"
)
_LONGEST = 200


def no_eviction_helps(scheduled: PodConditionObject | None) -> str:
    """Return what keeps a pod from every node, if no eviction changes that; empty if one may, or nobody knows.

    Args:
        scheduled: the condition PodScheduled.
    """
    if scheduled is None or scheduled.status != "False" or scheduled.reason != "Unschedulable":
        return ""
    message = scheduled.message or ""
    if claim := MISSING_CLAIM.search(message):
        return f"its PersistentVolumeClaim {printable(claim[1])} does not exist"
    found = _NOT_HELPFUL.search(message)
    if found is None or int(found[1]) != int(found[2]):
        return ""
    why = message[: found.start()].strip().rstrip(",").removesuffix("no new claims to deallocate").strip()
    return shortened(" ".join(printable(why).split()), _LONGEST)
