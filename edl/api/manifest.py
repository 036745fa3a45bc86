"""The Kubernetes objects of a TrainingJob beside its pods: Service, Secret, volume claim and PodGroup; and all names.

Names are deterministic: an existing object with the same name and the job's UID as owner is the object of this job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edl.api.environment import CONTROLLER_TOKEN, MASTER_PORT, TRAINER_TOKEN
from edl.api.v1 import API_VERSION, KIND, TrainingJob
from edl.model.names import (
    LABEL_INDEX,
    LABEL_JOB,
    LABEL_ROLE,
    Role,
)

_OLD_LABELS = {Role.TRAINER: "paddle-job", Role.PSERVER: "paddle-job-pserver", Role.MASTER: "paddle-job-master"}
_DEFAULT_STORAGE = "1Gi"

Object = dict[str, Any]


def pod_name(job: TrainingJob, role: Role, index: int) -> str:
    """The name of a pod and its host name: `<job>-<role>-<index>`."""
    return f"{job.metadata.name}-{role.value}-{index}"


def pod_labels(job: TrainingJob, role: Role, index: int) -> dict[str, str]:
    """The labels that edl sets on a pod; labels of the template come in addition."""
    name = job.metadata.name
    return {
        "app.kubernetes.io/name": "edl",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": role.value,
        "app.kubernetes.io/managed-by": "edl",
        LABEL_JOB: name,
        LABEL_ROLE: role.value,
        LABEL_INDEX: str(index),
        _OLD_LABELS[role]: name,
    }


def role_selector(job: TrainingJob, role: Role) -> str:
    """The label selector of the pods of a role, as text; `status.selector` is that of the trainers."""
    return f"{LABEL_JOB}={job.metadata.name},{LABEL_ROLE}={role.value}"


def owner_reference(job: TrainingJob) -> Object:
    """The owner reference with which Kubernetes deletes an object together with its job.

    It has no `blockOwnerDeletion`, which would need the right to update the finalizers of jobs.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.metadata.name,
        "uid": job.uid,
        "controller": True,
    }


def token_secret_name(job: TrainingJob) -> str:
    """The name of the token Secret, with the UID: an earlier job of this name may have left its own Secret."""
    return f"{job.metadata.name}-token-{job.uid[:8]}"


def claim_name(job: TrainingJob) -> str:
    """The name of the volume claim of the journal, with the UID: a journal belongs to one job only."""
    return claim_name_of(job.metadata.name, job.uid)


def claim_name_of(job: str, uid: str) -> str:
    """The name of the journal's volume claim, from the name and the UID of the job."""
    return f"{job}-journal-{uid[:8]}"


def service_manifest(job: TrainingJob) -> Object:
    """The headless Service that gives every pod a DNS name, whether it is ready or not."""
    port = job.spec.port
    ports = {port: f"jobport-{port}"}
    if job.has_master:
        ports.setdefault(MASTER_PORT, "master-port")
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata_of(job, job.metadata.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {LABEL_JOB: job.metadata.name},
            "ports": [{"name": name, "port": number, "targetPort": number} for number, name in ports.items()],
        },
    }


def token_secret_manifest(job: TrainingJob, trainer_token: str, controller_token: str) -> Object:
    """The Secret with the two tokens of the job; trainers mount only the trainer token."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata_of(job, token_secret_name(job)),
        "type": "Opaque",
        "immutable": True,
        "stringData": {TRAINER_TOKEN: trainer_token, CONTROLLER_TOKEN: controller_token},
    }


def volume_claim_manifest(job: TrainingJob) -> Object:
    """The volume claim for the master's journal: `spec.master.storage`, or 1Gi of the default StorageClass."""
    storage = job.spec.master.storage
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(storage.size) if storage else _DEFAULT_STORAGE}},
    }
    if storage and storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata_of(job, claim_name(job)),
        "spec": spec,
    }


def pod_group_manifest(job: TrainingJob, least: Mapping[str, str], priority_class: str) -> Object:
    """Volcano's PodGroup of the minimum set; Volcano does not wait for the surplus trainers in it.

    Args:
        job: a valid job.
        least: what the pods of the minimum set request together; the group begins once its queue has that.
        priority_class: the PriorityClass by which Volcano orders the group; empty for none.
    """
    spec: Object = {
        "minMember": sum(job.minimum(role) for role in Role),
        "minResources": dict(least),
        "queue": job.spec.queue,
    }
    if priority_class:
        spec["priorityClassName"] = priority_class
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": metadata_of(job, job.metadata.name),
        "spec": spec,
    }


def metadata_of(job: TrainingJob, name: str) -> Object:
    """The metadata of an object that belongs to a job."""
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": {
            "app.kubernetes.io/name": "edl",
            "app.kubernetes.io/instance": job.metadata.name,
            "app.kubernetes.io/managed-by": "edl",
            LABEL_JOB: job.metadata.name,
        },
        "ownerReferences": [owner_reference(job)],
    }
