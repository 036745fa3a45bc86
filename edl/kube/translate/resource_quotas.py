"""ResourceQuotas become `ResourceQuota` values: what a namespace may request, and what pods of no job request of it.

Only what limits the pods of TrainingJobs is read. A quota whose scopes leave out some of these pods is not read: the
API server then refuses pods beyond it, and edl goes by the refusal.

Source: https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf

from edl.api.priorities import BASIC_PRIORITY_CLASSES, PRIORITY_CLASSES
from edl.errors import ConfigError
from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.objects import ObjectMetadata, ResourceQuotaObject, ResourceQuotaSpec, ScopeObject
from edl.kube.translate.pods import DEFAULT_NAMESPACE
from edl.kube.translate.scalars import Scalar
from edl.kube.translate.shapes import parse_amounts
from edl.model.cluster import ResourceQuota
from edl.model.pods import Pod
from edl.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, POD_OBJECTS, PODS, Resources

LIMITS, REQUESTS = "limits.", "requests."
_STANDARD = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE, PODS})
_OF_EVERY_JOB = frozenset({"NotBestEffort", "NotTerminating"})


def read_quotas(
    sources: Iterable[ResourceQuotaObject],
    foreign: Mapping[str, Iterable[Pod]],
    own: Mapping[str, int],
    limits_of: Callable[[Pod], Resources],
    left_out: list[Quarantined],
    *,
    now_s: float,
) -> tuple[ResourceQuota, ...]:
    """Translate the quotas of the namespaces that have jobs.

    Args:
        sources: every ResourceQuota.
        foreign: the pods of no job that are not finished, by namespace; only namespaces with jobs.
        own: how many pods of jobs the API server may count in each of these namespaces, finished ones included.
        limits_of: the resource limits of such a pod.
        left_out: gets each quota that cannot be read.
        now_s: seconds since the epoch.
    """
    found = []
    for source in sources:
        metadata = source.metadata or ObjectMetadata()
        namespace, name = metadata.namespace or DEFAULT_NAMESPACE, metadata.name or ""
        spec = source.spec or ResourceQuotaSpec()
        if namespace not in foreign or not counts_every_job(spec):
            continue
        try:
            hard = _amounts(spec.hard)
            used = _amounts(source.status.used if source.status else None)
        except ConfigError as error:
            left_out.append(Quarantined("ResourceQuota", namespace, name, metadata.uid or "", str(error)))
            continue
        others: dict[str, int] = {}
        for pod in (one for one in foreign[namespace] if one.charged_until_s > now_s):
            limits = limits_of(pod) if any(resource.startswith(LIMITS) for resource in hard) else Resources()
            for resource in hard:
                is_limit = resource.startswith(LIMITS)
                amount = limits[resource.removeprefix(LIMITS)] if is_limit else pod.shape.request[resource]
                others[resource] = others.get(resource, 0) + amount
        if POD_OBJECTS in hard:
            # Finished pods of nobody are not listed: only the API server knows how many there are.
            unlisted = used.get(POD_OBJECTS, 0) - own.get(namespace, 0)
            others[POD_OBJECTS] = max(sum(1 for _ in foreign[namespace]), unlisted)
        kept = {resource: n for resource, n in used.items() if resource in hard}
        found.append(ResourceQuota(namespace, name, *(tuple(sorted(d.items())) for d in (hard, kept, others))))
    return tuple(sorted(found, key=lambda quota: (quota.namespace, quota.name)))


def charged_until_s(pods: Iterable[Pod], now_s: float) -> float:
    """When quotas cease to count the next of these pods, in seconds since the epoch; infinite if they cease for none.

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
        is_device = name.startswith((REQUESTS, LIMITS)) and "/" in plain
        if not (plain in _STANDARD or is_device or plain.startswith("hugepages-")):
            continue  # objects of other kinds, and storage
        amount = next(iter(parse_amounts({plain: quantity}).items()), None)
        if amount is not None:
            key = LIMITS + amount[0] if resource.startswith(LIMITS) else amount[0]
            found[key] = min(found.get(key, amount[1]), amount[1])
    return found


def counts_every_job(spec: ResourceQuotaSpec) -> bool:
    """True if the scopes of a quota include every pod of a TrainingJob."""
    expressions = (spec.scope_selector.match_expressions if spec.scope_selector else None) or ()
    return all(s in _OF_EVERY_JOB for s in spec.scopes or ()) and all(_includes_every_job(e) for e in expressions)


def _includes_every_job(expression: ScopeObject) -> bool:
    if expression.scope_name != "PriorityClass":
        return expression.scope_name in _OF_EVERY_JOB
    values = set(expression.values or ())
    return {
        # One that names no class of trainers without requests holds them back, too, and no other job is overlooked.
        "In": values.issuperset(BASIC_PRIORITY_CLASSES),
        "NotIn": values.isdisjoint(PRIORITY_CLASSES),
        "Exists": True,
    }.get(expression.operator or "", False)
