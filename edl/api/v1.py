"""TrainingJob `paddlepaddle.org/v1` in pydantic: the one source of truth of the resource.

The CRD, the embedded API server and the controller all judge by these models. The field names of the original resource
are canonical, although they mix kebab-case and snake_case, because users' files must go on working; new fields are
camelCase. Whether a cluster has room for a job is not judged here, nor is anything defaulted that depends on a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AwareDatetime, Field, ValidationError

from edl.api.parts import Part, Rule, Whole, find_problems
from edl.api.problems import describe
from edl.api.roles import RoleSpec
from edl.api.spec import MAX_NAME_LENGTH, Spec
from edl.api.template import Volume
from edl.core.model import JobKey, Role
from edl.errors import InvalidJobError

GROUP = "paddlepaddle.org"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "TrainingJob"
PLURAL = "trainingjobs"

_NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
_SHOWN_PROBLEMS = 5


class Metadata(Part):
    """What the controller reads of an object's metadata."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    namespace: Annotated[str, Field(min_length=1, max_length=63)] = "default"
    uid: str = ""
    generation: Whole = 1
    creation_timestamp: Annotated[AwareDatetime, Field(strict=False)] | None = None
    deletion_timestamp: Annotated[AwareDatetime, Field(strict=False)] | None = None


def _check_name(job: TrainingJob) -> Iterator[str]:
    name = job.metadata.name
    if len(name) > MAX_NAME_LENGTH:
        yield f"name has {len(name)} characters, and pods are named after it; shorten it to {MAX_NAME_LENGTH}"
    elif not re.fullmatch(_NAME, name):
        yield (
            f'name "{name}" is not a lowercase letter followed by letters, digits and hyphens, which the Service of '
            "that name needs; rename the job"
        )


def _check_token_volumes(job: TrainingJob) -> Iterator[str]:
    prefix = f"{job.metadata.name}-token-"
    for volume in job.all_volumes():
        secret = volume.secret.secret_name if volume.secret else None
        if volume.name.startswith(prefix) or (secret or "").startswith(prefix):
            yield f"volume {volume.name} is the job's own token volume; remove it, the controller mounts it"


def _token_volume_rules() -> tuple[Rule, ...]:
    owners = [(), *(("spec", role.value, "template") for role in (Role.MASTER, Role.PSERVER, Role.TRAINER))]
    rules = []
    for owner in owners:
        steps = ["spec", *owner[1:], *(["spec"] if owner else []), "volumes"]
        paths = ["self." + ".".join(steps[: i + 1]) for i in range(1, len(steps))]
        guards = " || ".join(f"!has({path})" for path in paths)
        prefix = "self.metadata.name + '-token-'"
        test = (
            f"!v.name.startsWith({prefix}) && "
            f"(!has(v.secret) || !has(v.secret.secretName) || !v.secret.secretName.startsWith({prefix}))"
        )
        rules.append(
            Rule(
                cel=f"{guards} || {paths[-1]}.all(v, {test})",
                message="the job's own token volume is mounted by the controller; remove it",
                check=_check_token_volumes if not owner else lambda _: iter(()),
            )
        )
    return tuple(rules)
