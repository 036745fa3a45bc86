"""Builders of the objects of Kueue, and of Jobs that it admits; a test names the fields that matter."""

from __future__ import annotations

from typing import Any

from tests.worlds.raw_objects import Object, batch_job, container

API = "kueue.x-k8s.io/v1beta2"
GATE = {"schedulingGates": [{"name": "kueue.x-k8s.io/elastic-job"}]}


def flavor(name: str = "a", **labels: str) -> Object:
    """A ResourceFlavor."""
    return {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": labels}}


def quota(nominal: int | str, borrowing: int | None = None, lending: int | None = None, name: str = "cpu") -> Object:
    """The quota of one resource of a flavor."""
    limits = {"borrowingLimit": borrowing, "lendingLimit": lending}
    return {"name": name, "nominalQuota": nominal, **{k: v for k, v in limits.items() if v is not None}}


def resource_groups(**flavors: list[Object]) -> list[Object]:
    """One group of resources with these flavors, in their order."""
    covered = sorted({one["name"] for resources in flavors.values() for one in resources})
    listed = [{"name": name, "resources": resources} for name, resources in flavors.items()]
    return [{"coveredResources": covered, "flavors": listed}]


def cluster_queue(name: str, nominal: int | str = 10, *, cohort: str = "", **spec: Any) -> Object:
    """A ClusterQueue with one flavor `a` of so many cpus, for all namespaces."""
    body = {
        "namespaceSelector": {},
        "resourceGroups": resource_groups(a=[quota(nominal)]),
        **({"cohortName": cohort} if cohort else {}),
        **spec,
    }
    return {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": body}


def cohort(name: str, **spec: Any) -> Object:
    """A Cohort."""
    return {"apiVersion": API, "kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def local_queue(name: str, cluster_queue: str = "", namespace: str = "ads", **spec: Any) -> Object:
    """A LocalQueue of the ClusterQueue of the same name."""
    metadata = {"name": name, "namespace": namespace}
    body = {"clusterQueue": cluster_queue or name, **spec}
    return {"apiVersion": API, "kind": "LocalQueue", "metadata": metadata, "spec": body}


def kueue_job(name: str = "train", queue: str = "blue", *, size: int = 3, **more: Any) -> Object:
    """An elastic Job of so many pods of 1 cpu that asks for 2 to 20; Kueue has gated its pods."""
    annotations = {"kueue.x-k8s.io/elastic-job": "true", "paddlepaddle.org/max-instance": "20"}
    template = {"spec": {"containers": [container("1", "1Gi")], **more.pop("pod", GATE)}}
    spec = {"parallelism": size, "template": template, **more.pop("spec", {})}
    labels = {"kueue.x-k8s.io/queue-name": queue}
    return batch_job(name, annotations=annotations | more.pop("annotations", {}), spec=spec, labels=labels, **more)


TRIED = {
    "type": "QuotaReserved",
    "status": "False",
    "reason": "Pending",
    "message": "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor a",
}
"""What Kueue says of a Workload that it has tried to admit."""


def workload(
    name: str,
    pods: int,
    *,
    queue: str = "blue",
    admitted: int | None = None,
    job: str = "",
    cpu: int = 1,
    at: int = 0,
    **more: Any,
) -> Object:
    """A Workload of so many pods, created in that second of 1970.

    Args:
        name: of the Workload.
        pods: how many it asks for.
        queue: its LocalQueue, and the ClusterQueue in which it holds quota.
        admitted: for so many pods it holds quota; None without a reservation.
        job: the name of the Job that it stands for; empty for something else.
        cpu: of one pod.
        at: see above.
        more: `flavor`, `priority`, `annotations`, `active`, `status`.
    """
    owner = {"kind": "Job", "name": job or name, "uid": f"uid-{job or f'of-{name}'}", "controller": True}
    template = {"spec": {"containers": [container(str(cpu), "1Gi")]}}
    status: Object = {"conditions": [TRIED]}
    if admitted is not None:
        status["conditions"] = [{"type": "QuotaReserved", "status": "True"}]
        assignment = {"name": "main", "flavors": {"cpu": more.get("flavor", "a")}, "count": admitted}
        assignment["resourceUsage"] = {"cpu": str(cpu * admitted)}
        status["admission"] = {"clusterQueue": queue, "podSetAssignments": [assignment]}
    metadata = {"name": name, "namespace": "ads", "uid": f"uid-of-{name}", "ownerReferences": [owner]}
    metadata["creationTimestamp"] = f"1970-01-01T00:{at // 60:02}:{at % 60:02}Z"
    metadata["annotations"] = more.get("annotations", {})
    spec = {"queueName": queue, "priority": more.get("priority", 0), "active": more.get("active", True)}
    spec["podSets"] = [{"name": "main", "count": pods, "template": template}]
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": metadata,
        "spec": spec,
        "status": status | more.get("status", {}),
    }


def own_workload(index: int, trainers: int, *, state: str = "admitted", queue: str = "blue", **more: Any) -> Object:
    """A Workload that edl has made for TrainingJob `ctr` of trainers of 1 cpu, with its master in the base.

    Args:
        index: 0 for the base.
        trainers: how many it is for.
        state: `waiting`, `reserved`, `admitted` or `evicted`.
        queue: its LocalQueue and its ClusterQueue.
        more: `flavor`, `at`, `active`, `message`, `priority`, `ready`, `digest`, `name` without the index;
            `owner` is an owner reference of another job, of which only trainers count.
    """
    has_master = not (index or "owner" in more)
    counts = {**({"master": 1} if has_master else {}), "trainer": trainers}
    cpus = {"master": 0.25, "trainer": 1.0}
    flavor_name, conditions = more.get("flavor", "a"), []
    if state != "waiting":
        conditions = ["QuotaReserved", *(["Admitted"] if state != "reserved" else [])]
        conditions += ["Evicted"] if state == "evicted" else []
        conditions += ["PodsReady"] if more.get("ready") else []
    status: Object = {"conditions": [{"type": kind, "status": "True", "reason": kind} for kind in conditions]}
    if message := more.get("message"):
        kind = "Evicted" if state == "evicted" else "QuotaReserved"
        status["conditions"] = [one for one in status["conditions"] if one["type"] != kind]
        held = "False" if state == "waiting" else "True"
        status["conditions"].append({"type": kind, "status": held, "reason": "Preempted", "message": message})
    if conditions:
        status["admission"] = {
            "clusterQueue": queue,
            "podSetAssignments": [
                {"name": name, "flavors": {"cpu": flavor_name}, "count": n, "resourceUsage": {"cpu": cpus[name] * n}}
                for name, n in counts.items()
            ],
        }
    at, name = more.get("at", 0), more.get("name", "ctr")
    owner = more.get("owner") or {"kind": "TrainingJob", "name": "ctr", "uid": "uid-ctr", "controller": True}
    pods = [
        {"name": name, "count": n, "template": {"spec": {"containers": [container(str(cpus[name]), "1Gi")]}}}
        for name, n in counts.items()
    ]
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {
            "name": f"{name}-{index}",
            "namespace": "ads",
            "uid": f"uid-of-{name}-{index}",
            "ownerReferences": [owner],
            "creationTimestamp": f"1970-01-01T00:{at // 60:02}:{at % 60:02}Z",
            "annotations": {
                "paddlepaddle.org/workload-index": str(index),
                "paddlepaddle.org/workload-digest": more.get("digest", ""),
            },
        },
        "spec": {
            "queueName": queue,
            "priority": more.get("priority", 0 if not index else -100),
            "active": more.get("active", True),
            "podSets": pods,
        },
        "status": status,
    }
