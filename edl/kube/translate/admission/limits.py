"""LimitRanges and ResourceQuotas in saved files that a plan does not count, and what they may change.

The API server applies them. The controller learns from its answers; a plan from files cannot ask, so it names them.

Source: k8s.io/kubernetes plugin/pkg/admission/limitranger, and pkg/quota/v1/evaluator/core
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from edl.errors import ConfigError
from edl.kube.translate.admission.new_pods import NewPod, owners
from edl.kube.translate.admission.objects import LimitObject, LimitRangeObject, LimitRangeSpec
from edl.kube.translate.container_objects import ResourceAmounts
from edl.kube.translate.objects import ObjectMetadata, PodSpec, ResourceQuotaObject, ResourceQuotaSpec
from edl.kube.translate.quotas.scopes import counts, scoped
from edl.kube.translate.rules.terms import DEFAULT_NAMESPACE
from edl.kube.translate.scalars import text
from edl.model.quantity import parse_quantity
from edl.model.resources import CPU
from edl.model.units import listed

_CLAIMS, _STORAGE = "persistentvolumeclaims", "requests.storage"
_DEVICE_CLAIMS, _DEVICES = "resourceclaims.resource.k8s.io", "deviceclass.resource.k8s.io/devices"
_MUST_SPECIFY = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_BOUNDS = ("min", "max", "max_limit_request_ratio")


def unused_limit_ranges(sources: Iterable[LimitRangeObject], pods: Sequence[NewPod]) -> Iterator[str]:
    """Yield a line for each LimitRange that may change or refuse new pods.

    Args:
        sources: every LimitRange.
        pods: those that do not exist yet.
    """
    for source in sources:
        name, here = _place(source.metadata, pods)
        items = (source.spec or LimitRangeSpec()).limits or []
        given = {part: None for pod in here for item in items for part in _given(item, pod.spec)}
        bounds = list(dict.fromkeys(_bounds(items, here)))
        effects = [
            *((f"may give their containers {listed(given)}",) if given else ()),
            *((f"may refuse them by its {listed(bounds)}",) if bounds else ()),
        ]
        if here and effects:
            yield f"LimitRange {name} is not applied to {owners(here)}: it {' and '.join(effects)}"


def unused_quotas(sources: Iterable[ResourceQuotaObject], pods: Sequence[NewPod]) -> Iterator[str]:
    """Yield a line for each ResourceQuota, or the part of one, that a plan does not count for new pods.

    Args:
        sources: every ResourceQuota.
        pods: those that do not exist yet.
    """
    for source in sources:
        name, here = _place(source.metadata, pods)
        spec = source.spec or ResourceQuotaSpec()
        counted = [(pod, counts(spec, scoped(pod.spec, tuple(pod.priority_classes)))) for pod in here]
        partly = {(pod.kind, pod.name) for pod, is_counted in counted if not is_counted}
        here = [pod for pod, is_counted in counted if is_counted is not False]
        if uncounted := [pod for pod in here if (pod.kind, pod.name) in partly]:
            yield (
                f"ResourceQuota {name} is not counted, because its scopes ({', '.join(_scopes(spec))}) count only"
                f" some pods: the API server may refuse {owners(uncounted)} beyond it"
            )
        here = [pod for pod in here if (pod.kind, pod.name) not in partly]
        for claims, users in (
            (_of_volumes(spec.hard or {}), [pod for pod in here if _may_claim(pod)]),
            (_of_devices(spec.hard or {}), [pod for pod in here if pod.spec.resource_claims]),
        ):
            if claims and users:
                yield (
                    f"ResourceQuota {name}: {listed(claims)} {'is' if len(claims) == 1 else 'are'} not counted: the"
                    f" API server may refuse claims of {owners(users)} beyond it"
                )
        if lacking := [pod for pod in here if not _specifies(spec, pod.spec)]:
            required = [one for one in _MUST_SPECIFY if one in (spec.hard or {})]
            yield (
                f"ResourceQuota {name}: the API server refuses {owners(lacking)} unless a LimitRange gives each"
                f" container {listed(required)}; specify them in the job"
            )


def _place(found: ObjectMetadata | None, pods: Iterable[NewPod]) -> tuple[str, list[NewPod]]:
    metadata = found or ObjectMetadata()
    namespace = metadata.namespace or DEFAULT_NAMESPACE
    return f"{namespace}/{metadata.name}", [pod for pod in pods if pod.namespace == namespace]


def _given(item: LimitObject, spec: PodSpec) -> Iterator[str]:
    """Name what a LimitRange gives containers of a pod that lack it: its defaults, or else its bounds."""
    if item.type != "Container":
        return
    limits = {**(item.max or {}), **(item.default or {})}
    requests = {**(item.min or {}), **limits, **(item.default_request or {})}
    for part in _resources(spec):
        has = part.limits or {}
        yield from (f"a request of {one}" for one in requests if one not in {**has, **(part.requests or {})})
        yield from (f"a limit of {one}" for one in limits if one not in has)


def _bounds(items: Iterable[LimitObject], pods: Sequence[NewPod]) -> Iterator[str]:
    """The bounds of a LimitRange that some pod may break."""
    for item in items:
        if item.type == "PersistentVolumeClaim" and not any(map(_may_claim, pods)):
            continue
        for bound in _BOUNDS:
            for one, value in (getattr(item, bound) or {}).items():
                if not all(_keeps(item.type, bound, one, text(value), pod.spec) for pod in pods):
                    yield f"{'ratio' if bound == _BOUNDS[2] else bound} {one} of a {item.type}"


def _keeps(kind: str | None, bound: str, resource: str, value: str, spec: PodSpec) -> bool:
    """Return True if every container of a pod is certain to keep a bound, also as the only one of its pod."""
    parts = list(_resources(spec))
    is_read = kind == "Container" or (kind == "Pod" and len(parts) == 1)
    return is_read and all(_is_within(bound, resource, value, part) for part in parts)


def _is_within(bound: str, resource: str, value: str, part: ResourceAmounts) -> bool:
    limits = part.limits or {}
    requests = {**limits, **(part.requests or {})}
    with suppress(ConfigError, KeyError):
        request = parse_quantity(text(requests[resource]), resource)
        if bound == "min":
            return request >= parse_quantity(value, resource)
        limit = parse_quantity(text(limits[resource]), resource)
        if bound == "max":
            return limit <= parse_quantity(value, resource)
        return limit * 1000 <= parse_quantity(value, CPU) * request  # the ratio in thousandths
    return False


def _resources(spec: PodSpec) -> Iterator[ResourceAmounts]:
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        yield container.resources or ResourceAmounts()


def _may_claim(pod: NewPod) -> bool:
    volumes = pod.spec.volumes or ()
    return pod.may_get_claim or any(one.persistent_volume_claim or one.ephemeral for one in volumes)


def _of_volumes(hard: Mapping[str, object]) -> list[str]:
    names = (_CLAIMS, f"count/{_CLAIMS}", _STORAGE)
    return [one for one in hard if one in names or ".storageclass.storage.k8s.io/" in one]


def _of_devices(hard: Mapping[str, object]) -> list[str]:
    return [one for one in hard if one == f"count/{_DEVICE_CLAIMS}" or one.endswith(_DEVICES)]


def _specifies(spec: ResourceQuotaSpec, pod: PodSpec) -> bool:
    """True if each container of a pod has what the API server asks for where a quota limits it."""
    for name in (one for one in _MUST_SPECIFY if one in (spec.hard or {})):
        is_limit, resource = name.startswith("limits."), name.rpartition(".")[2]
        for part in _resources(pod):
            limits = part.limits or {}
            if resource not in (limits if is_limit else {**limits, **(part.requests or {})}):
                return False
    return True


def _scopes(spec: ResourceQuotaSpec) -> list[str]:
    expressions = (spec.scope_selector.match_expressions if spec.scope_selector else None) or ()
    of_expressions = (
        f"{one.scope_name} {one.operator} {', '.join(one.values or ())}".rstrip() for one in expressions
    )
    return [*(spec.scopes or ()), *of_expressions]
