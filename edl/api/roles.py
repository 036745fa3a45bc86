"""The three roles of a job: master, pserver and trainer, with what each of them may say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from edl.api.base import Part, Rule, Text, keyed, unique_by
from edl.api.resources import Quantity, Requirements
from edl.api.template import PodTemplate
from edl.model.job_policies import JobAction, JobEvent
from edl.model.names import Role

MAX_INSTANCES = 10_000

Count = Annotated[int, Field(ge=0, le=MAX_INSTANCES)]
Positive = Annotated[int, Field(ge=1, le=MAX_INSTANCES)]
Passes = Annotated[int, Field(ge=1, le=1_000_000)]


class EventPolicy(Part):
    """One event and its answer."""

    event: Annotated[JobEvent, Field(strict=False)]
    """PodFailed, PodEvicted, TaskCompleted or Any."""
    action: Annotated[JobAction, Field(strict=False)]
    """RestartJob, RestartPod, CompleteJob or AbortJob."""


EventPolicies = Annotated[list[EventPolicy], AfterValidator(unique_by("event"))]


def _container_rule(role: Role) -> Rule:
    def check(part: RoleSpec) -> Iterator[str]:
        spec = part.template.spec if part.template else None
        for container in spec.containers if spec else ():
            if container.name == role.value and container.resources is not None:
                yield f"template container {role.value} sets resources; write them to spec.{role.value}.resources"
            if container.name != role.value and not container.image:
                yield (
                    f"template container {container.name} has no image; name it {role.value} to extend the "
                    "role's own container, or give it an image"
                )

    containers = "self.template.spec.containers"
    return Rule(
        cel=f"!has(self.template) || !has(self.template.spec) || !has({containers}) || {containers}.all(c, "
        f"c.name == '{role.value}' ? !has(c.resources) : has(c.image))",
        message=f"the container {role.value} takes its resources from the role; every other container needs an image",
        check=check,
    )


def _bounds_rule() -> Rule:
    def check(part: TrainerSpec | PserverSpec) -> Iterator[str]:
        low, high = part.min_instance, part.max_instance
        if high is not None and low > high:
            yield f"min-instance {low} exceeds max-instance {high}; lower min-instance"

    return Rule(
        cel="!has(self.max__dash__instance) || !has(self.min__dash__instance) || "
        "self.min__dash__instance <= self.max__dash__instance",
        message="min-instance exceeds max-instance; lower min-instance",
        check=check,
    )


def _check_room(part: RoleSpec) -> Iterator[str]:
    if part.must_ask_for_room and not part.asks_for_room:
        yield "resources ask for neither cpu nor memory; set one of them in requests or limits"


_ASKS = " || ".join(
    f"(has(self.resources.{field}) && ('cpu' in self.resources.{field} || 'memory' in self.resources.{field}))"
    for field in ("requests", "limits")
)


def _room_rule(unless: str) -> Rule:
    return Rule(
        cel=f"{unless} || (has(self.resources) && ({_ASKS}))",
        message="resources ask for neither cpu nor memory; set one of them",
        check=_check_room,
    )


class RoleSpec(Part):
    """What every role has."""

    role: ClassVar[Role]

    resources: Requirements | None = None
    """What one pod requests and may use; limits alone stand for requests too."""
    template: PodTemplate | None = None
    """Overlay over the pods of the role: what the controller does not set itself."""
    policies: EventPolicies = keyed("event", limit=16)
    """Answers to events of this role; they go before those of the job."""

    @property
    def asks_for_room(self) -> bool:
        """True where cpu or memory is requested."""
        return self.resources is not None and self.resources.asks_for_cpu_or_memory

    @property
    def must_ask_for_room(self) -> bool:
        """True where pods of the role may run with the resources as written."""
        return True

    def policy_for(self, event: JobEvent) -> JobAction | None:
        """The action that this role's own policies give; the event's own goes before Any."""
        return choose_action(self.policies, event)


def choose_action(policies: list[EventPolicy], event: JobEvent) -> JobAction | None:
    """The action for an event: its own entry, else the one for Any, else None."""
    actions = {policy.event: policy.action for policy in policies}
    return actions.get(event, actions.get(JobEvent.ANY))


class Storage(Part):
    """A volume claim for the master's journal."""

    size: Quantity
    """How much is claimed."""
    storage_class_name: Annotated[str, Field(max_length=253)] | None = None
    """The class; the cluster's default where it is absent."""


class MasterSpec(RoleSpec):
    """The data master; it runs in fault-tolerant mode."""

    role = Role.MASTER

    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """The master's image; by default the controller's."""
    etcd_endpoint: Text | None = Field(default=None, alias="etcd-endpoint")
    """Accepted for old files; nothing reads it."""
    storage: Storage | None = None
    """Keeps the journal on a volume claim."""

    rules = (_room_rule("!has(self.resources)"), _container_rule(Role.MASTER))

    @property
    def must_ask_for_room(self) -> bool:
        """Without resources the master takes its defaults."""
        return self.resources is not None


class PserverSpec(RoleSpec):
    """The parameter servers; as many run as `min-instance` says."""

    role = Role.PSERVER

    min_instance: Count = Field(default=0, alias="min-instance")
    """How many parameter servers run."""
    max_instance: Count | None = Field(default=None, alias="max-instance")
    """Accepted for old files; at least min-instance."""

    rules = (
        _bounds_rule(),
        _room_rule("!has(self.min__dash__instance) || self.min__dash__instance == 0"),
        _container_rule(Role.PSERVER),
    )

    @property
    def must_ask_for_room(self) -> bool:
        """A role without pods need not say what they take."""
        return self.min_instance > 0


def _check_instances(part: TrainerSpec) -> Iterator[str]:
    low, high = part.min_instance, part.max_instance
    if part.instances and not low <= part.instances <= high:
        yield f"instances {part.instances} is outside {low}..{high}; write 0 (the planner decides) or a count between"


class TrainerSpec(RoleSpec):
    """The trainers, whose count moves between the bounds."""

    role = Role.TRAINER

    entrypoint: Annotated[str, Field(max_length=32768)] = ""
    """The command of a trainer, run by a shell."""
    workspace: Annotated[str, Field(max_length=4096)] = ""
    """The folder that the command is run in."""
    passes: Passes | None = None
    """The old place of spec.passes."""
    min_instance: Positive = Field(alias="min-instance")
    """Fewest trainers that the job runs with."""
    max_instance: Positive = Field(alias="max-instance")
    """Most trainers that help."""
    instances: Count = 0
    """Pins the count, as kubectl scale does; 0 leaves it to the planner."""

    rules = (
        _bounds_rule(),
        Rule(
            cel="!has(self.instances) || self.instances == 0 || (self.instances >= self.min__dash__instance && "
            "self.instances <= self.max__dash__instance)",
            message="instances must be 0 (the planner decides) or between min-instance and max-instance",
            check=_check_instances,
        ),
        _room_rule("false"),
        _container_rule(Role.TRAINER),
    )
