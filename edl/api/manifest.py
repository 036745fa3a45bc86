"""The Kubernetes objects of a TrainingJob: pods, Service, Secret, volume claim and PodGroup.

The planner reads the shapes of a job's pods from the same dictionaries that are sent to the API server. Names are
deterministic: an existing object with the same name and the job's UID as owner is the object of this job.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from edl.api.environment import CONTROLLER_TOKEN, MASTER_PORT, TRAINER_TOKEN, environment
from edl.api.lending import lending_spec
from edl.api.overlay import apply_template, avoid_nodes, prefer_node, require_label, require_node
from edl.api.priorities import priority_classes_of
from edl.api.requests import requests_digest
from edl.api.resources import Requirements
from edl.api.spec import LedgerLoss
from edl.api.template import JOURNAL_DIRECTORY, JOURNAL_VOLUME, TOKEN_DIRECTORY, TOKEN_VOLUME
from edl.api.v1 import API_VERSION, KIND, TrainingJob
from edl.model.names import (
    ANNOTATION_DECLARED_CPU,
    ANNOTATION_JOURNAL,
    ANNOTATION_NODE,
    ANNOTATION_PINNED,
    ANNOTATION_REQUESTS,
    LABEL_INDEX,
    LABEL_JOB,
    LABEL_ROLE,
    Role,
)
from edl.model.resources import CPU, MEMORY

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"

_OLD_LABELS = {Role.TRAINER: "paddle-job", Role.PSERVER: "paddle-job-pserver", Role.MASTER: "paddle-job-master"}
_GRACE_S, _SURPLUS_GRACE_S = 30, 10
_MASTER_USER = 65532
_MASTER_AMOUNTS = {CPU: "250m", MEMORY: "256Mi"}
_DEFAULT_STORAGE = "1Gi"

Object = dict[str, Any]


def pod_name(job: TrainingJob, role: Role, index: int) -> str:
    """`<job>-<role>-<index>`, also the host name of the pod."""
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
    return f"{job.metadata.name}-journal-{job.uid[:8]}"


def pod_manifest(
    job: TrainingJob,
    role: Role,
    index: int,
    *,
    default_master_image: str,
    planned_node: str | None = None,
    pinned: bool = False,
    cpu_request: float = 1.0,
    may_evict: bool = False,
    priority_classes: Collection[str],
    claims_journal: bool = False,
    expected: tuple[int, int] | None = None,
    restarts_epoch: bool = False,
    label: tuple[str, str] | None = None,
    avoided: Collection[str] = (),
    is_best_effort: bool = True,
    max_grace_s: int | None = None,
) -> Object:
    """The pod of a role and index.

    Args:
        job: a valid job.
        role: the role of the pod; a master is rendered in either mode.
        index: the number of the pod within its role, from 0.
        default_master_image: image of the master if the job sets none.
        planned_node: the node that the planner chose; None for no preference.
        pinned: require the planned node; by default it is only preferred.
        cpu_request: the part of its CPU that a trainer requests, in (0, 1]; below 1 it may use all that it declares.
        may_evict: an autoscaler may evict the pod, unless the template has the annotation.
        priority_classes: PriorityClasses of the cluster; what a pod has whose class is missing, see
            `priority_classes_of`.
        claims_journal: put the master's journal on a volume claim although the job sets no storage, because the
            cluster has a default StorageClass.
        expected: for a master, the (epoch, positions done) that its journal must contain; None if it may be empty.
        restarts_epoch: for a master, what it does if its journal is lost: True restarts the epoch, False refuses.
        label: the (key, value) that the pod's node must have as a label; None for any node.
        avoided: nodes on which kube-scheduler must not put the pod.
        is_best_effort: False if a trainer without requests gets some by admission; see `priority_classes_of`.
        max_grace_s: the longest time that the pod has to end, in seconds; None for what the template says.
    """
    journal = _journal(job, claims_journal=claims_journal)
    spec = _pod_spec(job, role, index, default_master_image, journal)
    if role is Role.MASTER:
        spec["containers"][0]["command"] += _journal_flags(expected, restarts_epoch=restarts_epoch)
    template = job.role(role).template
    if template and template.spec:
        spec = apply_template(spec, template.spec, role)
    if max_grace_s is not None:  # others wait for its room
        spec["terminationGracePeriodSeconds"] = min(spec["terminationGracePeriodSeconds"], max_grace_s)
    wanted = priority_classes_of(job, role, index, spec, is_best_effort=is_best_effort)
    if priority_class := next((name for name in wanted if name in priority_classes), ""):
        spec["priorityClassName"] = priority_class
    if label:
        spec = require_label(spec, *label)
    if planned_node:
        spec = require_node(spec, planned_node) if pinned else prefer_node(spec, planned_node)
    if avoided:
        spec = avoid_nodes(spec, avoided)
    annotations = _annotations(role, planned_node, journal, pinned=pinned) | {
        ANNOTATION_REQUESTS: requests_digest(spec)
    }
    if role is Role.TRAINER and cpu_request < 1.0:
        spec, declared = lending_spec(spec, cpu_request)
        annotations |= {ANNOTATION_DECLARED_CPU: declared} if declared else {}
    if may_evict and SAFE_TO_EVICT not in (template.metadata.annotations if template and template.metadata else {}):
        annotations[SAFE_TO_EVICT] = "true"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _pod_metadata(job, role, index, annotations),
        "spec": _with_host_network(_without_api_token(spec)),
    }


def service_manifest(job: TrainingJob) -> Object:
    """The headless Service that gives every pod a DNS name, whether it is ready or not."""
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
    """The Secret with the two tokens of the job; trainers mount only the trainer token."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(job, token_secret_name(job)),
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
        "metadata": _metadata(job, claim_name(job)),
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
        "metadata": _metadata(job, job.metadata.name),
        "spec": spec,
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


