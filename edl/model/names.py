"""Names of jobs and pods: job keys, roles, and the labels and annotations that edl writes on pods."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

LABEL_JOB = "paddlepaddle.org/job"
LABEL_ROLE = "paddlepaddle.org/role"
LABEL_INDEX = "paddlepaddle.org/index"
ANNOTATION_NODE = "paddlepaddle.org/planned-node"
ANNOTATION_PINNED = "paddlepaddle.org/pinned"
ANNOTATION_INTENT = "paddlepaddle.org/intent"
ANNOTATION_JOURNAL = "paddlepaddle.org/journal"

CONTROLLER_NAMESPACE = "paddlecloud"
"""The namespace of the controller in a default installation; TrainingJobs are invalid there."""

KEY_SECRET = "edl-master-key"  # noqa: S105 - a name
"""The Secret with the key from which the tokens of the data masters are derived; in the controller's namespace."""


class JobKey(NamedTuple):
    """Namespace and name of a TrainingJob; also the tie-breaker between jobs that are otherwise equal."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Role(StrEnum):
    """What a pod of a job is for."""

    MASTER = "master"
    PSERVER = "pserver"
    TRAINER = "trainer"
