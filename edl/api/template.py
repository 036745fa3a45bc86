"""The pod template overlay of a role: what a user may add to a pod, and what belongs to the controller.

Only what the controller reads, bounds or refuses is typed; everything else of a pod passes through to the API server,
which judges it when the pod is created.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from edl.api.base import MAX_INT32, Label, RawObject, RawPart, Rule, Text, Whole, keyed, unique_by
from edl.api.resources import Amounts, Requirements

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
# Secrets named <job>-token-<first 8 of uid>, of whichever job: an expression over the job's own name costs too much.
_JOB_TOKEN = re.compile("-token-[0-9a-f]{8}$")
RESERVED_LABELS = ("app.kubernetes.io/", "paddle-job", "paddlepaddle.org/")


def refuse_fields(names: tuple[str, ...], remedy: str) -> Rule:
    """The rule that none of these fields is set."""

    def check(part: RawPart) -> Iterator[str]:
        given = part.as_dict()
        for name in names:
            if name in given:
                yield f"{name} is set by the controller; {remedy}"

    # `namespace` is a reserved word of CEL and is spelled with underscores there.
    spelled = ["__namespace__" if name == "namespace" else name for name in names]
    return Rule(
        cel=" && ".join(f"!has(self.{name})" for name in spelled),
        message=f"a template must not set {', '.join(names)}: the controller does",
        check=check,
    )


def _check_labels(part: TemplateMetadata) -> Iterator[str]:
    for field, keys in (("label", part.labels), ("annotation", part.annotations)):
        for key in sorted(keys):
            if key.startswith(RESERVED_LABELS):
                yield f"{field} {key[:60]} belongs to the controller; remove it from the template"


class TemplateMetadata(RawPart):
    """Labels and annotations for the pods of a role."""

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
        refuse_fields(RESERVED_METADATA, "remove it from the template"),
        Rule(
            cel=" && ".join(
                f"(!has(self.{field}) || self.{field}.all(k, "
                + " && ".join(f"!k.startsWith('{prefix}')" for prefix in RESERVED_LABELS)
                + "))"
                for field in ("labels", "annotations")
            ),
            message=f"labels and annotations that begin with {', '.join(RESERVED_LABELS)} belong to the controller",
            check=_check_labels,
        ),
    )


class EnvironmentVariable(RawPart):
    """One variable; `valueFrom` and the like pass through."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    value: Annotated[str, Field(max_length=32768)] | None = None


def _check_mount(part: VolumeMount) -> Iterator[str]:
    if part.name in RESERVED_VOLUMES or part.mount_path.startswith((JOURNAL_DIRECTORY, TOKEN_DIRECTORY)):
        yield f"mount of {part.name} at {part.mount_path[:60]} belongs to the controller; remove it"


class VolumeMount(RawPart):
    """Where a container sees a volume."""

    name: Label
    mount_path: Annotated[str, Field(min_length=1, max_length=1024)]

    rules = (
        Rule(
            cel=f"!(self.name in {list(RESERVED_VOLUMES)}) && !self.mountPath.startsWith('{JOURNAL_DIRECTORY}') && "
            f"!self.mountPath.startsWith('{TOKEN_DIRECTORY}')",
            message=f"the volumes {', '.join(RESERVED_VOLUMES)} and their mounts belong to the controller",
            check=_check_mount,
        ),
    )


class SecretSource(RawPart):
    """The Secret of a volume."""

    secret_name: Annotated[str, Field(max_length=253)] | None = None


def _check_volume(part: Volume) -> Iterator[str]:
    if part.name in RESERVED_VOLUMES:
        yield f"volume {part.name} belongs to the controller; rename it"


def _check_token(part: Volume) -> Iterator[str]:
    secret = part.secret.secret_name if part.secret else None
    if _JOB_TOKEN.search(part.name) or _JOB_TOKEN.search(secret or ""):
        yield f"{secret or part.name} is a job's token, which only the controller mounts; remove the volume"


_TOKEN_TEST = f"matches('{_JOB_TOKEN.pattern}')"


class Volume(RawPart):
    """One volume of a pod."""

    name: Label
    secret: SecretSource | None = None

    rules = (
        Rule(
            cel=f"!(self.name in {list(RESERVED_VOLUMES)})",
            message=f"the volumes {', '.join(RESERVED_VOLUMES)} belong to the controller",
            check=_check_volume,
        ),
        Rule(
            cel=f"!self.name.{_TOKEN_TEST} && "
            f"(!has(self.secret) || !has(self.secret.secretName) || !self.secret.secretName.{_TOKEN_TEST})",
            message="the token of a job is mounted by the controller only; remove the volume",
            check=_check_token,
        ),
    )


