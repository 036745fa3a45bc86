"""A control plane with Kueue and edl, and what the tests ask about the Jobs that Kueue admits.

One control plane serves all tests of a process. Each test has a namespace and queues of its own, and removes its
Jobs, so that nothing of it is left in the quotas of the next.
"""

from __future__ import annotations

import contextlib
from itertools import count
from typing import Any

import yaml

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.kube import KubeError
from tests.e2e.control_plane.nodes import NodeSpec
from tests.e2e.worlds import facts
from tests.e2e.worlds.harness import ROOT, WithController, World
from tests.kueue.programs import CLUSTER_QUEUES, COHORTS, FLAVORS, LOCAL_QUEUES, WORKLOADS, Kueue
from tests.worlds.kueue.objects import API

Object = dict[str, Any]
WITHIN_S = 30.0
NODES = tuple(NodeSpec(f"kueue-{i}", {"cpu": "16", "memory": "64Gi", "pods": "110"}) for i in range(2))
"""Room for 32 pods of one cpu: more than any quota of the tests."""

_numbers = count(1)


class Cluster(WithController):
    """One control plane with Kueue, and edl's controller.

    Args:
        plane: the cluster.
        kueue: Kueue, which runs.
    """

    def __init__(self, plane: ControlPlane, kueue: Kueue) -> None:
        self.kueue, self.kube = kueue, plane.kube
        self.world = World(plane, "--no-leader-election")
        self.kube.kubectl("apply", "-k", str(ROOT / "deploy/kueue-trainingjobs"))
        self.kube.apply({"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": "a"}, "spec": {}})
        for name, value in (("low", -10), ("high", 10)):
            body = {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
            self.kube.apply(body)

    def add_frameworks(self, rights: str, *names: str) -> None:
        """Turn on integrations of Kueue, and let edl size their kinds.

        Args:
            rights: the folder below `deploy` with the rights of edl.
            names: of the integrations.
        """
        for body in yaml.safe_load_all((ROOT / "deploy" / rights / "rbac.yaml").read_text()):
            self.kube.apply(body)
        self.kueue.stop()
        self.kueue.add_frameworks(*names)
        self.kueue.start()
        self.world.controller.kill()
        self.world.controller.start()


class Scene:
    """A namespace with queues, and what runs in it.

    Args:
        cluster: where it is.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.kube = cluster, cluster.kube
        self.name = f"team-{next(_numbers)}"
        self.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}})
        self._queues: list[str] = []

    def close(self) -> None:
        """Remove all Jobs and queues."""
        for job in self.kube.list("jobs", self.name):
            self.remove(job["metadata"]["name"])
        self.wait(lambda: not self.kube.list("pods", self.name), "no pod is left")
        for queue in self._queues:
            with contextlib.suppress(KubeError):
                self.kube.delete(CLUSTER_QUEUES, queue, "")

    def full(self, queue: str) -> str:
        """The name of the ClusterQueue of a LocalQueue."""
        return f"{self.name}-{queue}"

    def queue(self, name: str, cpus: int, *, reclaim: str = "Never", limits: Object | None = None) -> None:
        """A ClusterQueue in the cohort of the scene, with a LocalQueue of the same short name."""
        full = self.full(name)
        quota = {"name": "cpu", "nominalQuota": cpus, **(limits or {})}
        groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "a", "resources": [quota]}]}]
        spec = {
            "cohortName": self.name,
            "namespaceSelector": {},
            "resourceGroups": groups,
            "preemption": {"reclaimWithinCohort": reclaim, "withinClusterQueue": "LowerOrNewerEqualPriority"},
        }
        self.kube.create({"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": full}, "spec": spec})
        local = {"apiVersion": API, "kind": "LocalQueue", "metadata": {"name": name, "namespace": self.name}}
        self.kube.create({**local, "spec": {"clusterQueue": full}}, self.name)
        self._queues.append(full)

    def flavor(self, name: str, labels: dict[str, str], *queues: str) -> None:
        """A ResourceFlavor of nodes with these labels, as the only one of some queues."""
        full = f"{self.name}-{name}"
        body = {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": full}}
        self.kube.create({**body, "spec": {"nodeLabels": labels}})
        for queue in map(self.full, queues):
            (group,) = self.kube.get(CLUSTER_QUEUES, queue, "")["spec"]["resourceGroups"]
            flavors = [{**one, "name": full} for one in group["flavors"]]
            spec = {"resourceGroups": [{**group, "flavors": flavors}]}
            self.kube.patch(CLUSTER_QUEUES, queue, {"spec": spec}, "")

    def submit(self, name: str, queue: str, size: int, **more: Any) -> None:
        """A Job of pods of one cpu, elastic for Kueue.

        Args:
            name: of the Job.
            queue: its LocalQueue.
            size: how many pods it asks for.
            more: `bounds` for edl, a `priority` class, `elastic` False for a plain Job, further `annotations`,
                `requests` besides the cpu, `nodes` are labels that the nodes of the pods need.
        """
        asked: Object = {"kueue.x-k8s.io/elastic-job": "true"} if more.get("elastic", True) else {}
        if bounds := more.get("bounds"):
            low, high = (str(bound) for bound in bounds)
            asked |= {"paddlepaddle.org/elastic": "true", "paddlepaddle.org/min-instance": low}
            asked |= {"paddlepaddle.org/max-instance": high}
        labels = {"kueue.x-k8s.io/queue-name": queue}
        if priority := more.get("priority"):
            labels["kueue.x-k8s.io/priority-class"] = priority
        requests = {"cpu": "1"} | more.get("requests", {})
        container = {"name": "train", "image": "example/train", "resources": {"requests": requests}}
        nodes = more.get("nodes", {})
        template = {"spec": {"containers": [container], "restartPolicy": "Never", "nodeSelector": nodes}}
        metadata = {"name": name, "namespace": self.name, "labels": labels}
        metadata["annotations"] = asked | more.get("annotations", {})
        spec = {"parallelism": size, "completions": None, "backoffLimit": 100, "template": template}
        self.kube.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}, self.name)

    def remove(self, name: str) -> None:
        """Delete a Job with its pods, as kubectl does."""
        path = self.kube.resource("jobs").path(self.name, name)
        self.kube.request("DELETE", path, query={"propagationPolicy": "Background"})

    def job(self, name: str) -> Object:
        """A Job as it is stored."""
        return self.kube.get("jobs", name, self.name)

    def bounds(self, name: str, high: int) -> None:
        """Change the most pods that a Job may have, as its owner would."""
        annotations = {"paddlepaddle.org/max-instance": str(high)}
        self.kube.patch("jobs", name, {"metadata": {"annotations": annotations}}, self.name)

    def pending(self, name: str) -> set[str]:
        """The names of the pods of a Job that have no node, such as gated ones."""
        pods = self.kube.list("pods", self.name, labels=f"batch.kubernetes.io/job-name={name}")
        return {pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName")}

    def running(self, name: str) -> dict[str, str]:
        """The UIDs of the pods of a Job that run and are not being deleted, by name."""
        pods = self.kube.list("pods", self.name, labels=f"batch.kubernetes.io/job-name={name}")
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods if facts.is_running(p)}

    def sizes(self, *names: str) -> tuple[int, ...]:
        """How many pods of each Job run."""
        return tuple(len(self.running(name)) for name in names)

    def wait(self, predicate: Any, what: str, within_s: float = WITHIN_S) -> Any:
        """Wait for something that the cluster does."""
        return self.kube.wait_until(predicate, within_s, what)

    def wait_sizes(self, **wanted: int) -> None:
        """Wait until so many pods of each Job run."""
        self.wait(lambda: self.sizes(*wanted) == tuple(wanted.values()), f"running: {wanted}")

    def workloads(self, name: str) -> list[Object]:
        """The Workloads of a Job that have not ended."""
        found = self.kube.list(WORKLOADS, self.name)
        return [one for one in found if owner_of(one) == name and "Finished" not in true_of(one)]

    def events(self, name: str) -> dict[str, str]:
        """The last message of each event of edl on a Job, by reason."""
        fields = f"involvedObject.kind=Job,involvedObject.name={name}"
        found = self.kube.list("events", self.name, fields=fields)
        return {e["reason"]: e["message"] for e in found if e["source"].get("component") == "edl-controller"}


def owner_of(workload: Object) -> str:
    """The name of the Job of a Workload; empty without one."""
    owners = workload["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("name", ""))


def true_of(workload: Object) -> set[str]:
    """The conditions of a Workload that are true."""
    return {one["type"] for one in workload.get("status", {}).get("conditions", ()) if one["status"] == "True"}


__all__ = ["COHORTS", "FLAVORS", "LOCAL_QUEUES", "NODES", "Cluster", "Scene", "owner_of", "true_of"]
