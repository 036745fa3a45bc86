"""TrainingJob `paddlepaddle.org/v1` as pydantic models: the single definition of the resource.

The CRD, the embedded API server and the controller all validate with these models. The field names of the original
controller stay, although they mix kebab-case and snake_case, because the files of users must keep working; new fields
are camelCase. These models do not ask whether a cluster has capacity for a job, and no default depends on a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, Field, ValidationError

from edl.api.base import Part, WholeNumber, find_problems
from edl.api.problems import describe
from edl.api.roles import MasterSpec, PserverSpec, TrainerSpec, choose_action
from edl.api.spec import MAX_NAME_LENGTH, NAME_PATTERN, Spec
from edl.api.template import VolumeMount
from edl.errors import InvalidJobError
from edl.model.job_policies import JobAction, JobEvent, default_action
from edl.model.names import JobKey, Role
from edl.model.sizes import SLICE_TOPOLOGY, TPU, chips_of_slice, hosts_of_slice

GROUP = "paddlepaddle.org"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "TrainingJob"
PLURAL = "trainingjobs"

MAX_LEVELS = 64
"""Maximum nesting depth of lists and objects; a pod needs about ten levels."""

_SHOWN_PROBLEMS = 5


def _check_name(name: str) -> str:
    if len(name) > MAX_NAME_LENGTH:
        raise ValueError(
            f"has {len(name)} characters, but pod names contain it and allow only {MAX_NAME_LENGTH}; shorten it"
        )
    if not re.fullmatch(NAME_PATTERN, name):
        raise ValueError(
            f'"{name}" is not a valid job name; use lowercase letters, digits and hyphens, begin with a letter, and '
            "do not end with a hyphen"
        )
    return name


class Metadata(Part):
    """The fields of an object's metadata that the controller reads."""

    name: Annotated[str, AfterValidator(_check_name)]
    namespace: Annotated[str, Field(min_length=1, max_length=63)] = "default"
    uid: str = ""
    generation: WholeNumber = 1
    creation_timestamp: Annotated[AwareDatetime, Field(strict=False)] | None = None
    deletion_timestamp: Annotated[AwareDatetime, Field(strict=False)] | None = None


class TrainingJob(Part):
    """A job as the user wrote it, with accessors that resolve old spellings and defaults.

    It has no `status` on purpose: the controller computes it, and a forged status must not make a job invalid.
    """

    metadata: Metadata
    spec: Spec

    @property
    def key(self) -> JobKey:
        """The key of the job: namespace and name."""
        return JobKey(self.metadata.namespace, self.metadata.name)

    @property
    def uid(self) -> str:
        """`metadata.uid`, which no other object of the same name has; empty before the API server stores the job."""
        return self.metadata.uid

    @property
    def generation(self) -> int:
        """`metadata.generation`, the version of the spec."""
        return self.metadata.generation

    @property
    def created_s(self) -> float:
        """Creation time in seconds since the epoch; 0 before the API server stores the job."""
        stamp = self.metadata.creation_timestamp
        return stamp.timestamp() if stamp else 0.0

    @property
    def is_deleting(self) -> bool:
        """True once the job has a deletion timestamp."""
        return self.metadata.deletion_timestamp is not None

    @property
    def has_master(self) -> bool:
        """True if the job runs a master: in fault-tolerant mode."""
        return self.spec.fault_tolerant

    @property
    def passes(self) -> int:
        """Number of epochs, from either place in the spec."""
        return self.spec.trainer.passes or self.spec.passes or 1

    @property
    def host_network(self) -> bool:
        """True if pods use the network of their node, by either spelling of the field."""
        return bool(self.spec.host_network or self.spec.old_host_network)

    @property
    def volume_mounts(self) -> list[VolumeMount]:
        """Volume mounts of the container of every role, by either spelling."""
        return self.spec.volume_mounts or self.spec.old_volume_mounts

    @property
    def needs_pod_group(self) -> bool:
        """True if the job needs a Volcano PodGroup for its minimum set; the default with Volcano's scheduler."""
        return self.spec.gang if self.spec.gang is not None else self.spec.scheduler_name == "volcano"

    def role(self, role: Role) -> MasterSpec | PserverSpec | TrainerSpec:
        """The part of the spec for a role."""
        if role is Role.MASTER:
            return self.spec.master
        return self.spec.pserver if role is Role.PSERVER else self.spec.trainer

    def minimum(self, role: Role) -> int:
        """The minimum number of pods of a role."""
        if role is Role.MASTER:
            return int(self.has_master)
        return self.spec.pserver.min_pservers if role is Role.PSERVER else self.spec.trainer.min_trainers

    def action_for(self, role: Role, event: JobEvent) -> JobAction | None:
        """The action for an event of a role; None does nothing.

        Policies of the role override those of the job, which override the default of the mode.
        """
        action = self.role(role).policy_for(event) or choose_action(self.spec.policies, event)
        is_trainer = role is Role.TRAINER
        return action or default_action(event, fault_tolerant=self.spec.fault_tolerant, of_trainers=is_trainer)


