"""Pods: what the server fills in, what it refuses, and the row of `kubectl get pods`.

Source: k8s.io/kubernetes pkg/apis/core (defaults and validation) and pkg/printers/internalversion (columns), v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from edl.sandbox.apiserver.errors import FieldError, forbidden_field, invalid_value, not_supported, required
from edl.sandbox.apiserver.kinds.ages import age
from edl.sandbox.apiserver.kinds.kind import AGE, NAME, Column, Object, dig
from edl.sandbox.apiserver.kinds.names import label_problem
from edl.sandbox.apiserver.schema.quantities import parse_quantity

COLUMNS = (
    NAME,
    Column("Ready"),
    Column("Status"),
    Column("Restarts"),
    AGE,
    Column("IP", priority=1),
    Column("Node", priority=1),
    Column("Nominated Node", priority=1),
    Column("Readiness Gates", priority=1),
)
SELECTABLE = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
FINISHED = ("Succeeded", "Failed")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def fields_of(pod: Object) -> Mapping[str, str]:
    """The fields that a selector may name."""
    spec, status = pod.get("spec", {}), pod.get("status", {})
    return {
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.restartPolicy": spec.get("restartPolicy", ""),
        "spec.schedulerName": spec.get("schedulerName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "spec.hostNetwork": str(bool(spec.get("hostNetwork"))).lower(),
        "status.phase": status.get("phase", ""),
        "status.podIP": status.get("podIP", ""),
        "status.nominatedNodeName": status.get("nominatedNodeName", ""),
    }


def containers_of(spec: Object) -> Iterator[tuple[str, Object]]:
    """Every container of a pod's spec with its path below the spec."""
    for field in ("initContainers", "containers"):
        for place, container in enumerate(spec.get(field, ())):
            yield f"{field}[{place}]", container


def prepare(pod: Object, old: Object | None) -> None:
    """Fill in a pod; a new one is Pending."""
    default_spec(pod.setdefault("spec", {}))
    if old is None:
        pod["status"] = {"phase": "Pending", "qosClass": qos_class(pod["spec"])}


def default_spec(spec: Object) -> None:
    """Fill in the defaults of a pod's spec, also in a template."""
    for _, container in containers_of(spec):
        _default_container(container)
    for volume in spec.get("volumes", ()):
        _default_volume(volume)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]


def _default_container(container: Object) -> None:
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    resources = container.setdefault("resources", {})
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **resources.get("requests", {})}
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = str(container.get("image", ""))
    latest = image.endswith(":latest") or ":" not in image.rpartition("/")[2]
    container.setdefault("imagePullPolicy", "Always" if latest and "@" not in image else "IfNotPresent")
    for name in _PROBES:
        if probe := container.get(name):
            _default_probe(probe)
    for hook in ("postStart", "preStop"):
        if get := dig(container, "lifecycle", hook, "httpGet"):
            _default_http_get(get)
    for variable in container.get("env", ()):
        if reference := dig(variable, "valueFrom", "fieldRef"):
            reference.setdefault("apiVersion", "v1")


def _default_probe(probe: Object) -> None:
    for name, number in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        if not probe.get(name):
            probe[name] = number
    if get := probe.get("httpGet"):
        _default_http_get(get)
    if grpc := probe.get("grpc"):
        grpc.setdefault("service", "")


def _default_http_get(get: Object) -> None:
    get.setdefault("path", "/")
    get.setdefault("scheme", "HTTP")


def _default_volume(volume: Object) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        if source := volume.get(name):
            source.setdefault("defaultMode", 0o644)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    for source in dig(volume, "projected", "sources", default=()):
        if token := source.get("serviceAccountToken"):
            token.setdefault("expirationSeconds", 3600)


def qos_class(spec: Object) -> str:
    """Compute the QoS class of a pod: Guaranteed, Burstable or BestEffort."""
    guaranteed, any_set = True, False
    for _, container in containers_of(spec):
        resources = container.get("resources", {})
        requests, limits = resources.get("requests", {}), resources.get("limits", {})
        mine = {name for name in ("cpu", "memory") if name in requests or name in limits}
        any_set = any_set or bool(mine)
        if not all(name in limits and requests.get(name) == limits[name] for name in ("cpu", "memory")):
            guaranteed = False
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def rules(pod: Object, old: Object | None) -> Sequence[FieldError]:
    """Describe what is wrong with a pod."""
    if old is None:
        return list(spec_errors(pod.get("spec", {}), "spec"))
    return list(_update_errors(pod["spec"], old["spec"]))