class LocalReference(RawPart):
    """The name of an object in the namespace of the job."""

    name: Annotated[str, Field(min_length=1, max_length=253)]


def _check_environment(part: Container | TemplateSpec) -> Iterator[str]:
    for variable in part.env:
        if variable.name in RESERVED_ENVIRONMENT:
            yield f"environment variable {variable.name} is set by the controller; remove it from the template"


Environment = Annotated[list[EnvironmentVariable], Field(max_length=256)]

_ENVIRONMENT_RULE = Rule(
    cel=f"!has(self.env) || self.env.all(e, !(e.name in {list(RESERVED_ENVIRONMENT)}))",
    message=f"{', '.join(RESERVED_ENVIRONMENT)} are set by the controller",
    check=_check_environment,
)


class Port(RawPart):
    """A port of a container."""

    container_port: Annotated[Whole, Field(ge=1, le=65535)]
    host_port: Annotated[Whole, Field(ge=0, le=65535)] | None = None


class Container(RawPart):
    """A container of the pod: the role's own where it has the role's name, else a sidecar."""

    name: Label
    image: Text | None = None
    env: Environment = Field(default_factory=list)
    volume_mounts: list[VolumeMount] = Field(default_factory=list, max_length=64)
    ports: list[Port] = Field(default_factory=list, max_length=256)
    resources: Requirements | None = None
    restart_policy: Literal["Always", "Never", "OnFailure"] | None = None

    rules = (_ENVIRONMENT_RULE,)


class Expression(RawPart):
    """One requirement on a node."""

    key: Annotated[str, Field(max_length=317)]
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[Annotated[str, Field(max_length=253)]] = Field(default_factory=list, max_length=1000)


class NodeTerm(RawPart):
    """Requirements on a node that must all hold."""

    match_expressions: list[Expression] = Field(default_factory=list, max_length=64)
    match_fields: list[Expression] = Field(default_factory=list, max_length=64)


class RequiredNodes(RawPart):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeTerm] = Field(default_factory=list, max_length=64)


class PreferredNodes(RawPart):
    """A term that makes a node more welcome."""

    weight: Annotated[Whole, Field(ge=1, le=100)]
    preference: NodeTerm


class NodeAffinity(RawPart):
    """Where a pod must or would rather run."""

    required: RequiredNodes | None = Field(default=None, alias="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredNodes] = Field(
        default_factory=list, max_length=64, alias="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(RawPart):
    """Affinity to nodes; that to pods passes through."""

    node_affinity: NodeAffinity | None = None


class PodToleration(RawPart):
    """A taint that the pods accept."""

    key: Annotated[str, Field(max_length=317)] | None = None
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = None
    value: Annotated[str, Field(max_length=63)] | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class TemplateSpec(RawPart):
    """What the pods of a role have beyond the resource's own fields.

    `env` is no field of a pod: it stands for the environment of the role's own container.
    """

    node_selector: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    tolerations: list[PodToleration] = Field(default_factory=list, max_length=64)
    affinity: Affinity | None = None
    env: Environment = Field(default_factory=list)
    containers: Annotated[list[Container], AfterValidator(unique_by("name"))] = keyed("name", limit=8)
    init_containers: Annotated[list[Container], AfterValidator(unique_by("name"))] = keyed("name", limit=8)
    volumes: Annotated[list[Volume], AfterValidator(unique_by("name"))] = keyed("name", limit=64)
    image_pull_secrets: list[LocalReference] = Field(default_factory=list, max_length=16)
    security_context: RawObject | None = None
    overhead: Amounts | None = None
    host_network: bool | None = None
    service_account_name: Annotated[str, Field(max_length=253)] | None = None
    automount_service_account_token: bool | None = None
    termination_grace_period_seconds: Annotated[Whole, Field(ge=0, le=MAX_INT32)] | None = None
    hostname: Text | None = None
    hostname_override: Text | None = None
    node_name: Text | None = None
    priority: Whole | None = None
    priority_class_name: Text | None = None
    preemption_policy: Text | None = None
    restart_policy: Text | None = None
    scheduler_name: Text | None = None
    set_hostname_as_fqdn: bool | None = Field(default=None, alias="setHostnameAsFQDN")
    subdomain: Text | None = None

    rules = (
        refuse_fields(RESERVED_SPEC, "remove it from the template"),
        _ENVIRONMENT_RULE,
    )


class PodTemplate(RawPart):
    """An overlay over the pods of a role."""

    metadata: TemplateMetadata | None = None
    spec: TemplateSpec | None = None
