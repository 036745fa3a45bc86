"""What kube-scheduler says of a pod that it found no node for: whether the eviction of other pods could help.

For each node on which it looks for victims it says whether preemption could help there at all. It cannot where
something else than running pods keeps the pod away: a volume claim that does not exist or is not bound, a selector, a
taint, the zone of a volume. edl's evictions do not help there either. Where it may not preempt at all, the reasons
that it counts for the nodes say the same. Other schedulers have queues, and look at no node for a pod whose queue is
full.

Source: k8s.io/kubernetes/pkg/scheduler/framework/preemption, pkg/scheduler/framework, func FitError.Error, and the
plugins, where they return UnschedulableAndUnresolvable (v1.36.3).
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
_FOR_NODES = re.compile(
    r"0/([0-9]{1,9}) nodes are available: (.*?)\.(?: |$)(?=no new claims|still not|preemption|not found|$)"
)
_COUNTED = re.compile(r"([0-9]{1,9}) (.*)")
_WHOEVER_LEAVES = re.compile(
    r"cannot allocate all claims|node\(s\) (?:"
    r"didn't match (?:pod affinity rules|PersistentVolume's node affinity|Pod's node affinity/selector"
    r"|Pod's required features|scheduler-enforced node affinity|the requested node name"
    r"|pod topology spread constraints \(missing required label\))"
    r"|had (?:volume node affinity conflict|no available volume zone|unknown conditions|untolerated taint.*"
    r"|taints that the pod didn't tolerate)"
    r"|did(?:n't find available persistent volumes to bind| not have enough free storage)"
    r"|unavailable due to one or more pvc\(s\) bound to non-existent pv\(s\)"
    r"|didn't satisfy plugin\(s\) \[NodeAffinity\]|were unschedulable)"
)
"""kube-scheduler's messages about nodes that could not take the pod even without other pods."""
_OF_THE_POD = re.compile(
    r"pod has unbound immediate PersistentVolumeClaims|request .* device class .* does not exist"
    r"|persistentvolumeclaim .* (?:is being deleted|bound to non-existent persistentvolume .*)"
    r"|waiting for ephemeral volume controller to create the persistentvolumeclaim .*"
)
"""kube-scheduler's messages about pods for which it tries no node (PreFilter); preemption may be missing then."""
_OF_A_QUOTA = re.compile(
    r"Insufficient (?:non-preemptible )?quotas[, \[]|rejected in PreFilter because ElasticQuota \S+ is more than Max"
    r"|\S+ quota has reached the allowable limit of |Non-preemptible workload is over quota\."
)
"""What other schedulers say of a pod whose queue or quota is used up: no node is tried before some of that is left.

Source: koordinator v1.8, pkg/scheduler/plugins/elasticquota; kubernetes-sigs/scheduler-plugins v0.34,
pkg/capacityscheduling; KAI-Scheduler v0.13, pkg/scheduler/api/unschedule_info.go.
"""
_SKIPPED = "SchedulingSkipped"
"""The reason that YuniKorn gives for a pod whose queue is full."""
_LONGEST = 200


def _no_node_ever(message: str) -> str:
    """Say why no node can take a pod, if no eviction can change that on any node; else empty."""
    found = _FOR_NODES.match(message)
    if found is None:
        return ""
    if _OF_THE_POD.fullmatch(found[2]):
        return found[0]
    counted = [_COUNTED.fullmatch(reason) for reason in found[2].split(", ")]
    reasons = [(int(one[1]), one[2]) for one in counted if one is not None]
    if len(reasons) < len(counted) or not all(_WHOEVER_LEAVES.fullmatch(reason) for _, reason in reasons):
        return ""
    # One node may have several reasons.
    return found[0] if sum(number for number, _ in reasons) >= int(found[1]) > 0 else ""


def no_eviction_helps(scheduled: PodConditionObject | None) -> str:
    """Say what keeps a pod from every node if no eviction can change that; empty if one might.

    Args:
        scheduled: the condition PodScheduled.
    """
    if scheduled is None or scheduled.status != "False":
        return ""
    message = scheduled.message or ""
    if scheduled.reason == _SKIPPED:
        return f"its scheduler skips it: {_words(message) or _SKIPPED}"
    if scheduled.reason != "Unschedulable":
        return ""
    if claim := MISSING_CLAIM.search(message):
        return f"its PersistentVolumeClaim {printable(claim[1])} does not exist"
    return _words(_no_capacity_needed(message))


def _no_capacity_needed(message: str) -> str:
    """Read from a scheduler's message what keeps a pod from starting even if others end; empty if nothing does."""
    if _OF_A_QUOTA.search(message):
        return message.partition("preemption:")[0]
    found = _NOT_HELPFUL.search(message)
    if found is not None and int(found[1]) == int(found[2]):
        return message[: found.start()]
    return _no_node_ever(message)


def refusal_of(scheduled: PodConditionObject | None) -> str:
    """Return why kube-scheduler found no node for a pod, without what it says of preemption.

    Args:
        scheduled: the condition PodScheduled.
    """
    message = (scheduled.message if scheduled is not None else None) or "it gives no reason"
    return _words(message.partition("preemption:")[0])


def _words(why: str) -> str:
    why = why.strip().rstrip(",")
    for more in ("no new claims to deallocate", "still not schedulable"):
        why = why.removesuffix(more).strip().rstrip(",")
    return shortened(" ".join(printable(why).split()), _LONGEST)
