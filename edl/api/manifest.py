"""TrainingJob -> the Kubernetes objects that it becomes: pods, Service, Secret, volume claim, PodGroup.

The planner takes the shapes of a job's pods from these very dictionaries, so they are exactly what is sent to the API
server. Names are deterministic: whoever finds one already there, with the job's UID as its owner, has found its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from edl.api.environment import CONTROLLER_TOKEN, MASTER_PORT, TRAINER_TOKEN, environment
from edl.api.overlay import demand_node, lay_over, prefer_node
from edl.api.resources import Requirements
from edl.api.spec import LedgerLoss
from edl.api.template import JOURNAL_DIRECTORY, JOURNAL_VOLUME, TOKEN_DIRECTORY, TOKEN_VOLUME
from edl.api.v1 import API_VERSION, KIND, TrainingJob
from edl.model.names import (
    ANNOTATION_JOURNAL,
    ANNOTATION_NODE,
    ANNOTATION_PINNED,
    LABEL_INDEX,
    LABEL_JOB,
    LABEL_ROLE,
    Role,
)
from edl.model.resources import CPU, MEMORY

PRIORITY_CORE = "edl-core"
PRIORITY_TRAINING = "edl-training"
PRIORITY_SURPLUS = "edl-surplus"
PRIORITY_CLASSES = (PRIORITY_CORE, PRIORITY_TRAINING, PRIORITY_SURPLUS)

_SELECTED_BY = {Role.TRAINER: "paddle-job", Role.PSERVER: "paddle-job-pserver", Role.MASTER: "paddle-job-master"}
_GRACE_S = 30
_MASTER_USER = 65532
_MASTER_AMOUNTS = {CPU: "250m", MEMORY: "256Mi"}
_DEFAULT_CLAIM = "1Gi"

Object = dict[str, Any]


def pod_name(job: TrainingJob, role: Role, index: int) -> str:
    """`<job>-<role>-<index>`, also the pod's host name."""
    return f"{job.metadata.name}-{role.value}-{index}"


def pod_labels(job: TrainingJob, role: Role, index: int) -> dict[str, str]:
    """The labels of a pod, without those of the template."""
    name = job.metadata.name
    return {
        "app.kubernetes.io/name": "edl",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": role.value,
        "app.kubernetes.io/managed-by": "edl",
        LABEL_JOB: name,
        LABEL_ROLE: role.value,
        LABEL_INDEX: str(index),
        _SELECTED_BY[role]: name,
    }


def role_selector(job: TrainingJob, role: Role) -> str:
    """The label selector of the pods of a role, as text: `status.selector` is that of the trainers."""
    return f"{LABEL_JOB}={job.metadata.name},{LABEL_ROLE}={role.value}"


def owner_reference(job: TrainingJob) -> Object:
    """The reference by which everything of a job is collected with it.

    It does not block the owner's deletion: that would take a right on the job's finalizers.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.metadata.name,
        "uid": job.uid,
        "controller": True,
    }


def token_secret_name(job: TrainingJob) -> str:
    """Named by the UID too, because a job of the same name may have left its own."""
    return f"{job.metadata.name}-token-{job.uid[:8]}"


def claim_name(job: TrainingJob) -> str:
    """Named by the UID too: a journal belongs to one job, not to all that ever had its name."""
    return f"{job.metadata.name}-journal-{job.uid[:8]}"


def pod_manifest(
    job: TrainingJob,
    role: Role,
    index: int,
    *,
    default_master_image: str,
    planned_node: str | None = None,
    pinned: bool = False,
    priority_classes: Collection[str],
    claims_journal: bool = False,
    expected: tuple[int, int] | None = None,
    restarts_epoch: bool = False,
) -> Object:
    """The pod of a role and index.

    Args:
        job: a valid job.
        role: what the pod is for; a master is made whether or not the job's mode runs one.
        index: its number within the role, from 0.
        default_master_image: for a master whose job names no image.
        planned_node: where the planner wants it.
        pinned: it may go nowhere else; by default the node is only preferred.
        priority_classes: those that the cluster has; a pod whose class is missing goes without.
        claims_journal: the master's journal is on a volume claim although the job asks for none, because the
            cluster has a default StorageClass.
        expected: (epoch, positions done) that a master's journal must tell of; None where it may be empty.
        restarts_epoch: a master whose journal is lost begins that epoch again, instead of refusing.
    """
    journal = _journal(job, claims_journal=claims_journal)
    spec = _pod_spec(job, role, index, default_master_image, journal)
    if role is Role.MASTER:
        spec["containers"][0]["command"] += _expectation(expected, restarts_epoch=restarts_epoch)
    template = job.role(role).template
    if template and template.spec:
        spec = lay_over(spec, template.spec, role)
    wanted = _priority_class(job, role, index)
    if wanted in priority_classes:
        spec["priorityClassName"] = wanted
    if planned_node:
        spec = demand_node(spec, planned_node) if pinned else prefer_node(spec, planned_node)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _pod_metadata(job, role, index, _notes(role, planned_node, journal, pinned=pinned)),
        "spec": _settle_network(_settle_account(spec)),
    }


def service_manifest(job: TrainingJob) -> Object:
    """The headless Service that gives every pod its own DNS name, ready or not."""
    port = job.spec.port
    ports = {port: f"jobport-{port}"}
    if job.has_master:
        ports.setdefault(MASTER_PORT, "master-port")
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, job.metadata.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {LABEL_JOB: job.metadata.name},
            "ports": [{"name": name, "port": number, "targetPort": number} for number, name in ports.items()],
        },
    }


def token_secret_manifest(job: TrainingJob, trainer_token: str, controller_token: str) -> Object:
    """The Secret with the job's two tokens; trainers mount only theirs."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(job, token_secret_name(job)),
        "type": "Opaque",
        "immutable": True,
        "stringData": {TRAINER_TOKEN: trainer_token, CONTROLLER_TOKEN: controller_token},
    }


