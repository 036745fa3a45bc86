"""The environment variables of a job's containers: those that Paddle and its scripts read, and those of edl.

A variable cannot change while its pod exists, so the current members of a job are not among them: containers get them
from the master, or from `k8s_tools`.
"""

from __future__ import annotations

import math
from typing import Any

from edl.api.template import TOKEN_DIRECTORY
from edl.api.v1 import TrainingJob
from edl.model.names import Role
from edl.model.quantity import exact_quantity
from edl.model.resources import CPU, GPU

MASTER_PORT = 8080
TRAINER_TOKEN = "trainer"  # noqa: S105 - a file name and a key of the Secret
CONTROLLER_TOKEN = "controller"  # noqa: S105
CUDA_LIBRARIES = "/usr/local/cuda/lib64"


def environment(job: TrainingJob, role: Role, index: int) -> list[dict[str, Any]]:
    """The variables of the container of one pod, in the order of the documentation.

    Gang mode has no master: `EDL_MASTER` and `EDL_TOKEN_FILE` are empty there, so a client does not wait for one.
    """
    values = {**_paddle_variables(job, role), **_edl_variables(job, role, index)}
    fields = {
        "NAMESPACE": "metadata.namespace",
        "POD_NAME": "metadata.name",
        "POD_UID": "metadata.uid",
        "POD_IP": "status.podIP",
        "PADDLE_CURRENT_IP": "status.podIP",
    }
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
    ]


def master_url(job: TrainingJob) -> str:
    """The URL of the master of a job, by its DNS name, which stays the same when its pod is replaced."""
    name, namespace = job.metadata.name, job.metadata.namespace
    return f"http://{name}-{Role.MASTER.value}-0.{name}.{namespace}.svc:{MASTER_PORT}"


def _paddle_variables(job: TrainingJob, role: Role) -> dict[str, str]:
    spec = job.spec
    trainers, pservers = str(spec.trainer.min_trainers), str(spec.pserver.min_pservers)
    devices = _devices(job)
    return {
        "PADDLE_JOB_NAME": job.metadata.name,
        "TRAINERS": trainers,
        "PSERVERS": pservers,
        "ENTRY": spec.trainer.entrypoint,
        "TOPOLOGY": spec.trainer.entrypoint,
        "TRAINER_PACKAGE": spec.trainer.workspace,
        "PADDLE_INIT_PORT": str(spec.port),
        "PADDLE_INIT_TRAINER_COUNT": str(devices or _whole_cpus(job)),
        "PADDLE_INIT_PORTS_NUM": str(spec.ports_num),
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": str(spec.ports_num_for_sparse),
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": trainers,
        "PADDLE_INIT_NUM_PASSES": str(job.passes),
        "PADDLE_INIT_USE_GPU": "1" if devices else "0",
        "LD_LIBRARY_PATH": CUDA_LIBRARIES,
        "PADDLE_IS_LOCAL": "0",
        "PADDLE_TRAINERS_NUM": trainers,
        "PADDLE_PSERVERS_NUM": pservers,
        "PADDLE_PORT": str(spec.port),
        "PADDLE_TRAINING_ROLE": role.value.upper(),
        "TRAINING_ROLE": role.value.upper(),
        "PYTHONUNBUFFERED": "1",
    }


def _edl_variables(job: TrainingJob, role: Role, index: int) -> dict[str, str]:
    return {
        "EDL_JOB_UID": job.uid,
        "EDL_MASTER": master_url(job) if job.has_master else "",
        "EDL_ROLE": role.value,
        "EDL_INDEX": str(index),
        "EDL_TOKEN_FILE": f"{TOKEN_DIRECTORY}/{TRAINER_TOKEN}" if job.has_master else "",
        **_step_variables(job),
    }


def _step_variables(job: TrainingJob) -> dict[str, str]:
    """The variables of trainers that train in step; other jobs have none."""
    elasticity = job.spec.elasticity
    values = {}
    if elasticity.global_batch is not None:
        values["EDL_GLOBAL_BATCH"] = str(elasticity.global_batch)
    if elasticity.max_global_batch is not None:
        values["EDL_GLOBAL_BATCH_MAX"] = str(elasticity.max_global_batch)
    if elasticity.deterministic:
        values["EDL_LOGICAL_RANKS"] = str(job.spec.trainer.max_trainers)
    return values


def _devices(job: TrainingJob) -> int:
    return int(_trainer_requests(job).get(GPU, "0"))


def _whole_cpus(job: TrainingJob) -> int:
    return max(1, math.floor(exact_quantity(_trainer_requests(job).get(CPU, "0"), CPU)))


def _trainer_requests(job: TrainingJob) -> dict[str, str]:
    resources = job.spec.trainer.resources
    return resources.effective_requests() if resources else {}
