"""Builders of Kubernetes objects as kubectl prints them: a test names the fields that matter.

`take` turns a list of objects into a snapshot, as the controller and `edl plan` do.
"""

from __future__ import annotations

from typing import Any

from edl.kube.translate.decoders import (
    DAEMON_SETS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    TRAINING_JOBS,
    Decoder,
    Quarantined,
)
from edl.kube.translate.kueue.objects import DECODERS as KUEUE_DECODERS
from edl.kube.translate.kueue.objects import kueue_of
from edl.kube.translate.queues import QUEUES
from edl.kube.translate.rules.facts import RuleObjects, read_facts
from edl.kube.translate.snapshot import ClusterObjects, Translator
from edl.kube.workloads.registry import ADAPTERS
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.pods import Pod

MI = 1024**2
GI = 1024**3
DECODERS: dict[str, Decoder[Any]] = {
    "Node": NODES,
    "Pod": PODS,
    "TrainingJob": TRAINING_JOBS,
    "DaemonSet": DAEMON_SETS,
    "PriorityClass": PRIORITY_CLASSES,
    "ResourceQuota": RESOURCE_QUOTAS,
    "Namespace": NAMESPACES,
    "Queue": QUEUES,
    **KUEUE_DECODERS,
    **{adapter.decoder.kind: adapter.decoder for adapter in ADAPTERS.values()},
}
KIND_OF = {adapter.api[:2]: adapter.decoder.kind for adapter in ADAPTERS.values()}
Object = dict[str, Any]


def container(cpu: str = "", memory: str = "", **more: Any) -> Object:
    requests = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"name": "c", "resources": {"requests": requests}, **more}


def sidecar(cpu: str) -> Object:
    return container(cpu, restartPolicy="Always")


def node(name: str = "n1", **more: Any) -> Object:
    return {
        "kind": "Node",
        "metadata": {"name": name, **more.pop("metadata", {})},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}, **more.pop("status", {})},
        **more,
    }


def pod(
    name: str, *, namespace: str = "ads", labels: Object | None = None, owner: Object | None = None, **more: Any
) -> Object:
    metadata: Object = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {
        "kind": "Pod",
        "metadata": {**metadata, **more.pop("metadata", {})},
        "spec": {"containers": [container("1")], **more.pop("spec", {})},
        "status": more.pop("status", {"phase": "Running"}),
    }


def trainer(index: int, *, job: str = "ctr", owner: Object | None = None, **more: Any) -> Object:
    """A trainer as edl makes it; an empty owner leaves it without one."""
    labels = {"paddlepaddle.org/job": job, "paddlepaddle.org/role": "trainer", "paddlepaddle.org/index": str(index)}
    owner = owned_by(f"uid-{job}", job) if owner is None else owner
    return pod(f"{job}-trainer-{index}", labels=labels, owner=owner or None, **more)


def owned_by(uid: str, name: str = "ctr") -> Object:
    return {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "name": name, "uid": uid, "controller": True}


def job(name: str = "ctr", *, uid: str = "uid-ctr", spec: Object | None = None, **more: Any) -> Object:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "ads", "uid": uid, "generation": 3, **more.pop("metadata", {})},
        "spec": {
            "fault_tolerant": True,
            "trainer": {"min-instance": 2, "max-instance": 6, "entrypoint": "x", "resources": resources},
            **(spec or {}),
        },
        **more,
    }


def elastic_metadata(name: str, annotations: Object, more: Object) -> Object:
    """Metadata of somebody else's job that asks for 2 to 6 trainers; an empty annotation takes a wish away."""
    asks = {"elastic": "true", "min-instance": "2", "max-instance": "6"}
    wanted = {f"paddlepaddle.org/{key}": value for key, value in asks.items()} | annotations
    return {
        "name": name,
        "namespace": "ads",
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "annotations": {key: value for key, value in wanted.items() if value},
        **more,
    }


def batch_job(
    name: str = "train",
    *,
    annotations: Object | None = None,
    spec: Object | None = None,
    status: Object | None = None,
    **metadata: Any,
) -> Object:
    """A `batch/v1` Job of 3 pods of 1 cpu that asks for 2 to 6."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": elastic_metadata(name, annotations or {}, metadata),
        "spec": {
            "parallelism": 3,
            "completionMode": "NonIndexed",
            "template": {"spec": {"containers": [container("1", "1Gi")]}},
            **(spec or {}),
        },
        "status": status or {},
    }


def batch_pod(name: str, *, job: str = "train", ready_at: int | None = None, **more: Any) -> Object:
    """A running pod of a `batch/v1` Job, ready since that second of 2026; None if it is not ready."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-{job}", "controller": True}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": f"2026-01-01T00:00:{ready_at or 0:02}Z"}
    conditions = [] if ready_at is None else [ready]
    spec = {"nodeName": "n1", "containers": [container("1", "1Gi")], **more.pop("spec", {})}
    status = {"phase": "Running", "conditions": conditions, **more.pop("status", {})}
    return pod(name, owner=owner, spec=spec, status=status, **more)