def parse_job(obj: Mapping[str, Any], *, controller_namespace: str = "") -> TrainingJob:
    """Parse a TrainingJob and apply every rule, including those that admission should have applied.

    Args:
        obj: the object from JSON or YAML; a missing namespace is `default`.
        controller_namespace: the namespace of the controller, in which no job may run; empty if it is unknown.

    Raises:
        InvalidJobError: a rule is broken; `.problems` lists each problem. Types and bounds of single fields are
            checked first; rules over several fields only if those are correct.
    """
    label = f"job {_label(obj)}"
    if _is_deeper(_spec_of(obj), MAX_LEVELS):
        raise _invalid(label, [f"spec is nested more than {MAX_LEVELS} levels deep; use fewer levels"])
    try:
        job = TrainingJob.model_validate(obj)
    except ValidationError as error:
        raise _invalid(label, describe(error, TrainingJob)) from None
    problems = [*_kind_problems(obj), *find_problems(job), *_slice_problems(job.spec.trainer)]
    if controller_namespace and job.key.namespace == controller_namespace:
        problems.append(f"namespace {controller_namespace} is reserved for the controller; use another namespace")
    if problems:
        raise _invalid(label, problems)
    return job


def _spec_of(obj: object) -> object:
    return obj.get("spec") if isinstance(obj, Mapping) else None


def _is_deeper(value: object, levels: int) -> bool:
    """True if lists and objects are nested more than `levels` deep; deeper levels are not visited."""
    layer = [value]
    for _ in range(levels):
        # An object that YAML aliases share is visited once.
        layer = list({id(inner): inner for outer in layer for inner in _children(outer)}.values())
    return any(isinstance(value, list | Mapping) for value in layer)


def _children(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def _kind_problems(obj: Mapping[str, Any]) -> Iterator[str]:
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        given = obj.get(field, expected)
        if given != expected:
            yield f"{field} {str(given)[:60]!r} is not supported; write {expected}"


def _slice_problems(trainer: TrainerSpec) -> Iterator[str]:
    """Why a number of trainers takes a part of a TPU slice, if it may."""
    spec = trainer.template.spec if trainer.template else None
    topology = spec.node_selector.get(SLICE_TOPOLOGY, "") if spec else ""
    asked = trainer.resources.effective_limits().get(TPU, "") if trainer.resources else ""
    hosts, (low, high) = hosts_of_slice(topology, int(asked) if asked.isdecimal() else 0), trainer.bounds
    if low < high and hosts > 1:
        bounds = f"min-instance {low} and max-instance {high} allow a part of a slice"
    elif high % hosts:
        bounds = f"{high} of them end with a part of a slice"
    else:
        return
    yield (
        f"the trainers are hosts of a TPU slice: {SLICE_TOPOLOGY} {topology} has {chips_of_slice(topology)} chips,"
        f" and each requests {asked}, so {hosts} work together or not at all, but {bounds}; set both bounds to one"
        f" multiple of {hosts}, or take a slice of one host"
    )


def _invalid(label: str, problems: list[str]) -> InvalidJobError:
    unique = tuple(dict.fromkeys(problems))
    shown = list(unique[:_SHOWN_PROBLEMS])
    if more := len(unique) - len(shown):
        shown.append(f"and {more} more {'problem' if more == 1 else 'problems'}")
    return InvalidJobError(f"{label}: " + ". Also: ".join(shown), unique)


def _label(obj: object) -> str:
    metadata = obj.get("metadata") if isinstance(obj, Mapping) else None
    if not isinstance(metadata, Mapping):
        return "without metadata"
    name, namespace = metadata.get("name"), metadata.get("namespace", "default")
    return f"{str(namespace)[:63]}/{str(name)[:253]}"
