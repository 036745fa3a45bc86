"""The pod template of a role: the fields that a user may add to a pod, and those that only the controller sets.

Only fields that the controller reads, bounds or refuses have types here. All others go to the API server unchanged,
which validates them when the pod is created.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from edl.api.affinity import Affinity
from edl.api.base import (
    MAX_INT32,
    Label,
    RawObject,
    RawPart,
    Rule,
    Text,
    Values,
    WholeNumber,
    keyed_list,
    unique_by,
)
from edl.api.resources import Amounts, Requirements
from edl.model.pod_limits import MAX_SELECTORS, MAX_TEMPLATE_AMOUNTS, MAX_TEMPLATE_PORTS, MAX_TOLERATIONS

TOKEN_VOLUME = "edl-token"  # noqa: S105 - a name, not a secret
JOURNAL_VOLUME = "edl-journal"
TOKEN_DIRECTORY = "/var/run/secrets/paddlepaddle.org"  # noqa: S105
JOURNAL_DIRECTORY = "/var/lib/edl/journal"
RESERVED_VOLUMES = (JOURNAL_VOLUME, TOKEN_VOLUME)
RESERVED_ENVIRONMENT = ("EDL_INDEX", "EDL_JOB_UID", "EDL_MASTER", "EDL_ROLE", "EDL_TOKEN_FILE")
RESERVED_METADATA = ("finalizers", "generateName", "name", "namespace", "ownerReferences")
RESERVED_SPEC = (
    "hostname",
    "hostnameOverride",
    "nodeName",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "restartPolicy",
    "schedulerName",
    "setHostnameAsFQDN",
    "subdomain",
)
# Token Secrets of any job, JOB-token-<first 8 of its UID>: a rule over the job's own name exceeds the CEL cost limit.
_JOB_TOKEN = re.compile("-token-[0-9a-f]{8}$")
RESERVED_LABELS = ("app.kubernetes.io/", "paddle-job", "paddlepaddle.org/")


def _any_of(names: tuple[str, ...]) -> str:
    """Join names: `a, b or c`."""
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _refuse_fields(names: tuple[str, ...]) -> Rule:
    """The rule that none of these fields is set."""

    def check(part: RawPart) -> Iterator[Values]:
        written = part.as_dict()
        yield from ({"field": name} for name in names if name in written)

    # `namespace` is a reserved word of CEL: an expression writes it with underscores.
    escaped = ["__namespace__" if name == "namespace" else name for name in names]
    return Rule(
        cel=" && ".join(f"!has(self.{name})" for name in escaped),
        message="a template must not set {field}, because the controller sets it; remove it from the template",
        check=check,
        general={"field": _any_of(names)},
    )


def _check_labels(part: TemplateMetadata) -> Iterator[Values]:
    for key in (*sorted(part.labels), *sorted(part.annotations)):
        if key.startswith(RESERVED_LABELS):
            yield {"key": key[:60]}


class TemplateMetadata(RawPart):
    """Labels and annotations of the pods of a role."""

    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    annotations: Annotated[dict[str, Annotated[str, Field(max_length=65536)]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    name: Text | None = None
    generate_name: Text | None = None
    namespace: Text | None = None
    finalizers: list[Text] | None = Field(default=None, max_length=16)
    owner_references: list[RawObject] | None = Field(default=None, max_length=16)

    rules = (
        _refuse_fields(RESERVED_METADATA),
        Rule(
            cel=" && ".join(
                f"(!has(self.{field}) || self.{field}.all(k, "
                + " && ".join(f"!k.startsWith('{prefix}')" for prefix in RESERVED_LABELS)
                + "))"
                for field in ("labels", "annotations")
            ),
            message="label or annotation {key} is reserved for the controller, like all keys that begin with "
            f"{_any_of(RESERVED_LABELS)}; remove it from the template",
            check=_check_labels,
        ),
    )


class EnvironmentVariable(RawPart):
    """An environment variable; valueFrom is passed on."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    value: Annotated[str, Field(max_length=32768)] | None = None