def volcano_job(
    name: str = "ctr",
    *,
    annotations: Object | None = None,
    tasks: list[Object] | None = None,
    spec: Object | None = None,
    status: Object | None = None,
    **metadata: Any,
) -> Object:
    """A Volcano Job of 2 pservers and 3 trainers of 1 cpu that asks for 2 to 6 trainers."""
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": elastic_metadata(name, annotations or {}, metadata),
        "spec": {
            "minAvailable": 5,
            "queue": "default",
            "tasks": [task("pserver", 2), task("trainer", 3)] if tasks is None else tasks,
            **(spec or {}),
        },
        "status": status or {"state": {"phase": "Running"}, "version": 4},
    }


def task(name: str, replicas: int, *, cpu: str = "1", **more: Any) -> Object:
    """A task of a Volcano Job; its admission has set minAvailable."""
    template = {"spec": {"containers": [container(cpu, "1Gi" if cpu else "")]}}
    return {"name": name, "replicas": replicas, "minAvailable": replicas, "template": template, **more}


def volcano_pod(name: str, *, job: str = "ctr", **more: Any) -> Object:
    """A running pod `<job>-<task>-<index>` of a Volcano Job, as the labels of the CTR article have it."""
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job, "uid": f"uid-{job}"}
    kind = name.removeprefix(f"{job}-").rpartition("-")[0]
    annotations = {"volcano.sh/task-spec": kind, "volcano.sh/job-version": "4"}
    metadata = {"annotations": annotations, **more.pop("metadata", {})}
    spec = {"nodeName": "n1", "containers": [container("1", "1Gi")], **more.pop("spec", {})}
    return pod(
        name,
        owner={**owner, "controller": True},
        labels={"paddle-job": "fluid-ctr"},
        metadata=metadata,
        spec=spec,
        **more,
    )


def ray_cluster(
    name: str = "ray",
    *,
    annotations: Object | None = None,
    groups: list[Object] | None = None,
    spec: Object | None = None,
    **metadata: Any,
) -> Object:
    """A RayCluster of a head of 2 cpus and 3 workers of 1 cpu that asks for 2 to 6."""
    head = {"rayStartParams": {}, "template": {"spec": {"containers": [container("2", "2Gi")]}}}
    workers = [ray_group()] if groups is None else groups
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": elastic_metadata(name, annotations or {}, metadata),
        "spec": {"headGroupSpec": head, "workerGroupSpecs": workers, **(spec or {})},
    }


def ray_job(name: str = "night", *, spec: Object | None = None, **status: str) -> Object:
    """A RayJob whose job runs; KubeRay makes its RayCluster."""
    running = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayClusterName": "ray"}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": elastic_metadata(name, {}, {}),
        "spec": {"entrypoint": "python x.py", "shutdownAfterJobFinishes": True, **(spec or {})},
        "status": {**running, **status},
    }


def cluster_of_ray_job(name: str = "night", *, is_ready: bool = True, **more: Any) -> Object:
    """The RayCluster that KubeRay makes for a RayJob, with a copy of its annotations."""
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": name, "uid": f"uid-{name}", "controller": True}
    status = {"state": "ready", "stateTransitionTimes": {"ready": "2026-01-01T00:00:00Z"}} if is_ready else {}
    labels = {"ray.io/originated-from-cr-name": name, "ray.io/originated-from-crd": "RayJob"}
    labels |= more.pop("labels", {})
    return {**ray_cluster(ownerReferences=[owner], labels=labels, **more), "status": status}


def ray_group(name: str = "workers", replicas: int = 3, *, cpu: str = "1", **more: Any) -> Object:
    """A group of workers with the defaults of the CRD."""
    template = {"spec": {"containers": [container(cpu, "1Gi" if cpu else "")]}}
    counts = {"replicas": replicas, "minReplicas": 0, "maxReplicas": 2147483647, "numOfHosts": 1}
    return {"groupName": name, **counts, "rayStartParams": {}, "template": template, **more}


def ray_pod(name: str, *, group: str = "workers", cluster: str = "ray", **more: Any) -> Object:
    """A running pod of a RayCluster; group `headgroup` is the head."""
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": cluster, "uid": f"uid-{cluster}"}
    labels = {"ray.io/cluster": cluster, "ray.io/group": group}
    spec = {"nodeName": "n1", "containers": [container("1", "1Gi")], **more.pop("spec", {})}
    return pod(name, owner={**owner, "controller": True}, labels=labels, spec=spec, **more)


def leader_worker_set(
    name: str = "llm",
    *,
    replicas: int | None = 2,
    size: int = 4,
    cpu: str = "1",
    leader: Object | None = None,
    annotations: Object | None = None,
    spec: Object | None = None,
    status: Object | None = None,
    **metadata: Any,
) -> Object:
    """A LeaderWorkerSet of 2 groups of 4 pods of 1 cpu that asks for 1 to 3 groups."""
    template = {"spec": {"containers": [container(cpu, "1Gi" if cpu else "")]}}
    group: Object = {"size": size, "workerTemplate": template, "restartPolicy": "RecreateGroupOnPodRestart"}
    group |= {"leaderTemplate": leader} if leader is not None else {}
    asked = {"paddlepaddle.org/min-instance": "1", "paddlepaddle.org/max-instance": "3", **(annotations or {})}
    rollout = {"type": "RollingUpdate", "rollingUpdateConfiguration": {"partition": 0, "maxUnavailable": 1}}
    defaults = {"startupPolicy": "LeaderCreated", "rolloutStrategy": rollout}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": elastic_metadata(name, asked, metadata),
        "spec": {"leaderWorkerTemplate": group, **defaults, "replicas": replicas, **(spec or {})},
        "status": status or {},
    }


