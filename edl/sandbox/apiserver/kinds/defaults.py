"""What the server fills in for the built-in kinds, and the rules that it checks; pods have a module of their own.

Source: pkg/apis/*/v1/defaults.go and the strategies of pkg/registry, v1.36.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence

from edl.sandbox.apiserver.errors import FieldError, forbidden_field, invalid_value, not_supported, required
from edl.sandbox.apiserver.kinds.kind import Object, dig
from edl.sandbox.apiserver.kinds.pods import default_spec, spec_errors
from edl.sandbox.apiserver.storage.selectors import LabelSelector


def deployment(value: Object, old: Object | None) -> None:
    """Fill in the defaults of a Deployment."""
    spec = _with_template(value)
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    _fresh_status(value, old, {})


def replica_set(value: Object, old: Object | None) -> None:
    """Fill in the defaults of a ReplicaSet."""
    spec = _with_template(value)
    spec.setdefault("replicas", 1)
    _fresh_status(value, old, {"replicas": 0})


def daemon_set(value: Object, old: Object | None) -> None:
    """Fill in the defaults of a DaemonSet."""
    spec = _with_template(value)
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {"maxUnavailable": 1, "maxSurge": 0})
    spec.setdefault("revisionHistoryLimit", 10)
    counts = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
    _fresh_status(value, old, dict.fromkeys(counts, 0))


def job(value: Object, old: Object | None) -> None:
    """Fill in the defaults of a batch/v1 Job."""
    spec = _with_template(value)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
    if old is None and not spec.get("manualSelector"):
        uid = value["metadata"]["uid"]
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
        for prefix in ("", "batch.kubernetes.io/"):
            labels[f"{prefix}controller-uid"] = uid
            labels[f"{prefix}job-name"] = value["metadata"].get("name", "")
    _fresh_status(value, old, {})


def _with_template(value: Object) -> Object:
    spec: Object = value.setdefault("spec", {})
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    if "spec" in template:
        default_spec(template["spec"])
    return spec


def _fresh_status(value: Object, old: Object | None, status: Object) -> None:
    if old is None:
        value["status"] = status


def template_rules(value: Object, old: Object | None) -> Sequence[FieldError]:
    """Describe what is wrong with a kind that makes pods of a template."""
    return list(_template_errors(value, old))


def _template_errors(value: Object, old: Object | None) -> Iterator[FieldError]:
    spec = value["spec"]
    labels = dig(spec, "template", "metadata", "labels", default={})
    selector = spec.get("selector")
    if not selector:
        yield required("spec.selector")
    elif old is not None and selector != dig(old, "spec", "selector"):
        yield FieldError("spec.selector", "FieldValueInvalid", "Invalid value: field is immutable")
    elif any(labels.get(key) != text for key, text in selector.get("matchLabels", {}).items()):
        why = "`selector` does not match template `labels`"
        shown = ", ".join(f'"{key}":"{text}"' for key, text in sorted(labels.items()))
        yield FieldError("spec.template.metadata.labels", "FieldValueInvalid", f"Invalid value: {{{shown}}}: {why}")
    yield from spec_errors(dig(spec, "template", "spec", default={}), "spec.template.spec")
    for field in ("replicas", "parallelism", "completions"):
        if spec.get(field, 0) < 0:
            yield invalid_value(f"spec.{field}", spec[field], "must be greater than or equal to 0")


def namespace(value: Object, old: Object | None) -> None:
    """Fill in the defaults of a Namespace; the label with its name is what selectors of namespaces rely on."""
    value["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = value["metadata"].get("name", "")
    if old is None:
        value["spec"] = {"finalizers": ["kubernetes"]}
        value["status"] = {"phase": "Active"}


def node(value: Object, old: Object | None) -> None:
    """Fill in the defaults of a Node; what it can hold is what it has, unless its kubelet says otherwise."""
    value.setdefault("spec", {})
    if old is None and "capacity" in value.setdefault("status", {}):
        value["status"].setdefault("allocatable", dict(value["status"]["capacity"]))


def service(value: Object, old: Object | None) -> None:
    """Fill in the defaults of a Service, without the address that admission gives it."""
    spec = value.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    if spec["type"] in {"NodePort", "LoadBalancer"}:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    for field in ("clusterIP", "clusterIPs"):
        if old is not None and field not in spec and field in old["spec"]:
            spec[field] = old["spec"][field]
    _fresh_status(value, old, {"loadBalancer": {}})


def service_rules(value: Object, old: Object | None) -> Sequence[FieldError]:
    """Describe what is wrong with a Service."""
    errors: list[FieldError] = []
    spec = value["spec"]
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
        errors.append(required("spec.ports"))
    for place, port in enumerate(spec.get("ports", ())):
        if not 1 <= port.get("port", 0) <= 65535:
            why = "must be between 1 and 65535, inclusive"
            errors.append(invalid_value(f"spec.ports[{place}].port", port.get("port", 0), why))
        if len(spec["ports"]) > 1 and not port.get("name"):
            errors.append(required(f"spec.ports[{place}].name"))
    if (kind := spec["type"]) not in {"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}:
        errors.append(not_supported("spec.type", kind, ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")))
    if old is not None and spec.get("clusterIP") != old["spec"].get("clusterIP") and old["spec"].get("clusterIP"):
        why = "may not change once set"
        errors.append(
            FieldError("spec.clusterIPs[0]", "FieldValueInvalid", f"Invalid value: {[spec.get('clusterIP')]}: {why}")
        )
    return errors


def secret(value: Object, _old: Object | None) -> None:
    """Fill in the defaults of a Secret: `stringData` is only for writing."""
    value.setdefault("type", "Opaque")
    texts = value.pop("stringData", None)
    if texts:
        encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
        value["data"] = {**value.get("data", {}), **encoded}


def secret_rules(value: Object, old: Object | None) -> Sequence[FieldError]:
    """Describe what is wrong with a Secret."""
    errors = [
        FieldError(f"data[{key}]", "FieldValueInvalid", 'Invalid value: "<secret contents redacted>": not base64')
        for key, text in value.get("data", {}).items()
        if not _is_base64(text)
    ]
    if old is not None and value.get("type") != old.get("type"):
        errors.append(invalid_value("type", value.get("type"), "field is immutable"))
    return errors + list(immutable_data(value, old))


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def immutable_data(value: Object, old: Object | None) -> Sequence[FieldError]:
    """The rule for Secrets and ConfigMaps with `immutable: true`."""
    if old is None or not old.get("immutable"):
        return ()
    fields = [field for field in ("data", "binaryData") if value.get(field) != old.get(field)]
    errors = [forbidden_field(field, "field is immutable when `immutable` is set") for field in fields]
    if not value.get("immutable"):
        errors.insert(0, forbidden_field("immutable", "field is immutable when `immutable` is set"))
    return errors


def claim(value: Object, old: Object | None) -> None:
    """Fill in the defaults of a PersistentVolumeClaim."""
    value.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    _fresh_status(value, old, {"phase": "Pending"})


def claim_rules(value: Object, old: Object | None) -> Sequence[FieldError]:
    """Describe what is wrong with a PersistentVolumeClaim."""
    spec = value["spec"]
    errors = []
    if not spec.get("accessModes"):
        errors.append(required("spec.accessModes", "at least 1 access mode is required"))
    if not dig(spec, "resources", "requests", "storage"):
        errors.append(required("spec.resources[storage]"))
    if old is not None:
        fixed = [
            {k: v for k, v in one["spec"].items() if k not in {"resources", "volumeName"}} for one in (value, old)
        ]
        if fixed[0] != fixed[1]:
            errors.append(
                forbidden_field(
                    "spec",
                    "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
                    "bound claims",
                )
            )
    return errors


def volume(value: Object, old: Object | None) -> None:
    """Fill in the defaults of a PersistentVolume."""
    spec = value.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    _fresh_status(value, old, {"phase": "Pending"})


def storage_class(value: Object, _old: Object | None) -> None:
    """Fill in the defaults of a StorageClass."""
    value.setdefault("reclaimPolicy", "Delete")
    value.setdefault("volumeBindingMode", "Immediate")


def priority_class(value: Object, _old: Object | None) -> None:
    """Fill in the defaults of a PriorityClass."""
    value.setdefault("value", 0)
    value.setdefault("preemptionPolicy", "PreemptLowerPriority")


_MAX_PRIORITY = 1_000_000_000


def priority_class_rules(value: Object, old: Object | None) -> Sequence[FieldError]:
    """Describe what is wrong with a PriorityClass."""
    if old is not None:
        return [
            forbidden_field(field, "may not be changed in an update.")
            for field in ("value", "preemptionPolicy")
            if value.get(field) != old.get(field)
        ]
    if value["value"] > _MAX_PRIORITY and not value["metadata"]["name"].startswith("system-"):
        why = f"maximum allowed value of a user defined priority is {_MAX_PRIORITY}"
        return [forbidden_field("value", why)]
    return []


def emptied_status(value: Object, old: Object | None) -> None:
    """Empty the status of a new object: whoever creates it may not set it."""
    _fresh_status(value, old, {})


def limit_range(value: Object, old: Object | None) -> None:
    """Fill in the defaults of a LimitRange: what it does not say of containers follows from what it says."""
    del old
    for item in dig(value, "spec", "limits", default=()):
        if item.get("type") == "Container":
            limits = {**(item.get("max") or {}), **(item.get("default") or {})}
            requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
            item.update({name: given for name, given in (("default", limits), ("defaultRequest", requests)) if given})


def budget(value: Object, old: Object | None) -> None:
    """Fill in the defaults of a PodDisruptionBudget."""
    counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    _fresh_status(value, old, dict.fromkeys(counts, 0))


def role_binding(value: Object, _old: Object | None) -> None:
    """Fill in the defaults of a RoleBinding or ClusterRoleBinding."""
    for subject in value.get("subjects", ()):
        if subject.get("kind") in {"User", "Group"}:
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")
    if role := value.get("roleRef"):
        role.setdefault("apiGroup", "rbac.authorization.k8s.io")


def role_binding_rules(value: Object, old: Object | None) -> Sequence[FieldError]:
    """Describe what is wrong with a binding of a role."""
    if old is not None and value.get("roleRef") != old.get("roleRef"):
        return [FieldError("roleRef", "FieldValueInvalid", "Invalid value: cannot change roleRef")]
    return []


def event_rules(value: Object, old: Object | None) -> Sequence[FieldError]:
    """Describe what is wrong with an Event of core/v1: it is in the namespace of the object that it is about."""
    if old is not None:
        return ()
    about = dig(value, "involvedObject", "namespace", default="")
    mine = value["metadata"].get("namespace", "")
    if about != mine and not (about == "" and mine == "default"):
        return [
            FieldError(
                "involvedObject.namespace",
                "FieldValueInvalid",
                f'Invalid value: "{about}": does not match event.namespace',
            )
        ]
    return ()


def lease_rules(value: Object, _old: Object | None) -> Sequence[FieldError]:
    """Describe what is wrong with a Lease."""
    seconds = dig(value, "spec", "leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        return [invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")]
    return ()


def selector_text_rules(value: Object, _old: Object | None) -> Sequence[FieldError]:
    """Check that the selector of a PodDisruptionBudget is valid."""
    for key, text in dig(value, "spec", "selector", "matchLabels", default={}).items():
        LabelSelector(f"{key}={text}")
    return ()


def admission_policy(value: Object, _old: Object | None) -> None:
    """Fill in the defaults of a ValidatingAdmissionPolicy."""
    spec = value.setdefault("spec", {})
    spec.setdefault("failurePolicy", "Fail")
    constraints = spec.setdefault("matchConstraints", {})
    constraints.setdefault("matchPolicy", "Equivalent")
    for field in ("namespaceSelector", "objectSelector"):
        constraints.setdefault(field, {})
    for rule in constraints.get("resourceRules", ()):
        rule.setdefault("scope", "*")
