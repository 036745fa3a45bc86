"""The pods of a TrainingJob: one manifest for each role and index.

The planner reads the shapes of a job's pods from the same dictionaries that are sent to the API server.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from edl.api.environment import CONTROLLER_TOKEN, MASTER_PORT, TRAINER_TOKEN, environment
from edl.api.lending import lending_spec
from edl.api.manifest import Object, claim_name, metadata_of, pod_labels, pod_name, token_secret_name
from edl.api.overlay import apply_template, avoid_nodes, prefer_node, require_labels, require_node
from edl.api.priorities import priority_classes_of
from edl.api.requests import requests_digest
from edl.api.resources import Requirements
from edl.api.spec import LedgerLoss
from edl.api.template import JOURNAL_DIRECTORY, JOURNAL_VOLUME, TOKEN_DIRECTORY, TOKEN_VOLUME
from edl.api.v1 import TrainingJob
from edl.model.names import (
    ANNOTATION_DECLARED_CPU,
    ANNOTATION_JOURNAL,
    ANNOTATION_NODE,
    ANNOTATION_PINNED,
    ANNOTATION_REQUESTS,
    Role,
)
from edl.model.resources import CPU, MEMORY

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"

_GRACE_S, _SURPLUS_GRACE_S = 30, 10
_MASTER_USER = 65532
_MASTER_AMOUNTS = {CPU: "250m", MEMORY: "256Mi"}


@dataclass(frozen=True, slots=True)
class PodPlace:
    """The node of a pod, as far as edl decides it.

    Attributes:
        node: the node that the planner chose; None for no preference.
        is_required: the pod requires that node; by default it only prefers it.
        labels: the (key, value) of each label that the pod's node must have.
        avoided: nodes on which kube-scheduler must not put the pod.
    """

    node: str | None = None
    is_required: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    avoided: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class PodTerms:
    """The share of its CPU that a pod requests, its rank among trainers, and who may end it, and how fast.

    Attributes:
        cpu_request: the part of its CPU that a trainer requests, in (0, 1]; below 1 it may use all that it declares.
        is_best_effort: False if a trainer without requests gets some by admission; see `priority_classes_of`.
        is_base: it belongs to the minimum of the job, whatever its index is; see `priority_classes_of`.
        may_evict: an autoscaler may evict the pod, unless the template has the annotation.
        max_grace_s: the longest time that the pod has to end, in seconds; None for what the template says.
    """

    cpu_request: float = 1.0
    is_best_effort: bool = True
    is_base: bool = False
    may_evict: bool = False
    max_grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class MasterJournal:
    """The journal of a master: where it is, and what the master does if records are missing in it.

    Attributes:
        has_claim: put the journal on a volume claim although the job sets no storage, because the cluster has a
            default StorageClass.
        expected: the (epoch, positions done) that the journal must contain; None if it may be empty.
        restarts_epoch: if the journal is lost, True restarts the epoch, and False lets the master refuse to start.
    """

    has_claim: bool = False
    expected: tuple[int, int] | None = None
    restarts_epoch: bool = False


ANYWHERE, USUAL, NEW_JOURNAL = PodPlace(), PodTerms(), MasterJournal()


def pod_manifest(
    job: TrainingJob,
    role: Role,
    index: int,
    *,
    default_master_image: str,
    priority_classes: Collection[str],
    place: PodPlace = ANYWHERE,
    terms: PodTerms = USUAL,
    journal: MasterJournal = NEW_JOURNAL,
) -> Object:
    """The pod of a role and index.

    Args:
        job: a valid job.
        role: the role of the pod; a master is rendered in either mode.
        index: the number of the pod within its role, from 0.
        default_master_image: image of the master if the job sets none.
        priority_classes: PriorityClasses of the cluster; what a pod has whose class is missing, see
            `priority_classes_of`.
        place: the node; by default kube-scheduler chooses any.
        terms: by default the pod requests all that it declares, and only edl and serving may end it.
        journal: of a master; by default it may be empty.
    """
    volume = _journal(job, has_claim=journal.has_claim)
    spec = _templated(job, role, _pod_spec(job, role, index, default_master_image, volume), journal)
    if terms.max_grace_s is not None:  # others wait for its capacity
        spec["terminationGracePeriodSeconds"] = min(spec["terminationGracePeriodSeconds"], terms.max_grace_s)
    wanted = priority_classes_of(job, role, index, spec, is_best_effort=terms.is_best_effort, is_base=terms.is_base)
    if priority_class := next((name for name in wanted if name in priority_classes), ""):
        spec["priorityClassName"] = priority_class
    spec = _placed(spec, place)
    annotations = _annotations(role, place, volume) | {ANNOTATION_REQUESTS: requests_digest(spec)}
    if role is Role.TRAINER and terms.cpu_request < 1.0:
        spec, declared = lending_spec(spec, terms.cpu_request)
        annotations |= {ANNOTATION_DECLARED_CPU: declared} if declared else {}
    template = job.role(role).template
    if terms.may_evict and SAFE_TO_EVICT not in (
        template.metadata.annotations if template and template.metadata else {}
    ):
        annotations[SAFE_TO_EVICT] = "true"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _pod_metadata(job, role, index, annotations),
        "spec": _with_host_network(_without_api_token(spec)),
    }


def _templated(job: TrainingJob, role: Role, spec: Object, journal: MasterJournal) -> Object:
    """The spec with the flags of a master and with the template of the role."""
    if role is Role.MASTER:
        spec["containers"][0]["command"] += _journal_flags(journal)
    template = job.role(role).template
    return apply_template(spec, template.spec, role) if template and template.spec else spec


def _placed(spec: Object, place: PodPlace) -> Object:
    """The spec with the affinity for its place."""
    if place.labels:
        spec = require_labels(spec, place.labels)
    if place.node:
        spec = require_node(spec, place.node) if place.is_required else prefer_node(spec, place.node)
    return avoid_nodes(spec, place.avoided) if place.avoided else spec


def _annotations(role: Role, place: PodPlace, journal: Object) -> dict[str, str]:
    """The annotations in which the controller stores its plan for a pod."""
    annotations = {}
    if place.node:
        annotations[ANNOTATION_NODE] = place.node
        if place.is_required:
            annotations[ANNOTATION_PINNED] = "true"
    if role is Role.MASTER:
        annotations[ANNOTATION_JOURNAL] = "claim" if "persistentVolumeClaim" in journal else "emptyDir"
    return annotations


def _pod_metadata(job: TrainingJob, role: Role, index: int, own: dict[str, str]) -> Object:
    template = job.role(role).template
    extra = template.metadata if template else None
    metadata = metadata_of(job, pod_name(job, role, index))
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


def _journal_flags(journal: MasterJournal) -> list[str]:
    if journal.expected is None:
        return []
    flags = ["--expect-progress", "{}:{}".format(*journal.expected)]
    return [*flags, "--on-ledger-lost", LedgerLoss.RESTART_EPOCH.value] if journal.restarts_epoch else flags


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
    claims = [use.model_dump(exclude_none=True) for use in resources.claims]
    found = {
        "requests": resources.effective_requests(),
        "limits": resources.effective_limits(),
        "claims": claims,
    }
    return {field: values for field, values in found.items() if values}


def _token_volume(job: TrainingJob, role: Role) -> Object:
    keys = (TRAINER_TOKEN, CONTROLLER_TOKEN) if role is Role.MASTER else (TRAINER_TOKEN,)
    secret = {"secretName": token_secret_name(job), "items": [{"key": key, "path": key} for key in keys]}
    return {"name": TOKEN_VOLUME, "secret": secret}


def _journal(job: TrainingJob, *, has_claim: bool) -> Object:
    if job.spec.master.storage or has_claim:
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
