"""The three roles of a job, master, pserver and trainer, with the fields and the rules of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from edl.api.base import Part, Rule, Text, Values, keyed_list, unique_by
from edl.api.resources import Quantity, Requirements
from edl.api.template import Container, PodTemplate
from edl.model.job_policies import JobAction, JobEvent
from edl.model.names import Role
from edl.model.sizes import MOST_SIZES, Sizes, allows, in_steps, named

MAX_INSTANCES = 10_000

Count = Annotated[int, Field(ge=0, le=MAX_INSTANCES)]
Positive = Annotated[int, Field(ge=1, le=MAX_INSTANCES)]
Passes = Annotated[int, Field(ge=1, le=1_000_000)]


class EventPolicy(Part):
    """An event and the action that it causes."""

    event: Annotated[JobEvent, Field(strict=False)]
    """The event: PodFailed, PodEvicted, TaskCompleted or Any."""
    action: Annotated[JobAction, Field(strict=False)]
    """The action: RestartJob, RestartPod, CompleteJob or AbortJob."""


EventPolicies = Annotated[list[EventPolicy], AfterValidator(unique_by("event"))]


def _containers(part: RoleSpec) -> list[Container]:
    return part.template.spec.containers if part.template and part.template.spec else []


def _container_rules(role: Role) -> tuple[Rule, Rule]:
    """Make the rules of the containers in the template of a role."""
    name = role.value

    def check_resources(part: RoleSpec) -> Iterator[Values]:
        if any(c.name == name and c.resources is not None for c in _containers(part)):
            yield {}

    def check_images(part: RoleSpec) -> Iterator[Values]:
        yield from ({"name": c.name} for c in _containers(part) if c.name != name and not c.image)

    containers = "self.template.spec.containers"
    absent = f"!has(self.template) || !has(self.template.spec) || !has({containers})"
    return (
        Rule(
            cel=f"{absent} || {containers}.all(c, c.name != '{name}' || !has(c.resources))",
            message=f"the template sets resources of container {name}; move them to spec.{name}.resources",
            check=check_resources,
        ),
        Rule(
            cel=f"{absent} || {containers}.all(c, c.name == '{name}' || has(c.image))",
            message=f"the template container {{name}} has no image; set its image, or name it {name} to change the "
            f"container of the {name}",
            check=check_images,
        ),
    )


def _check_bounds(part: TrainerSpec | PserverSpec) -> Iterator[Values]:
    low, high = part.bounds
    if high is not None and low > high:
        yield {"min": low, "max": high}


_BOUNDS_RULE = Rule(
    cel="!has(self.max__dash__instance) || !has(self.min__dash__instance) || "
    "self.min__dash__instance <= self.max__dash__instance",
    message="min-instance {min} exceeds max-instance {max}; lower min-instance",
    check=_check_bounds,
)


def _check_requests(part: RoleSpec) -> Iterator[Values]:
    if part.needs_requests and not (part.resources and part.resources.has_cpu_or_memory):
        yield {}


HAS_REQUESTS = " || ".join(
    f"(has(self.resources.{field}) && ('cpu' in self.resources.{field} || 'memory' in self.resources.{field}))"
    for field in ("requests", "limits")
)


def _check_trainer_requests(part: RoleSpec) -> Iterator[Values]:
    resources = part.resources
    if resources and (resources.requests or resources.limits) and not resources.has_cpu_or_memory:
        yield {}


_NO_AMOUNTS = " && ".join(
    f"(!has(self.resources.{field}) || size(self.resources.{field}) == 0)" for field in ("requests", "limits")
)


def _requests_rule(role: Role, unless: str) -> Rule:
    return Rule(
        cel=f"{unless} || (has(self.resources) && ({HAS_REQUESTS}))",
        message=f"the {role.value} requests neither cpu nor memory; set one of them in spec.{role.value}.resources",
        check=_check_requests,
    )


class RoleSpec(Part):
    """The fields of every role."""

    role: ClassVar[Role]

    resources: Requirements | None = None
    """Requests and limits of one pod; requests that are not set equal the limits."""
    template: PodTemplate | None = None
    """Pod template; edl merges it into each pod of the role. Fields that the controller sets are refused."""
    policies: EventPolicies = keyed_list("event", limit=16)
    """Actions for events of this role; they override spec.policies."""

    @property
    def needs_requests(self) -> bool:
        """True if pods of the role may run and their resources have no default."""
        return True

    def policy_for(self, event: JobEvent) -> JobAction | None:
        """The action of this role's policies for an event; None if no policy applies."""
        return choose_action(self.policies, event)