def volume_claim_manifest(job: TrainingJob) -> Object:
    """The claim for the master's journal: as `spec.master.storage` says, else 1Gi of the default class."""
    storage = job.spec.master.storage
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(storage.size) if storage else _DEFAULT_CLAIM}},
    }
    if storage and storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _metadata(job, claim_name(job)),
        "spec": spec,
    }


def pod_group_manifest(job: TrainingJob) -> Object:
    """Volcano's PodGroup of the minimum set; surplus trainers join it but are not waited for."""
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": _metadata(job, job.metadata.name),
        "spec": {"minMember": sum(job.minimum(role) for role in Role), "queue": "default"},
    }


def _metadata(job: TrainingJob, name: str) -> Object:
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


def _notes(role: Role, planned_node: str | None, journal: Object, *, pinned: bool) -> dict[str, str]:
    """The annotations by which the controller knows again what it meant with a pod."""
    notes = {}
    if planned_node:
        notes[ANNOTATION_NODE] = planned_node
        if pinned:
            notes[ANNOTATION_PINNED] = "true"
    if role is Role.MASTER:
        notes[ANNOTATION_JOURNAL] = "claim" if "persistentVolumeClaim" in journal else "emptyDir"
    return notes


def _pod_metadata(job: TrainingJob, role: Role, index: int, notes: dict[str, str]) -> Object:
    template = job.role(role).template
    extra = template.metadata if template else None
    metadata = _metadata(job, pod_name(job, role, index))
    metadata["labels"] = {**(extra.labels if extra else {}), **pod_labels(job, role, index)}
    annotations = {**(extra.annotations if extra else {}), **notes}
    if job.needs_pod_group:
        annotations["scheduling.k8s.io/group-name"] = job.metadata.name
    if annotations:
        metadata["annotations"] = annotations
    return metadata


