"""Translates ResourceQuotas into values: what a namespace may request, and what its pods of no job request.

Only what limits the pods of jobs is read. A quota whose scopes leave out some pods of a job, or may do so, does not
count for this job: the API server then refuses pods beyond it, and edl goes by the refusal.

Source: https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from math import inf

from edl.errors import ConfigError
from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.objects import ObjectMetadata, ResourceQuotaObject, ResourceQuotaSpec
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.kube.translate.quotas.scopes import ScopedPod, counts, has_scopes
from edl.kube.translate.scalars import Scalar
from edl.kube.translate.shapes import parse_amounts
from edl.model.cluster import ResourceQuota
from edl.model.names import JobKey
from edl.model.pods import Pod
from edl.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, POD_OBJECTS, PODS, Resources

LIMITS, REQUESTS = "limits.", "requests."
_STANDARD = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE, PODS})


@dataclass(frozen=True, slots=True)
class PodsOfNamespaces:
    """The pods that quotas may count; only namespaces with jobs.

    Attributes:
        others: the pods of no job that are not finished, by namespace.
        jobs: of each namespace, its jobs with what scopes ask of their pods; called only if a quota has scopes.
        scoped: what scopes ask of a pod of no job.
        limits_of: the resource limits of such a pod.
        count_owned: how many pods of jobs the API server may count in a namespace, finished ones included; without
            those of the given jobs.
    """

    others: Mapping[str, Iterable[Pod]]
    jobs: Callable[[str], Iterable[tuple[JobKey, Iterable[ScopedPod]]]]
    scoped: Callable[[Pod], ScopedPod]
    limits_of: Callable[[Pod], Resources]
    count_owned: Callable[[str, Container[JobKey]], int]


def read_quotas(
    sources: Iterable[ResourceQuotaObject], pods: PodsOfNamespaces, left_out: list[Quarantined], *, now_s: float
) -> tuple[ResourceQuota, ...]:
    """Translate the quotas of the namespaces that have jobs.

    Args:
        sources: every ResourceQuota.
        pods: the pods that they may count.
        left_out: gets each quota that cannot be read.
        now_s: seconds since the epoch.
    """
    found = []
    for source in sources:
        metadata = source.metadata or ObjectMetadata()
        namespace, name = metadata.namespace or DEFAULT_NAMESPACE, metadata.name or ""
        spec = source.spec or ResourceQuotaSpec()
        if namespace not in pods.others:
            continue
        is_counted = cache(partial(counts, spec))  # thousands of pods differ little in what scopes ask
        jobs = _jobs(spec, is_counted, pods, namespace)
        exempt = frozenset(key for key, is_limited in jobs.items() if not is_limited)
        if jobs and len(exempt) == len(jobs):
            continue
        try:
            hard = _amounts(spec.hard)
            used = _amounts(source.status.used if source.status else None)
        except ConfigError as error:
            left_out.append(Quarantined("ResourceQuota", namespace, name, metadata.uid or "", str(error)))
            continue
        counted = [
            pod for pod in pods.others[namespace] if not has_scopes(spec) or is_counted(pods.scoped(pod)) is not False
        ]
        others = _requested((pod for pod in counted if pod.charged_until_s > now_s), hard, pods.limits_of)
        if POD_OBJECTS in hard:
            # Finished pods of nobody are not listed: only the API server knows how many there are.
            others[POD_OBJECTS] = max(len(counted), used.get(POD_OBJECTS, 0) - pods.count_owned(namespace, exempt))
        kept = {resource: n for resource, n in used.items() if resource in hard}
        allowed, counted_last, of_others = (tuple(sorted(amounts.items())) for amounts in (hard, kept, others))
        found.append(ResourceQuota(namespace, name, allowed, counted_last, of_others, tuple(sorted(exempt))))
    return tuple(sorted(found, key=lambda quota: (quota.namespace, quota.name)))


def _jobs(
    spec: ResourceQuotaSpec, is_counted: Callable[[ScopedPod], bool | None], pods: PodsOfNamespaces, namespace: str
) -> dict[JobKey, bool]:
    """By job, whether a quota with scopes surely counts all its pods; empty for a quota that counts every pod."""
    if not has_scopes(spec):
        return {}
    return {key: all(map(is_counted, own)) for key, own in pods.jobs(namespace)}


def _requested(pods: Iterable[Pod], hard: Mapping[str, int], limits_of: Callable[[Pod], Resources]) -> dict[str, int]:
    """Add up what pods request of the resources that a quota limits."""
    found: dict[str, int] = {}
    has_limits = any(resource.startswith(LIMITS) for resource in hard)
    for pod in pods:
        limits = limits_of(pod) if has_limits else Resources()
        for resource in hard:
            is_limit = resource.startswith(LIMITS)
            amount = limits[resource.removeprefix(LIMITS)] if is_limit else pod.shape.request[resource]
            found[resource] = found.get(resource, 0) + amount
    return found


def charged_until_s(pods: Iterable[Pod], now_s: float) -> float:
    """When the first of these pods ceases to count towards quotas, in seconds since the epoch; infinite if none will.

    Args:
        pods: any.
        now_s: seconds since the epoch.
    """
    return min((pod.charged_until_s for pod in pods if pod.charged_until_s > now_s), default=inf)


def _amounts(quantities: Mapping[str, Scalar] | None) -> dict[str, int]:
    """The amounts that concern pods, by the names of `Resources`; of two names for one resource, the smaller amount.

    Raises:
        ConfigError: a quantity cannot be parsed.
    """
    found: dict[str, int] = {}
    for name, quantity in (quantities or {}).items():
        if name == POD_OBJECTS and quantity is not None:
            found[POD_OBJECTS] = parse_amounts({PODS: quantity})[PODS]
            continue
        resource = name.removeprefix(REQUESTS)
        plain = resource.removeprefix(LIMITS)
        is_device = name.startswith(REQUESTS) and "/" in resource
        if not (plain in _STANDARD or is_device or resource.startswith("hugepages-")):
            continue  # other kinds of objects, storage, and devices by a name that the API server does not count
        amount = next(iter(parse_amounts({plain: quantity}).items()), None)
        if amount is not None:
            key = LIMITS + amount[0] if resource.startswith(LIMITS) else amount[0]
            found[key] = min(found.get(key, amount[1]), amount[1])
    return found