def _check_mount(part: VolumeMount) -> Iterator[Values]:
    if part.name in RESERVED_VOLUMES or part.mount_path.startswith((JOURNAL_DIRECTORY, TOKEN_DIRECTORY)):
        yield {"mount": f"of {part.name} at {part.mount_path[:60]}"}


class VolumeMount(RawPart):
    """A volume mount of a container."""

    name: Label
    mount_path: Annotated[str, Field(min_length=1, max_length=1024)]

    rules = (
        Rule(
            cel=f"!(self.name in {list(RESERVED_VOLUMES)}) && !self.mountPath.startsWith('{JOURNAL_DIRECTORY}') && "
            f"!self.mountPath.startsWith('{TOKEN_DIRECTORY}')",
            message="the volume mount {mount} is reserved for the controller; remove it",
            check=_check_mount,
            general={
                "mount": f"of {_any_of(RESERVED_VOLUMES)}, or in {_any_of((JOURNAL_DIRECTORY, TOKEN_DIRECTORY))},"
            },
        ),
    )


class SecretSource(RawPart):
    """The Secret of a volume."""

    secret_name: Annotated[str, Field(max_length=253)] | None = None


def _check_volume(part: Volume) -> Iterator[Values]:
    if part.name in RESERVED_VOLUMES:
        yield {"name": part.name}


def _check_token(part: Volume) -> Iterator[Values]:
    secret = part.secret.secret_name if part.secret else None
    if _JOB_TOKEN.search(part.name) or _JOB_TOKEN.search(secret or ""):
        yield {"name": secret or part.name}


_TOKEN_TEST = f"matches('{_JOB_TOKEN.pattern}')"


class Volume(RawPart):
    """A volume of a pod."""

    name: Label
    secret: SecretSource | None = None

    rules = (
        Rule(
            cel=f"!(self.name in {list(RESERVED_VOLUMES)})",
            message="the volume name {name} is reserved for the controller; rename the volume",
            check=_check_volume,
            general={"name": _any_of(RESERVED_VOLUMES)},
        ),
        Rule(
            cel=f"!self.name.{_TOKEN_TEST} && "
            f"(!has(self.secret) || !has(self.secret.secretName) || !self.secret.secretName.{_TOKEN_TEST})",
            message="{name} names the token Secret of a job, which only the controller mounts; remove the volume",
            check=_check_token,
            general={"name": "a volume or Secret name like JOB-token-0123abcd"},
        ),
    )


class LocalReference(RawPart):
    """Name of an object in the namespace of the job."""

    name: Annotated[str, Field(min_length=1, max_length=253)]


def _check_environment(part: Container | TemplateSpec) -> Iterator[Values]:
    yield from ({"name": variable.name} for variable in part.env if variable.name in RESERVED_ENVIRONMENT)


Environment = Annotated[list[EnvironmentVariable], Field(max_length=256)]

_ENVIRONMENT_RULE = Rule(
    cel=f"!has(self.env) || self.env.all(e, !(e.name in {list(RESERVED_ENVIRONMENT)}))",
    message="the controller sets the environment variable {name}; remove it from the template",
    check=_check_environment,
    general={"name": _any_of(RESERVED_ENVIRONMENT)},
)


class Port(RawPart):
    """A port of a container."""

    container_port: Annotated[WholeNumber, Field(ge=1, le=65535)]
    host_port: Annotated[WholeNumber, Field(ge=0, le=65535)] | None = None


class Container(RawPart):
    """A container of the pod: that of the role if it has the name of the role, otherwise a sidecar."""

    name: Label
    image: Text | None = None
    env: Environment = Field(default_factory=list)
    volume_mounts: list[VolumeMount] = Field(default_factory=list, max_length=64)
    ports: list[Port] = Field(default_factory=list, max_length=256)
    resources: Requirements | None = None
    restart_policy: Literal["Always", "Never", "OnFailure"] | None = None

    rules = (_ENVIRONMENT_RULE,)


