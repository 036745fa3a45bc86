"""TrainingJob `paddlepaddle.org/v1` in pydantic: the one source of truth of the resource.

The CRD, the embedded API server and the controller all judge by these models. The field names of the original are
canonical, although they mix kebab-case and snake_case, because users' files must go on working; new fields are
camelCase. Whether a cluster has room for a job is not judged here, and nothing that depends on one is defaulted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, Field, ValidationError

from edl.api.base import Part, Whole, find_problems
from edl.api.problems import describe
from edl.api.roles import MasterSpec, PserverSpec, TrainerSpec, choose_action
from edl.api.spec import MAX_NAME_LENGTH, NAME_PATTERN, Spec
from edl.api.template import VolumeMount
from edl.errors import InvalidJobError
from edl.model.job_policies import JobAction, JobEvent, default_action
from edl.model.names import JobKey, Role

GROUP = "paddlepaddle.org"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "TrainingJob"
PLURAL = "trainingjobs"

MAX_LEVELS = 64
"""Lists and objects within one another; a pod needs about ten."""

_SHOWN_PROBLEMS = 5


def _check_name(name: str) -> str:
    if len(name) > MAX_NAME_LENGTH:
        raise ValueError(f"has {len(name)} characters, and pods are named after it; shorten it to {MAX_NAME_LENGTH}")
    if not re.fullmatch(NAME_PATTERN, name):
        raise ValueError(
            f'"{name}" is not a lowercase letter followed by letters, digits and hyphens, as the Service that is '
            "named after the job needs it; rename the job"
        )
    return name


class Metadata(Part):
    """What the controller reads of an object's metadata."""

    name: Annotated[str, AfterValidator(_check_name)]
    namespace: Annotated[str, Field(min_length=1, max_length=63)] = "default"
    uid: str = ""
    generation: Whole = 1
    creation_timestamp: Annotated[AwareDatetime, Field(strict=False)] | None = None
    deletion_timestamp: Annotated[AwareDatetime, Field(strict=False)] | None = None


class TrainingJob(Part):
    """A job as a user wrote it, with the accessors that hide its two spellings and its defaults.

    `status` is left out on purpose: the controller computes it, and a forged one must not make a job invalid.
    """

    metadata: Metadata
    spec: Spec

    @property
    def key(self) -> JobKey:
        """Namespace and name."""
        return JobKey(self.metadata.namespace, self.metadata.name)

    @property
    def uid(self) -> str:
        """The identity of this object among all of its name; empty before the API server has stored it."""
        return self.metadata.uid

    @property
    def generation(self) -> int:
        """The version of the wish."""
        return self.metadata.generation

    @property
    def created_s(self) -> float:
        """Creation time in seconds since the epoch; 0 where it is not stored yet."""
        stamp = self.metadata.creation_timestamp
        return stamp.timestamp() if stamp else 0.0

    @property
    def is_deleting(self) -> bool:
        """True once the job has a deletion timestamp."""
        return self.metadata.deletion_timestamp is not None

    @property
    def has_master(self) -> bool:
        """The master runs in fault-tolerant mode."""
        return self.spec.fault_tolerant

    @property
    def passes(self) -> int:
        """Epochs over the data set, from whichever place says it."""
        return self.spec.trainer.passes or self.spec.passes or 1

    @property
    def host_network(self) -> bool:
        """Whether pods share their node's network, by either spelling."""
        return bool(self.spec.host_network or self.spec.old_host_network)

    @property
    def volume_mounts(self) -> list[VolumeMount]:
        """Mounts for the container of every role, by either spelling."""
        return self.spec.volume_mounts or self.spec.old_volume_mounts

    @property
    def needs_pod_group(self) -> bool:
        """Whether the minimum set is scheduled as a Volcano PodGroup; Volcano's scheduler implies it."""
        return self.spec.gang if self.spec.gang is not None else self.spec.scheduler_name == "volcano"

    def role(self, role: Role) -> MasterSpec | PserverSpec | TrainerSpec:
        """The part of the spec that concerns a role."""
        if role is Role.MASTER:
            return self.spec.master
        return self.spec.pserver if role is Role.PSERVER else self.spec.trainer

    def minimum(self, role: Role) -> int:
        """How many pods of a role the job needs at least."""
        if role is Role.MASTER:
            return int(self.has_master)
        return self.spec.pserver.min_instance if role is Role.PSERVER else self.spec.trainer.min_instance

    def action_for(self, role: Role, event: JobEvent) -> JobAction | None:
        """What an event of a role leads to: the role's policy, else the job's, else the mode's; None does nothing."""
        given = self.role(role).policy_for(event) or choose_action(self.spec.policies, event)
        is_trainer = role is Role.TRAINER
        return given or default_action(event, fault_tolerant=self.spec.fault_tolerant, of_trainers=is_trainer)


def parse_job(obj: Mapping[str, Any], *, controller_namespace: str = "") -> TrainingJob:
    """Read a TrainingJob and apply every rule, also those that admission should have applied.

    Args:
        obj: the object as JSON or YAML gives it; an absent namespace is `default`.
        controller_namespace: where the controller itself runs, and no job may; empty where nobody knows.

    Raises:
        InvalidJobError: a rule is broken; `.problems` lists every one that was found. Types and bounds of single
            fields are judged first; rules over several fields only where those hold.
    """
    label = f"job {_label(obj)}"
    if _is_deeper(_spec_of(obj), MAX_LEVELS):
        raise _invalid(label, [f"spec is nested deeper than {MAX_LEVELS} levels; write it with fewer"])
    try:
        job = TrainingJob.model_validate(obj)
    except ValidationError as error:
        raise _invalid(label, describe(error, TrainingJob)) from None
    problems = [*_kind_problems(obj), *find_problems(job)]
    if controller_namespace and job.key.namespace == controller_namespace:
        problems.append(f"namespace {controller_namespace} is the controller's own; create the job in another one")
    if problems:
        raise _invalid(label, problems)
    return job


def _spec_of(obj: object) -> object:
    return obj.get("spec") if isinstance(obj, Mapping) else None


def _is_deeper(value: object, levels: int) -> bool:
    """True where lists and objects stand in one another more than so many times; looks no deeper than that."""
    layer = [value]
    for _ in range(levels):
        layer = list({id(inner): inner for outer in layer for inner in _parts(outer)}.values())  # YAML may share them
    return any(isinstance(value, list | Mapping) for value in layer)


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def _kind_problems(obj: Mapping[str, Any]) -> Iterator[str]:
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        given = obj.get(field, expected)
        if given != expected:
            yield f"{field} {str(given)[:60]!r} is not {expected}; correct it"


def _invalid(label: str, problems: list[str]) -> InvalidJobError:
    unique = tuple(dict.fromkeys(problems))
    shown = list(unique[:_SHOWN_PROBLEMS])
    if len(unique) > _SHOWN_PROBLEMS:
        shown.append(f"and {len(unique) - _SHOWN_PROBLEMS} more problems")
    return InvalidJobError(f"{label}: " + ". Also: ".join(shown), unique)


def _label(obj: object) -> str:
    metadata = obj.get("metadata") if isinstance(obj, Mapping) else None
    if not isinstance(metadata, Mapping):
        return "without metadata"
    name, namespace = metadata.get("name"), metadata.get("namespace", "default")
    return f"{str(namespace)[:63]}/{str(name)[:253]}"