def _pod_spec(job: TrainingJob, role: Role, index: int, master_image: str, journal: Object) -> Object:
    """The pod as the controller alone would make it."""
    spec: Object = {
        "hostname": pod_name(job, role, index),
        "subdomain": job.metadata.name,
        "restartPolicy": "OnFailure" if role is Role.MASTER else "Never",
        "terminationGracePeriodSeconds": _GRACE_S,
        "enableServiceLinks": False,
        "containers": [_container(job, role, index, master_image)],
    }
    volumes = [volume.as_dict() for volume in job.spec.volumes]
    if job.has_master or role is Role.MASTER:
        volumes.append(_token_volume(job, role))
    if role is Role.MASTER:
        volumes.append(journal)
        spec["securityContext"] = {
            "runAsNonRoot": True,
            "runAsUser": _MASTER_USER,
            "runAsGroup": _MASTER_USER,
            "fsGroup": _MASTER_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    if volumes:
        spec["volumes"] = volumes
    if job.spec.image_pull_secrets:
        spec["imagePullSecrets"] = [secret.as_dict() for secret in job.spec.image_pull_secrets]
    if job.host_network:
        spec["hostNetwork"] = True
    if job.spec.scheduler_name:
        spec["schedulerName"] = job.spec.scheduler_name
    return spec


def _container(job: TrainingJob, role: Role, index: int, master_image: str) -> Object:
    mounts = [mount.as_dict() for mount in job.volume_mounts]
    container: Object = {
        "name": role.value,
        "image": job.spec.image,
        "command": _command(job, role),
        "env": environment(job, role, index),
        "resources": _resources(job, role),
    }
    if job.has_master or role is Role.MASTER:
        mounts.append({"name": TOKEN_VOLUME, "mountPath": TOKEN_DIRECTORY, "readOnly": True})
    if role is Role.MASTER:
        container["image"] = job.spec.master.image or master_image
        container["ports"] = [{"name": "master-port", "containerPort": MASTER_PORT}]
        container["readinessProbe"] = {
            "httpGet": {"path": "/healthz", "port": MASTER_PORT},
            "periodSeconds": 1,  # a job is not Running before its master is ready, and may be over in seconds
            "failureThreshold": 15,
        }
        container["terminationMessagePolicy"] = "FallbackToLogsOnError"  # why it ended is read from the pod
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        mounts.append({"name": JOURNAL_VOLUME, "mountPath": JOURNAL_DIRECTORY})
    else:
        container["ports"] = [{"name": f"jobport-{port}", "containerPort": port} for port in job.spec.ports]
    if mounts:
        container["volumeMounts"] = mounts
    return container


def _command(job: TrainingJob, role: Role) -> list[str]:
    if role is not Role.MASTER:
        return ["paddle_k8s", f"start_{'new_' if job.spec.fault_tolerant else ''}{role.value}"]
    command = ["edl", "master", "--listen", f"0.0.0.0:{MASTER_PORT}", "--journal", JOURNAL_DIRECTORY]
    command += ["--token-file", f"{TOKEN_DIRECTORY}/{TRAINER_TOKEN}"]
    command += ["--controller-token-file", f"{TOKEN_DIRECTORY}/{CONTROLLER_TOKEN}"]
    if job.spec.dataset:
        command += ["--dataset", json.dumps(_dataset(job), sort_keys=True)]
    return command


def _expectation(expected: tuple[int, int] | None, *, restarts_epoch: bool) -> list[str]:
    if expected is None:
        return []
    flags = ["--expect-progress", f"{expected[0]}:{expected[1]}"]
    return [*flags, "--on-ledger-lost", LedgerLoss.RESTART_EPOCH.value] if restarts_epoch else flags


def _dataset(job: TrainingJob) -> Object:
    """What `POST /v1/dataset` takes; what to do about a lost ledger is for the controller to know."""
    given = job.spec.dataset
    fields = given.model_dump(by_alias=True, exclude_none=True, exclude={"on_ledger_lost"}) if given else {}
    return {"epochs": job.passes, **fields}


def _resources(job: TrainingJob, role: Role) -> Object:
    given = job.role(role).resources
    if given is None:
        given = Requirements.model_validate(
            {"requests": _MASTER_AMOUNTS, "limits": _MASTER_AMOUNTS} if role is Role.MASTER else {}
        )
    amounts = {"requests": given.effective_requests(), "limits": given.effective_limits()}
    return {field: values for field, values in amounts.items() if values}


def _token_volume(job: TrainingJob, role: Role) -> Object:
    keys = (TRAINER_TOKEN, CONTROLLER_TOKEN) if role is Role.MASTER else (TRAINER_TOKEN,)
    secret = {"secretName": token_secret_name(job), "items": [{"key": key, "path": key} for key in keys]}
    return {"name": TOKEN_VOLUME, "secret": secret}


def _journal(job: TrainingJob, *, claims_journal: bool) -> Object:
    if job.spec.master.storage or claims_journal:
        return {"name": JOURNAL_VOLUME, "persistentVolumeClaim": {"claimName": claim_name(job)}}
    return {"name": JOURNAL_VOLUME, "emptyDir": {}}


def _priority_class(job: TrainingJob, role: Role, index: int) -> str:
    if role is not Role.TRAINER:
        return PRIORITY_CORE
    return PRIORITY_TRAINING if index < job.spec.trainer.min_instance else PRIORITY_SURPLUS


def _settle_account(spec: Object) -> Object:
    """No API token unless the template asks for an account of its own."""
    if "serviceAccountName" in spec or "automountServiceAccountToken" in spec:
        return spec
    return {**spec, "automountServiceAccountToken": False}


def _settle_network(spec: Object) -> Object:
    """In the host's network every port is one of the node's, and cluster names need their own DNS policy."""
    if not spec.get("hostNetwork"):
        return spec
    containers = [
        {**c, "ports": [{**p, "hostPort": p["containerPort"]} for p in c["ports"]]} if "ports" in c else c
        for c in spec["containers"]
    ]
    return {"dnsPolicy": "ClusterFirstWithHostNet", **spec, "containers": containers}