def group_pods(group: int, *, size: int = 4, name: str = "llm", **more: Any) -> list[Object]:
    """The running pods of a group: the leader, and the workers of its StatefulSet."""
    leader, found = f"{name}-{group}", []
    for number in range(size):
        sts, pod_name = (leader, f"{leader}-{number}") if number else (name, leader)
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": sts, "uid": f"uid-sts-{sts}"}
        labels = {
            f"leaderworkerset.sigs.k8s.io/{label}": value
            for label, value in (("name", name), ("group-index", str(group)), ("worker-index", str(number)))
        }
        spec = {"nodeName": "n1", "containers": [container("1", "1Gi")], **more.get("spec", {})}
        rest = {key: value for key, value in more.items() if key != "spec"}
        found.append(pod(pod_name, owner={**owner, "controller": True}, labels=labels, spec=spec, **rest))
    return found


def pytorch_job(workers: int = 3, *, master: int = 1, spec: Object | None = None, **more: Any) -> Object:
    """A PyTorchJob of a master and workers of 1 cpu that asks for nothing."""
    template = {"spec": {"containers": [container("1", "1Gi")]}}
    roles = {"Master": {"replicas": master, "template": template}} if master else {}
    roles |= {"Worker": {"replicas": workers, "template": template}} if workers else {}
    metadata = {"name": "torch", "namespace": "ads", "uid": "uid-torch", **more.pop("metadata", {})}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata,
        "spec": {"pytorchReplicaSpecs": roles, **(spec or {})},
        **more,
    }


def elastic_pytorch_job(
    *,
    annotations: Object | None = None,
    worker: Object | None = None,
    policy: Object | None = None,
    run: Object | None = None,
    status: Object | None = None,
    **metadata: Any,
) -> Object:
    """A PyTorchJob of 3 workers of 1 cpu between 2 and 6 that asks to be resized; `run` is its runPolicy."""
    template = {"spec": {"containers": [container("1", "1Gi")]}}
    workers = {"replicas": 3, "restartPolicy": "OnFailure", "template": template, **(worker or {})}
    bounds = {"minReplicas": 2, "maxReplicas": 6} if policy is None else policy
    asked = {"paddlepaddle.org/min-instance": None, "paddlepaddle.org/max-instance": None, **(annotations or {})}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": elastic_metadata("torch", asked, metadata),
        "spec": {"pytorchReplicaSpecs": {"Worker": workers}, "elasticPolicy": bounds, "runPolicy": run or {}},
        "status": status or {},
    }


def pytorch_pod(name: str) -> Object:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "torch", "uid": "uid-torch"}
    return pod(name, owner={**owner, "controller": True}, spec={"nodeName": "n1"})


def _kind_of(obj: Object) -> str:
    """The name of the decoder: two groups have a kind Job."""
    return KIND_OF.get((obj.get("apiVersion", ""), obj["kind"])) or str(obj["kind"])


def decoded(obj: Object) -> Any:
    """An object as the watch decodes it."""
    found = DECODERS[_kind_of(obj)].from_dict(obj)
    assert not isinstance(found, Quarantined), found
    return found


def take(*objects: Object, now_s: float = 1000.0, translator: Translator | None = None) -> ClusterSnapshot:
    by_kind: dict[str, list[Any]] = {kind: [] for kind in DECODERS}
    for obj in objects:
        by_kind[_kind_of(obj)].append(decoded(obj))
    return (translator or Translator()).snapshot(
        now_s=now_s,
        objects=ClusterObjects(
            nodes=by_kind["Node"],
            pods=by_kind["Pod"],
            jobs=by_kind["TrainingJob"],
            workloads=[(adapter, one) for adapter in ADAPTERS.values() for one in by_kind[adapter.decoder.kind]],
            daemonsets=by_kind["DaemonSet"],
            priority_classes=by_kind["PriorityClass"],
            resource_quotas=by_kind["ResourceQuota"],
            queues=by_kind["Queue"],
            kueue=kueue_of(by_kind.__getitem__),
            facts=read_facts(RuleObjects(namespaces=by_kind["Namespace"])),
        ),
    )


def the_job(*objects: Object) -> Job:
    (found,) = take(*objects).jobs
    return found


def the_pod(obj: Object, *more: Object) -> Pod:
    (found,) = take(obj, *more).pods
    return found


DAEMON_SET: Object = {
    "kind": "DaemonSet",
    "metadata": {"name": "logs", "namespace": "kube-system"},
    "spec": {"template": {"spec": {"containers": [container("250m")], "nodeSelector": {"os": "linux"}}}},
}