def _annotations(role: Role, planned_node: str | None, journal: Object, *, pinned: bool) -> dict[str, str]:
    """The annotations in which the controller stores its plan for a pod."""
    annotations = {}
    if planned_node:
        annotations[ANNOTATION_NODE] = planned_node
        if pinned:
            annotations[ANNOTATION_PINNED] = "true"
    if role is Role.MASTER:
        annotations[ANNOTATION_JOURNAL] = "claim" if "persistentVolumeClaim" in journal else "emptyDir"
    return annotations


def _pod_metadata(job: TrainingJob, role: Role, index: int, own: dict[str, str]) -> Object:
    template = job.role(role).template
    extra = template.metadata if template else None
    metadata = _metadata(job, pod_name(job, role, index))
    metadata["labels"] = {**(extra.labels if extra else {}), **pod_labels(job, role, index)}
    annotations = {**(extra.annotations if extra else {}), **own}
    if job.needs_pod_group:
        annotations["scheduling.k8s.io/group-name"] = job.metadata.name
    if annotations:
        metadata["annotations"] = annotations
    return metadata


def _pod_spec(job: TrainingJob, role: Role, index: int, master_image: str, journal: Object) -> Object:
    """The pod spec before the template is applied."""
    spec: Object = {
        "hostname": pod_name(job, role, index),
        "subdomain": job.metadata.name,
        "restartPolicy": "OnFailure" if role is Role.MASTER else "Never",
        "terminationGracePeriodSeconds": _grace_s(job, role, index),
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


def _grace_s(job: TrainingJob, role: Role, index: int) -> int:
    """How long a pod has to end, if its template does not say so.

    Serving may wait for a surplus trainer to end. The data master gives to others what it has not reported, so it
    needs no more than a step.
    """
    is_surplus = role is Role.TRAINER and index >= job.spec.trainer.min_trainers
    return _SURPLUS_GRACE_S if is_surplus and job.has_master else _GRACE_S


def _container(job: TrainingJob, role: Role, index: int, master_image: str) -> Object:
    mounts = [mount.as_dict() for mount in job.volume_mounts]
    container: Object = {
        "name": role.value,
        "image": job.spec.image,
        "command": _command(job, role),
        "env": environment(job, role, index),
        "resources": _resources(job, role),
        "terminationMessagePolicy": "FallbackToLogsOnError",  # edl reads from the pod why it ended
    }
    if job.has_master or role is Role.MASTER:
        mounts.append({"name": TOKEN_VOLUME, "mountPath": TOKEN_DIRECTORY, "readOnly": True})
    if role is Role.MASTER:
        container["image"] = job.spec.master.image or master_image
        container["ports"] = [{"name": "master-port", "containerPort": MASTER_PORT}]
        container["readinessProbe"] = {
            "httpGet": {"path": "/healthz", "port": MASTER_PORT},
            "periodSeconds": 1,  # a job is Running only once its master is ready, and may end in seconds
            "failureThreshold": 15,
        }
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


def _journal_flags(expected: tuple[int, int] | None, *, restarts_epoch: bool) -> list[str]:
    if expected is None:
        return []
    flags = ["--expect-progress", f"{expected[0]}:{expected[1]}"]
    return [*flags, "--on-ledger-lost", LedgerLoss.RESTART_EPOCH.value] if restarts_epoch else flags


def _dataset(job: TrainingJob) -> Object:
    """The body of `POST /v1/dataset`, without `onLedgerLost`, which only the controller uses."""
    dataset = job.spec.dataset
    fields = dataset.model_dump(by_alias=True, exclude_none=True, exclude={"on_ledger_lost"}) if dataset else {}
    return {"epochs": job.passes, **fields}


def _resources(job: TrainingJob, role: Role) -> Object:
    resources = job.role(role).resources
    if resources is None:
        resources = Requirements.model_validate(
            {"requests": _MASTER_AMOUNTS, "limits": _MASTER_AMOUNTS} if role is Role.MASTER else {}
        )
    amounts = {"requests": resources.effective_requests(), "limits": resources.effective_limits()}
    return {field: values for field, values in amounts.items() if values}


def _token_volume(job: TrainingJob, role: Role) -> Object:
    keys = (TRAINER_TOKEN, CONTROLLER_TOKEN) if role is Role.MASTER else (TRAINER_TOKEN,)
    secret = {"secretName": token_secret_name(job), "items": [{"key": key, "path": key} for key in keys]}
    return {"name": TOKEN_VOLUME, "secret": secret}


def _journal(job: TrainingJob, *, claims_journal: bool) -> Object:
    if job.spec.master.storage or claims_journal:
        return {"name": JOURNAL_VOLUME, "persistentVolumeClaim": {"claimName": claim_name(job)}}
    return {"name": JOURNAL_VOLUME, "emptyDir": {}}


def _without_api_token(spec: Object) -> Object:
    """The pod spec without an API token, unless the template sets a ServiceAccount."""
    if "serviceAccountName" in spec or "automountServiceAccountToken" in spec:
        return spec
    return {**spec, "automountServiceAccountToken": False}


def _with_host_network(spec: Object) -> Object:
    """The pod spec with the host ports and the DNS policy that a pod in the network of its node needs."""
    if not spec.get("hostNetwork"):
        return spec
    containers = [
        {**c, "ports": [{**p, "hostPort": p["containerPort"]} for p in c["ports"]]} if "ports" in c else c
        for c in spec["containers"]
    ]
    return {"dnsPolicy": "ClusterFirstWithHostNet", **spec, "containers": containers}
