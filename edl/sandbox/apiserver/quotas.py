"""ResourceQuotas and LimitRanges: what pods of a namespace get by default, and what they may ask for.

Quotas count pods and other objects and add up what pods request; a quota with scopes is stored and not enforced.
`status.used` is brought up to date after each write in the namespace.

Source: k8s.io/kubernetes plugin/pkg/admission/limitranger, k8s.io/apiserver pkg/admission/plugin/resourcequota, and
pkg/quota/v1/evaluator/core, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.errors import forbidden
from edl.sandbox.apiserver.kinds.kind import Kind, Object, dig
from edl.sandbox.apiserver.kinds.pods import FINISHED, containers_of
from edl.sandbox.apiserver.schema.quantities import canonical, parse_quantity, total

QUOTAS, LIMITS = "resourcequotas", "limitranges"
_SIMPLE = ("configmaps", "persistentvolumeclaims", "pods", "resourcequotas", "secrets", "services")
_COMPUTE = ("cpu", "memory")
_FIRM = tuple(f"{prefix}{name}" for name in _COMPUTE for prefix in ("", "requests.", "limits."))
"""The resources that every container of a pod must request if a quota limits them."""
_ANNOTATION = "kubernetes.io/limit-ranger"


def apply_limit_defaults(cluster: Cluster, pod: Object) -> None:
    """Give the containers of a new pod what the LimitRanges of its namespace say, where they ask for nothing."""
    detail = []
    for item in _items(cluster, pod, "Container"):
        for _, container in containers_of(pod["spec"]):
            for field, source in (("requests", "defaultRequest"), ("limits", "default")):
                given = container.setdefault("resources", {}).get(field) or {}
                added = {name: text for name, text in (item.get(source) or {}).items() if name not in given}
                if added:
                    container["resources"][field] = {**given, **added}
                    names = ", ".join(sorted(added))
                    detail.append(f"{names} {field.removesuffix('s')} for container {container['name']}")
    if detail:
        annotations = pod["metadata"].get("annotations") or {}
        pod["metadata"]["annotations"] = {**annotations, _ANNOTATION: f"LimitRanger plugin set: {'; '.join(detail)}"}


def require_limits(cluster: Cluster, pod: Object) -> None:
    """Refuse a new pod that a LimitRange of its namespace forbids.

    Raises:
        ApiError: 403.
    """
    detail = [text for item in _items(cluster, pod, "Container", "Pod") for text in _broken(item, pod)]
    if detail:
        why = detail[0] if len(detail) == 1 else f"[{', '.join(detail)}]"
        raise forbidden("pods", "", pod["metadata"].get("name", ""), why)


def _items(cluster: Cluster, pod: Object, *types: str) -> Iterator[Object]:
    for _, entry in cluster.store.entries(LIMITS, pod["metadata"].get("namespace", "")):
        yield from (item for item in dig(entry.value, "spec", "limits", default=()) if item.get("type") in types)


def _broken(item: Object, pod: Object) -> Iterator[str]:
    kind = item["type"]
    if kind == "Container":
        asked = [container.get("resources", {}) for _, container in containers_of(pod["spec"])]
    else:
        asked = [{field: _sums(pod, field) for field in ("requests", "limits")}]
    for one in asked:
        requests, limits = one.get("requests") or {}, one.get("limits") or {}
        for name, text in (item.get("min") or {}).items():
            yield from _below(name, kind, text, requests.get(name), limits.get(name))
        for name, text in (item.get("max") or {}).items():
            yield from _above(name, kind, text, requests.get(name), limits.get(name))


def _below(name: str, kind: str, bound: str, request: str | None, limit: str | None) -> Iterator[str]:
    head = f"minimum {name} usage per {kind} is {bound}"
    if request is None:
        yield f"{head}.  No request is specified"
    elif parse_quantity(request) < parse_quantity(bound):
        yield f"{head}, but request is {request}"
    elif limit is not None and parse_quantity(limit) < parse_quantity(bound):
        yield f"{head}, but limit is {limit}"


def _above(name: str, kind: str, bound: str, request: str | None, limit: str | None) -> Iterator[str]:
    head = f"maximum {name} usage per {kind} is {bound}"
    if limit is None:
        yield f"{head}.  No limit is specified"
    elif parse_quantity(limit) > parse_quantity(bound):
        yield f"{head}, but limit is {limit}"
    elif request is not None and parse_quantity(request) > parse_quantity(bound):
        yield f"{head}, but request is {request}"


def _sums(pod: Object, field: str) -> dict[str, str]:
    """Add up, by resource, what the containers of a pod request; init containers run before the others."""
    texts: dict[str, list[str]] = {}
    for container in pod["spec"].get("containers", ()):
        for name, text in (dig(container, "resources", field, default={})).items():
            texts.setdefault(name, []).append(text)
    return {name: total(parts) for name, parts in texts.items()}


def usage_of(kind: Kind, value: Object) -> dict[str, str]:
    """How much an object counts towards quotas, by the names that a quota may limit."""
    used = {f"count/{kind.qualified}": "1"}
    if kind.group == "" and kind.plural in _SIMPLE:
        used[kind.plural] = "1"
    if kind.qualified == "persistentvolumeclaims":
        used["requests.storage"] = dig(value, "spec", "resources", "requests", "storage", default="0")
    if kind.qualified == "pods":
        if dig(value, "status", "phase") in FINISHED:
            return {"count/pods": "1"}
        requests, limits = _sums(value, "requests"), _sums(value, "limits")
        used |= {name: text for name, text in requests.items() if name in _COMPUTE}
        used |= {f"requests.{name}": text for name, text in requests.items()}
        used |= {f"limits.{name}": text for name, text in limits.items()}
    return used


def require_quota(cluster: Cluster, kind: Kind, value: Object, old: Object | None = None) -> None:
    """Refuse an object that a ResourceQuota of its namespace has no capacity for.

    Args:
        cluster: the objects.
        kind: the kind of the object.
        value: a new object, or the new state of one that counts already.
        old: the state that counts.

    Raises:
        ApiError: 403.
    """
    namespace, name = value["metadata"].get("namespace", ""), value["metadata"].get("name", "")
    for quota in _enforced(cluster, namespace):
        asked = _added(usage_of(kind, value), usage_of(kind, old) if old else {}, quota["spec"]["hard"])
        quota_name = quota["metadata"]["name"]
        if kind.qualified == "pods" and (missing := _missing(quota["spec"]["hard"], value)):
            raise forbidden("pods", "", name, f"failed quota: {quota_name}: must specify {missing}")
        if not asked:
            continue
        used = _used(cluster, namespace, asked)
        hard = quota["spec"]["hard"]
        over = [key for key in sorted(asked) if _sum(used[key], asked[key]) > parse_quantity(str(hard[key]))]
        if over:
            detail = ", ".join(
                f"{what}: {','.join(f'{key}={amounts[key]}' for key in over)}"
                for what, amounts in (("requested", asked), ("used", used), ("limited", hard))
            )
            raise forbidden(kind.plural, kind.group, name, f"exceeded quota: {quota_name}, {detail}")


def _added(usage: dict[str, str], before: dict[str, str], hard: Object) -> dict[str, str]:
    """How much more than before an object counts towards the limits of a quota; everything if it is new."""
    added = {key: text for key, text in usage.items() if key in hard}
    if not before:
        return added
    more = {key: parse_quantity(text) - parse_quantity(before.get(key, "0")) for key, text in added.items()}
    return {key: canonical(format(amount, "f")) for key, amount in more.items() if amount > 0}


def refresh_quotas(cluster: Cluster, namespace: str) -> None:
    """Bring the status of the quotas of a namespace up to date."""
    for key, entry in cluster.store.entries(QUOTAS, namespace):
        hard = dig(entry.value, "spec", "hard", default={})
        status = {"hard": hard, "used": _used(cluster, namespace, hard)}
        if entry.value.get("status") != status and not _is_scoped(entry.value):
            cluster.store.put(QUOTAS, key, {**entry.value, "status": status})


def _enforced(cluster: Cluster, namespace: str) -> list[Object]:
    found = (entry.value for _, entry in cluster.store.entries(QUOTAS, namespace))
    return [quota for quota in found if dig(quota, "spec", "hard") and not _is_scoped(quota)]


def _is_scoped(quota: Object) -> bool:
    return bool(dig(quota, "spec", "scopes") or dig(quota, "spec", "scopeSelector"))


def _missing(hard: Object, pod: Object) -> str:
    """The limited resources that a container does not ask for, with the names of these containers."""
    texts = []
    for key in sorted(key for key in hard if key in _FIRM):
        field = "limits" if key.startswith("limits.") else "requests"
        resource = key.rpartition(".")[2]
        names = [
            one["name"]
            for _, one in containers_of(pod["spec"])
            if resource not in (dig(one, "resources", field, default={}))
        ]
        if names:
            texts.append(f"{key} for: {','.join(sorted(names))}")
    return "; ".join(texts)


def _used(cluster: Cluster, namespace: str, keys: Iterable[str]) -> dict[str, str]:
    """Add up how much the objects of a namespace count towards some names of quotas."""
    wanted = list(keys)
    texts: dict[str, list[str]] = {key: [] for key in wanted}
    for kind in _counted(cluster, wanted):
        for _, entry in cluster.store.entries(kind.resource, namespace):
            for key, text in usage_of(kind, entry.value).items():
                if key in texts:
                    texts[key].append(text)
    return {key: total(parts) for key, parts in texts.items()}


def _counted(cluster: Cluster, keys: Sequence[str]) -> list[Kind]:
    """The kinds whose objects count towards some names."""
    names = {key.removeprefix("count/") for key in keys}
    if any(key.startswith(("requests.", "limits.")) or key in _COMPUTE for key in keys):
        names |= {"pods"}
    if "requests.storage" in keys:
        names |= {"persistentvolumeclaims"}
    return [kind for kind in cluster.registry if kind.qualified in names]


def _sum(*texts: str) -> Decimal:
    return sum((parse_quantity(text) for text in texts), Decimal(0))
