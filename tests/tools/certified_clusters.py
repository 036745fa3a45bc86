"""Random small clusters as `kubectl get -o json` prints them, with their plans and certificates.

Sizes, selectors, taints, devices, pservers, running pods and waiting serving pods are unlike from world to world, so
that each part of a certificate decides something in some of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from edl.controller.planning import judge_snapshot
from edl.explain.plan_table import plan_dict
from edl.kube.snapshot_files.saved_cluster import read_snapshot_files
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import ScalePlan

Object = dict[str, Any]

SIZES = (
    (1000, 1024),
    (2000, 4096),
    (3000, 2048),
    (1500, 3072),
    (2250, 7680),
    (700, 1500),
    (5000, 8192),
    (4000, 5120),
)
DEDICATED = {"key": "dedicated", "value": "training", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class Certified:
    """A cluster and what `edl plan -o json --certificate` makes of it.

    Attributes:
        objects: the List of Kubernetes objects.
        snapshot, made: what edl reads from it, and the plan.
        plan, certificate: the two documents.
        policy: by which the plan shares.
    """

    objects: Object
    snapshot: ClusterSnapshot
    made: ScalePlan
    plan: Object
    certificate: Object
    policy: str = "maxmin"


def certify_objects(objects: Object, folder: Path, limits: Limits | None = None, policy: str = "maxmin") -> Certified:
    """Plan a List of objects and prove the plan."""
    path = folder / "cluster.json"
    path.write_text(json.dumps(objects))
    snapshot, left_out = read_snapshot_files([str(path)]).snapshot()
    assert not left_out, left_out
    judged = judge_snapshot(snapshot, policy, limits or Limits(), proves=True)
    plan: Object = json.loads(json.dumps(plan_dict(judged.plan, best=judged.best)))
    return Certified(objects, snapshot, judged.plan, plan, json.loads(json.dumps(judged.certificate)), policy)


def random_objects(seed: int, *, may_lend: bool = False) -> Object:
    """A cluster of two to six nodes and two to five jobs; with `may_lend`, trainers of every second one lend CPU."""
    random = Random(seed)  # noqa: S311
    nodes = [_node(random, i) for i in range(random.randint(2, 6))]
    sizes = random.sample(SIZES, random.randint(1, 3))
    items: list[Object] = [*nodes]
    for i in range(random.randint(2, 5)):
        job = _job(random, f"j{i}", random.choice(sizes))
        items.append(job)
        if random.random() < 0.5:
            items += _running(random, job, nodes)
    for i in range(random.randint(0, 4)):
        items.append(_serving(random, i, random.choice(nodes)))
    if may_lend:
        _lend(Random(f"{seed} lends"), items)  # noqa: S311
    return {"apiVersion": "v1", "kind": "List", "items": items}


def with_speeds(objects: Object, seed: int) -> Object:
    """The cluster with jobs whose speeds are declared, measured, reported as goodput, odd, or not known; in place."""
    random = Random(f"{seed} speeds")  # noqa: S311
    for item in objects["items"]:
        if item["kind"] != "TrainingJob":
            continue
        if random.random() < 0.4:
            item["spec"]["elasticity"] = {"throughput": _curve(random)}
        status: Object = {}
        if random.random() < 0.5:
            status["throughput"] = [{**one, "seconds": random.choice((0, 30, 300))} for one in _curve(random)]
        if random.random() < 0.6:
            status["goodput"] = [{**one, "measured": random.random() < 0.5} for one in _curve(random)]
        item["status"] = status
    return objects


def _curve(random: Random) -> list[Object]:
    """Speeds that rise less and less, rise more and more, fall, or are all equal."""
    power, scale = random.choice((-0.3, 0.0, 0.3, 0.7, 1.0, 1.3)), 10.0 ** random.randint(-8, 12)
    counts = random.sample(range(1, 25), random.randint(1, 5))
    return [
        {"instances": n, "samplesPerSecond": scale * float(f"{n**power * random.uniform(0.9, 1.1):.3g}")}
        for n in counts
    ]


def _lend(random: Random, items: list[Object]) -> None:
    """Let trainers of some clusters lend, and let serving wait there: they request less CPU than they declare."""
    if random.random() < 0.5:
        return
    for item in items:
        labels = item["metadata"].get("labels", {})
        if labels.get("paddlepaddle.org/role") != "trainer" or random.random() < 0.3:
            continue
        (container, *_), metadata = item["spec"]["containers"], item["metadata"]
        declared = container["resources"]["requests"]["cpu"]
        part = {"cpu": f"{int(declared.removesuffix('m')) // random.choice((2, 10))}m"}
        limits = {**container["resources"].get("limits", {}), "cpu": declared}
        requests = container["resources"]["requests"] | part
        container["resources"] = {"requests": requests, "limits": limits}
        metadata["annotations"] = {"paddlepaddle.org/declared-cpu": declared}
    for i in range(random.randint(1, 4)):
        requests = {"cpu": f"{random.randint(5, 40)}00m", "memory": "256Mi"}
        items.append(_pod(f"api-{i}", {"containers": [{"name": "c", "resources": {"requests": requests}}]}, random))


def _node(random: Random, i: int) -> Object:
    cpu, memory = random.choice(((4, 16), (8, 32), (8, 12), (11, 40), (16, 64)))
    allocatable = {"cpu": f"{cpu * 1000 - random.choice((0, 380))}m", "memory": f"{memory}Gi", "pods": "110"}
    if random.random() < 0.3:
        allocatable["nvidia.com/gpu"] = str(random.randint(1, 4))
    if random.random() < 0.1:
        allocatable["pods"] = "4"
    spec: Object = {"taints": [DEDICATED]} if random.random() < 0.2 else {}
    spec |= {"unschedulable": True} if random.random() < 0.1 else {}
    ready = "False" if random.random() < 0.1 else "True"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"n{i}", "labels": {"kubernetes.io/hostname": f"n{i}", "pool": random.choice("xy")}},
        "spec": spec,
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]},
    }


def _job(random: Random, name: str, size: tuple[int, int]) -> Object:
    requests = {"cpu": f"{size[0]}m", "memory": f"{size[1]}Mi"}
    if random.random() < 0.15:
        requests["nvidia.com/gpu"] = "1"
    template: Object = {}
    if random.random() < 0.3:
        template["nodeSelector"] = {"pool": "x"}
    if random.random() < 0.3:
        template["tolerations"] = [
            {"key": "dedicated", "operator": random.choice(["Exists", "Equal"]), "value": "training"}
        ]
        if template["tolerations"][0]["operator"] == "Exists":
            del template["tolerations"][0]["value"]
    if random.random() < 0.2:
        terms = [{"matchExpressions": [{"key": "pool", "operator": random.choice(["In", "NotIn"]), "values": ["y"]}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        template["affinity"] = {"nodeAffinity": required}
    if random.random() < 0.2:
        template["containers"] = [{"name": "log", "image": "l", "resources": {"requests": {"cpu": "100m"}}}]
    low = random.randint(1, 2)
    trainer: Object = {
        "entrypoint": "t",
        "min-instance": low,
        "max-instance": low + random.choice((0, 1, 3, 6, 20)),
        "resources": {
            "requests": requests,
            "limits": {"nvidia.com/gpu": "1"} if "nvidia.com/gpu" in requests else {},
        },
    }
    if template:
        trainer["template"] = {"spec": template}
    spec: Object = {"image": "img", "fault_tolerant": random.random() < 0.4, "trainer": trainer}
    if random.random() < 0.3:
        spec["pserver"] = {"min-instance": 1, "max-instance": 1, "resources": {"requests": {"cpu": "500m"}}}
    created = f"2026-01-05T10:{random.randint(0, 59):02d}:00Z"
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {
            "name": name,
            "namespace": "ads",
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": created,
        },
        "spec": spec,
    }


def _running(random: Random, job: Object, nodes: list[Object]) -> list[Object]:
    """Pods of a job where they may well stand; some of another size, some on a node that takes no more."""
    roles = ["trainer"] * random.randint(0, 3)
    roles += ["master"] if job["spec"]["fault_tolerant"] else []
    roles += ["pserver"] if "pserver" in job["spec"] else []
    pods = []
    for i, role in enumerate(roles):
        resources = job["spec"].get(role, {}).get("resources", {"requests": {"cpu": "250m", "memory": "256Mi"}})
        if random.random() < 0.15:
            resources = {"requests": {"cpu": "600m", "memory": "1Gi"}}
        extra = job["spec"].get(role, {}).get("template", {}).get("spec", {}).get("containers", [])
        spec: Object = {"containers": [{"name": role, "resources": resources}, *extra]}
        if random.random() < 0.9:
            spec["nodeName"] = random.choice(nodes)["metadata"]["name"]
        name = job["metadata"]["name"]
        pods.append(
            _pod(f"{name}-{role}-{i}", spec, random)
            | {
                "metadata": {
                    "name": f"{name}-{role}-{i}",
                    "namespace": "ads",
                    "labels": {
                        "paddlepaddle.org/job": name,
                        "paddlepaddle.org/role": role,
                        "paddlepaddle.org/index": str(i),
                    },
                    "ownerReferences": [
                        {"kind": "TrainingJob", "name": name, "uid": job["metadata"]["uid"], "controller": True}
                    ],
                    **({"deletionTimestamp": "2026-01-05T11:00:00Z"} if random.random() < 0.1 else {}),
                }
            }
        )
    return pods


def _serving(random: Random, i: int, node: Object) -> Object:
    cpu, memory = random.choice(SIZES)
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    spec: Object = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    if random.random() < 0.5:
        spec["nodeName"] = node["metadata"]["name"]
    return _pod(f"web-{i}", spec, random)


def _pod(name: str, spec: Object, random: Random) -> Object:
    phase = "Running" if "nodeName" in spec else "Pending"
    status: Object = {"phase": "Failed" if random.random() < 0.05 else phase}
    metadata = {"name": name, "namespace": "shop", "creationTimestamp": "2026-01-05T10:00:00Z"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