def choose_action(policies: list[EventPolicy], event: JobEvent) -> JobAction | None:
    """The action of the policy for this event or, without one, for Any; None if neither exists."""
    actions = {policy.event: policy.action for policy in policies}
    return actions.get(event, actions.get(JobEvent.ANY))


class Storage(Part):
    """The volume claim for the master's journal."""

    size: Quantity
    """Requested storage, such as 10Gi."""
    storage_class_name: Annotated[str, Field(max_length=253)] | None = None
    """StorageClass of the claim; by default that of the cluster."""


class MasterSpec(RoleSpec):
    """The data master; it runs in fault-tolerant mode only."""

    role = Role.MASTER

    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Image of the master; by default that of the controller."""
    etcd_endpoint: Text | None = Field(default=None, alias="etcd-endpoint")
    """Ignored; accepted for files of the original controller."""
    storage: Storage | None = None
    """Volume claim for the journal; without it the cluster's default StorageClass is used if there is one."""

    rules = (_requests_rule(Role.MASTER, "!has(self.resources)"), *_container_rules(Role.MASTER))

    @property
    def needs_requests(self) -> bool:
        """False without resources: the master has defaults."""
        return self.resources is not None


class PserverSpec(RoleSpec):
    """The parameter servers; min-instance of them run."""

    role = Role.PSERVER

    min_pservers: Count = Field(default=0, alias="min-instance")
    """Number of parameter servers; edl does not resize them."""
    max_pservers: Count | None = Field(default=None, alias="max-instance")
    """Ignored; accepted for files of the original controller; at least min-instance."""

    rules = (
        _BOUNDS_RULE,
        _requests_rule(Role.PSERVER, "!has(self.min__dash__instance) || self.min__dash__instance == 0"),
        *_container_rules(Role.PSERVER),
    )

    @property
    def bounds(self) -> tuple[int, int | None]:
        """The bounds (min-instance, max-instance); None if max-instance is not set."""
        return self.min_pservers, self.max_pservers

    @property
    def needs_requests(self) -> bool:
        """False without pods."""
        return self.min_pservers > 0


def _check_instances(part: TrainerSpec) -> Iterator[Values]:
    low, high = part.bounds
    if part.instances and not low <= part.instances <= high:
        yield {"instances": part.instances, "min": low, "max": high}


_NO_SIZES = "(!has(self.sizes) || size(self.sizes) == 0)"


def _without_twins(sizes: list[int]) -> list[int]:
    """Refuse a list with a number twice, as the API server does for `x-kubernetes-list-type: set`."""
    twin = next((size for size in sizes if sizes.count(size) > 1), None)
    if twin is not None:
        raise ValueError(f"has {twin} twice; remove one of them")
    return sizes


def _check_one_of_both(part: TrainerSpec) -> Iterator[Values]:
    if part.sizes and part.step > 1:
        yield {}


def _check_sizes(part: TrainerSpec) -> Iterator[Values]:
    low, high = part.bounds
    if part.sizes and (min(part.sizes), max(part.sizes)) != (low, high):
        yield {"found": f", but go from {min(part.sizes)} to {max(part.sizes)}", "min": low, "max": high}


def _check_step(part: TrainerSpec) -> Iterator[Values]:
    low, high = part.bounds
    if low % part.step or high % part.step:
        yield {"min": low, "max": high, "step": part.step}


def _check_pinned_size(part: TrainerSpec) -> Iterator[Values]:
    if part.instances and not allows(part.allowed, part.instances):
        yield {"instances": part.instances, "sizes": f" ({named(part.allowed)})"}