class PodToleration(RawPart):
    """A toleration of the pods."""

    key: Annotated[str, Field(max_length=317)] | None = None
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = None
    value: Annotated[str, Field(max_length=63)] | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


def _in_all_containers(counted: str) -> str:
    """Write a CEL expression: the sum of a count over all containers and init containers `c`."""
    lists = ("containers", "initContainers")
    return " + ".join(f"(has(self.{name}) ? self.{name}.map(c, {counted}).sum() : 0)" for name in lists)


_AMOUNTS_OF = (
    "has(c.resources) ? (has(c.resources.requests) ? c.resources.requests.size() : 0)"
    " + (has(c.resources.limits) ? c.resources.limits.size() : 0) : 0"
)


def _check_template_ports(part: TemplateSpec) -> Iterator[Values]:
    if (count := sum(len(one.ports) for one in (*part.containers, *part.init_containers))) > MAX_TEMPLATE_PORTS:
        yield {"count": count}


def _check_template_amounts(part: TemplateSpec) -> Iterator[Values]:
    lists = [one.resources for one in (*part.containers, *part.init_containers) if one.resources]
    if (count := sum(len(one.requests) + len(one.limits) for one in lists)) > MAX_TEMPLATE_AMOUNTS:
        yield {"count": count}


class TemplateSpec(RawPart):
    """Fields of a pod that the pods of a role get in addition.

    `env` is not a field of a pod: it is short for the environment of the role's own container.
    """

    node_selector: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=MAX_SELECTORS)] = (
        Field(default_factory=dict)
    )
    tolerations: list[PodToleration] = Field(default_factory=list, max_length=MAX_TOLERATIONS)
    affinity: Affinity | None = None
    env: Environment = Field(default_factory=list)
    containers: Annotated[list[Container], AfterValidator(unique_by("name"))] = keyed_list("name", limit=8)
    init_containers: Annotated[list[Container], AfterValidator(unique_by("name"))] = keyed_list("name", limit=8)
    volumes: Annotated[list[Volume], AfterValidator(unique_by("name"))] = keyed_list("name", limit=64)
    image_pull_secrets: list[LocalReference] = Field(default_factory=list, max_length=16)
    security_context: RawObject | None = None
    overhead: Amounts | None = None
    host_network: bool | None = None
    service_account_name: Annotated[str, Field(max_length=253)] | None = None
    automount_service_account_token: bool | None = None
    termination_grace_period_seconds: Annotated[WholeNumber, Field(ge=0, le=MAX_INT32)] | None = None
    hostname: Text | None = None
    hostname_override: Text | None = None
    node_name: Text | None = None
    priority: WholeNumber | None = None
    priority_class_name: Text | None = None
    preemption_policy: Text | None = None
    restart_policy: Text | None = None
    scheduler_name: Text | None = None
    set_hostname_as_fqdn: bool | None = Field(default=None, alias="setHostnameAsFQDN")
    subdomain: Text | None = None

    rules = (
        _refuse_fields(RESERVED_SPEC),
        _ENVIRONMENT_RULE,
        Rule(
            cel=f"{_in_all_containers('has(c.ports) ? c.ports.size() : 0')} <= {MAX_TEMPLATE_PORTS}",
            message=f"the containers list {{count}} ports, more than {MAX_TEMPLATE_PORTS}; list fewer",
            check=_check_template_ports,
            general={"count": "too many"},
        ),
        Rule(
            cel=f"{_in_all_containers(_AMOUNTS_OF)} <= {MAX_TEMPLATE_AMOUNTS}",
            message=f"the containers list {{count}} requests and limits, more than {MAX_TEMPLATE_AMOUNTS}; "
            "list fewer",
            check=_check_template_amounts,
            general={"count": "too many"},
        ),
    )


class PodTemplate(RawPart):
    """Labels, annotations and fields that edl merges into the pods of a role."""

    metadata: TemplateMetadata | None = None
    spec: TemplateSpec | None = None