def spec_errors(spec: Object, path: str) -> Iterator[FieldError]:
    """Describe what is wrong with a pod's spec at a path."""
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    seen: set[str] = set()
    volumes = {volume.get("name") for volume in spec.get("volumes", ())}
    for place, container in containers_of(spec):
        yield from _container_errors(container, f"{path}.{place}", seen, volumes)
    if (policy := spec.get("restartPolicy", "Always")) not in {"Always", "OnFailure", "Never"}:
        yield not_supported(f"{path}.restartPolicy", policy, ("Always", "OnFailure", "Never"))
    if (grace := spec.get("terminationGracePeriodSeconds", 0)) < 0:
        yield invalid_value(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")


def _container_errors(container: Object, path: str, seen: set[str], volumes: set[Any]) -> Iterator[FieldError]:
    name = container.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif problem := label_problem(name):
        yield invalid_value(f"{path}.name", name, problem)
    elif name in seen:
        yield FieldError(f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"')
    seen.add(name)
    if not container.get("image"):
        yield required(f"{path}.image")
    for place, mount in enumerate(container.get("volumeMounts", ())):
        if mount.get("name") not in volumes:
            detail = f'Not found: "{mount.get("name", "")}"'
            yield FieldError(f"{path}.volumeMounts[{place}].name", "FieldValueNotFound", detail)
    yield from _resource_errors(container.get("resources", {}), f"{path}.resources")


def _resource_errors(resources: Object, path: str) -> Iterator[FieldError]:
    limits = resources.get("limits", {})
    for name, text in resources.get("requests", {}).items():
        if _amount(text) < 0:
            yield invalid_value(f"{path}.requests[{name}]", text, "must be greater than or equal to 0")
        elif name in limits and _amount(text) > _amount(limits[name]):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            yield invalid_value(f"{path}.requests", text, detail)
    for name, text in limits.items():
        if _amount(text) < 0:
            yield invalid_value(f"{path}.limits[{name}]", text, "must be greater than or equal to 0")


def _amount(text: str) -> Decimal:
    return parse_quantity(str(text))


def _update_errors(new: Object, old: Object) -> Iterator[FieldError]:
    if _fixed_part(new) != _fixed_part(old):
        yield forbidden_field("spec", _IMMUTABLE)
        return
    kept = old.get("tolerations", [])
    if any(toleration not in new.get("tolerations", []) for toleration in kept):
        yield forbidden_field(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )


def _fixed_part(spec: Object) -> Object:
    fixed = {k: v for k, v in spec.items() if k not in {"activeDeadlineSeconds", "tolerations", "schedulingGates"}}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in c.items() if k != "image"} for c in fixed[field]]
    if spec.get("schedulingGates"):
        # While a pod is gated its node selection may still be narrowed.
        fixed.pop("nodeSelector", None)
        fixed.pop("affinity", None)
    return fixed


def row(pod: Object, now: datetime) -> Sequence[Any]:
    """The cells of `kubectl get pods -o wide`."""
    spec, status, metadata = pod.get("spec", {}), pod.get("status", {}), pod["metadata"]
    ready, total, reason, restarts = _summary(spec, status, now)
    if metadata.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in FINISHED:
            reason = "Terminating"
    return (
        metadata["name"],
        f"{ready}/{total}",
        reason,
        restarts,
        age(metadata.get("creationTimestamp"), now),
        dig(status, "podIPs", 0, "ip") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        _gates(spec, status),
    )


def _condition(status: Object, kind: str) -> Object:
    return next((one for one in status.get("conditions", ()) if one.get("type") == kind), {})


def _gates(spec: Object, status: Object) -> str:
    gates = [gate.get("conditionType", "") for gate in spec.get("readinessGates", ())]
    true = sum(_condition(status, gate).get("status") == "True" for gate in gates)
    return f"{true}/{len(gates)}" if gates else "<none>"


def _summary(spec: Object, status: Object, now: datetime) -> tuple[int, int, str, str]:
    """Summarise a pod: ready containers, all containers, the shown status, the restarts."""
    reason = status.get("reason") or status.get("phase", "")
    if _condition(status, "PodScheduled").get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    sidecars = {c["name"] for c in spec.get("initContainers", ()) if c.get("restartPolicy") == "Always"}
    total = len(spec.get("containers", ())) + len(sidecars)
    inits = status.get("initContainerStatuses", [])
    ready, init_reason = _init_state(inits, sidecars, len(spec.get("initContainers", ())))
    if init_reason and _condition(status, "Initialized").get("status") != "True":
        return ready, total, init_reason, _restarts(inits, now)
    mains = status.get("containerStatuses", [])
    ready += sum(bool(one.get("ready") and dig(one, "state", "running") is not None) for one in mains)
    counted = [one for one in inits if one.get("name") in sidecars] + mains
    return ready, total, _main_state(mains, status, reason), _restarts(counted, now)


def _init_state(inits: Sequence[Object], sidecars: set[str], total: int) -> tuple[int, str]:
    """Ready sidecars, and the status to show while the pod initializes; empty when it is initialized."""
    ready = 0
    for place, one in enumerate(inits):
        ended, waiting = dig(one, "state", "terminated"), dig(one, "state", "waiting", "reason", default="")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if one.get("name") in sidecars and one.get("started"):
            ready += bool(one.get("ready"))
            continue
        if ended is not None:
            return ready, f"Init:{_ending(ended)}"
        if waiting and waiting != "PodInitializing":
            return ready, f"Init:{waiting}"
        return ready, f"Init:{place}/{total}"
    return ready, ""


def _ending(ended: Object) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _main_state(mains: Sequence[Object], status: Object, reason: str) -> str:
    running, error = False, ""
    for one in reversed(mains):
        waiting, ended = dig(one, "state", "waiting", "reason"), dig(one, "state", "terminated")
        if waiting:
            reason = waiting
        elif ended is not None:
            reason = _ending(ended)
            error = reason if ended.get("exitCode", 0) else error
        elif one.get("ready") and dig(one, "state", "running") is not None:
            running = True
    if reason != "Completed":
        return reason
    if running and _condition(status, "Ready").get("status") == "True":
        return "Running"
    return error or ("NotReady" if running else reason)


def _restarts(statuses: Sequence[Object], now: datetime) -> str:
    count = sum(one.get("restartCount", 0) for one in statuses)
    ends = [dig(one, "lastState", "terminated", "finishedAt") for one in statuses]
    last = max((end for end in ends if end), default="")
    return f"{count} ({age(last, now)} ago)" if count and last else str(count)