def _check_requests_of_sizes(part: TrainerSpec) -> Iterator[Values]:
    if part.allowed and not (part.resources and part.resources.has_cpu_or_memory):
        yield {}


class TrainerSpec(RoleSpec):
    """The trainers; the planner chooses their number between min-instance and max-instance."""

    role = Role.TRAINER

    entrypoint: Annotated[str, Field(max_length=32768)] = ""
    """Command of a trainer; a shell runs it."""
    workspace: Annotated[str, Field(max_length=4096)] = ""
    """Working directory of the command."""
    passes: Passes | None = None
    """Old place of spec.passes."""
    min_trainers: Positive = Field(alias="min-instance")
    """Minimum number of trainers; the job does not run with fewer."""
    max_trainers: Positive = Field(alias="max-instance")
    """Maximum number of trainers."""
    instances: Count = 0
    """Fixed number of trainers, as set by kubectl scale; 0 lets the planner decide."""
    sizes: Annotated[list[Positive], AfterValidator(_without_twins)] = Field(
        default_factory=list, max_length=MOST_SIZES, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """The only numbers of trainers that the job may have, with min-instance and max-instance; every one if empty."""
    step: Positive = 1
    """The number of trainers is a multiple of this."""

    rules = (
        _BOUNDS_RULE,
        Rule(
            cel=f"{_NO_SIZES} || !has(self.step) || self.step == 1",
            message="sizes and step are both set; remove one of them",
            check=_check_one_of_both,
        ),
        Rule(
            cel=f"{_NO_SIZES} || (self.min__dash__instance in self.sizes && "
            "self.max__dash__instance in self.sizes && "
            "self.sizes.all(n, n >= self.min__dash__instance && n <= self.max__dash__instance))",
            message="sizes must begin with min-instance {min} and end with max-instance {max}{found}; change one of"
            " them",
            check=_check_sizes,
        ),
        Rule(
            cel="!has(self.step) || (self.min__dash__instance % self.step == 0 && "
            "self.max__dash__instance % self.step == 0)",
            message="min-instance {min} and max-instance {max} are not both multiples of step {step}; make them so",
            check=_check_step,
        ),
        Rule(
            cel="!has(self.instances) || self.instances == 0 || "
            f"(({_NO_SIZES} || self.instances in self.sizes) && "
            "(!has(self.step) || self.instances % self.step == 0))",
            message="instances {instances} is no count that sizes or step allow{sizes}; write one of these, or 0 to"
            " let the planner decide",
            check=_check_pinned_size,
        ),
        Rule(
            cel=f"({_NO_SIZES} && (!has(self.step) || self.step == 1)) || (has(self.resources) && ({HAS_REQUESTS}))",
            message="the trainers request neither cpu nor memory, so edl cannot keep them to sizes or a step; set"
            " spec.trainer.resources, or remove sizes and step",
            check=_check_requests_of_sizes,
        ),
        Rule(
            cel="!has(self.instances) || self.instances == 0 || (self.instances >= self.min__dash__instance && "
            "self.instances <= self.max__dash__instance)",
            message="instances {instances} is not between min-instance {min} and max-instance {max}; write 0 to let "
            "the planner decide, or a number in this range",
            check=_check_instances,
        ),
        Rule(
            cel=f"!has(self.resources) || ({_NO_AMOUNTS}) || {HAS_REQUESTS}",
            message="the trainer requests neither cpu nor memory, but something else; set one of them in "
            "spec.trainer.resources, or leave it empty for trainers of QoS class BestEffort",
            check=_check_trainer_requests,
        ),
        *_container_rules(Role.TRAINER),
    )

    @property
    def bounds(self) -> tuple[int, int]:
        """The bounds (min-instance, max-instance)."""
        return self.min_trainers, self.max_trainers

    @property
    def allowed(self) -> Sizes:
        """The numbers of trainers that `sizes` or `step` allow; empty for every number."""
        return tuple(sorted(self.sizes)) or in_steps(*self.bounds, self.step)
