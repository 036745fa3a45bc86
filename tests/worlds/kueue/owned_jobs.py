"""A workload whose Workloads edl makes, beside small models of its own controller and of Kueue.

The controller of the workload keeps as many pods as the object says. Kueue admits what waits by priority and age. It
evicts the newest surplus pods for an owner of another ClusterQueue, and the base for a Workload of a higher priority.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from edl.controller.planning import plan_snapshot
from edl.kube.translate.kueue.objects import FlavorObject, FlavorSpec
from edl.kube.translate.snapshot import Translator
from edl.kube.workloads.registry import SUSPENDING
from edl.kube.workloads.resize import resize_request
from edl.lifecycle.resized_workload import workload_actions
from edl.model.actions import Action, ChangeWorkloads, EmitEvent, Report, ReportWorkloads, ResizeWorkload
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import JobKey, WorkloadKind
from edl.model.quota_trees import Pool, PoolLimits, QuotaNode
from edl.planner.queues.pool_tree import PoolTree
from edl.sandbox.apiserver.patches.json_patch import merge_patch
from tests.worlds.kueue.objects import cluster_queue, cohort, flavor, local_queue, own_workload, workload
from tests.worlds.raw_objects import Object, batch_job, container, decoded, elastic_pytorch_job, node, pod, take

POOL = Pool("a", "cpu")
BLUE, GREEN = "ClusterQueue blue", "ClusterQueue green"
QUOTAS = (
    QuotaNode(BLUE, "Cohort all", ((POOL, PoolLimits(4000)),)),
    QuotaNode(GREEN, "Cohort all", ((POOL, PoolLimits(6000)),)),
    QuotaNode("Cohort all"),
)
ROOM = {"status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "250"}}}
FLAVOR = flavor("a", pool="a")
SHARED = (
    *(node("n1", metadata={"labels": {"pool": "a"}}, **ROOM), FLAVOR, cohort("all")),
    *(local_queue("blue"), local_queue("green")),
    *(cluster_queue("blue", 4, cohort="all"), cluster_queue("green", 6, cohort="all")),
)
LOW, HIGH = 2, 20
ASKS = {"paddlepaddle.org/kueue-queue": "blue", "paddlepaddle.org/max-instance": str(HIGH)}


def owned_batch_job(annotations: Object | None = None, **spec: Any) -> Object:
    """A suspended Job of 2 to 20 pods in LocalQueue blue."""
    return batch_job(annotations=ASKS | (annotations or {}), spec={"suspend": True, "parallelism": 2, **spec})


def owned_pytorch_job(annotations: Object | None = None, **run: Any) -> Object:
    """A suspended PyTorchJob of 2 to 20 workers in LocalQueue blue."""
    bounds = {"minReplicas": LOW, "maxReplicas": HIGH}
    asks = {"paddlepaddle.org/kueue-queue": "blue", **(annotations or {})}
    return elastic_pytorch_job(annotations=asks, policy=bounds, run={"suspend": True, **run})


def flavor_spec(body: Object) -> FlavorSpec:
    """The spec of a ResourceFlavor."""
    return msgspec.convert(body, FlavorObject).spec or FlavorSpec()


def reference_to(body: Object) -> Object:
    """The owner reference that names an object."""
    metadata = body["metadata"]
    kind = {"apiVersion": body["apiVersion"], "kind": body["kind"]}
    return {**kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}


@dataclass
class Own:
    """A Workload that edl has made."""

    index: int
    trainers: int
    at: int
    digest: str
    state: str = "waiting"
    ready: bool = False

    @property
    def cpu(self) -> int:
        return self.trainers * 1000


@dataclass
class OwnedJobModel:
    """One workload, its pods and Workloads, and those of others.

    Attributes:
        reclaims: Kueue evicts surplus pods for an owner; else the owner waits until edl has given them back.
        body: the object as it is stored.
        pods: by name: True while the pod ends.
        others: by name: (queue, size, priority, created, is it admitted).
        restarts: how often a pod that ran was deleted beside a later one that was made.
    """

    reclaims: bool
    body: Object
    own: dict[int, Own] = field(default_factory=dict)
    pods: dict[str, bool] = field(default_factory=dict)
    selectors: dict[str, Object] = field(default_factory=dict)
    others: dict[str, tuple[str, int, int, int, bool]] = field(default_factory=dict)
    now: int = 100
    made: int = 0
    writes: int = 0
    translator: Translator = field(default_factory=Translator)

    @property
    def key(self) -> JobKey:
        kind = WorkloadKind.BATCH_JOB if self.body["kind"] == "Job" else WorkloadKind.PYTORCH_JOB
        return JobKey.of(kind, "ads", self.body["metadata"]["name"])

    @property
    def live(self) -> set[str]:
        """The names of the pods that run and do not end."""
        return {name for name, ends in self.pods.items() if not ends}

    def seen(self) -> Job:
        """The job as edl reads it."""
        return next(job for job in self._snapshot().jobs if job.key == self.key)

    def turn(self) -> None:
        """Edl plans and acts once; then the controller of the job makes and ends pods, and Kueue decides."""
        self.now += 1
        self.body["metadata"]["resourceVersion"] = str(self.now)
        snapshot = self._snapshot()
        job = next(job for job in snapshot.jobs if job.key == self.key)
        decision = plan_snapshot(snapshot, "maxmin", Limits()).decision(self.key)
        for action in workload_actions(job, decision, 30, float(self.now)):
            self.carry_out(action)
        self._control()
        reserved = sum(one.trainers for one in self.own.values() if one.state != "waiting")
        assert len(self.pods) <= reserved, "no pod above what holds quota"
        self._admit()

    def settle(self, turns: int = 9) -> None:
        for _ in range(turns):
            self.turn()

    def carry_out(self, action: Action) -> None:
        match action:
            case ChangeWorkloads():
                for name, _ in action.gone:
                    del self.own[int(name.rpartition("-")[2])]
                for one in action.new:
                    self.own[one.index] = Own(one.index, one.trainers, self.now, one.digest)
            case ReportWorkloads():
                self._report(action)
            case ResizeWorkload():
                flavors = [flavor_spec(FLAVOR)] if action.flavors else []
                request = resize_request(action, decoded(self.body), flavors=flavors)
                assert isinstance(request.patch, dict)
                self.body = merge_patch(self.body, request.patch)
            case EmitEvent():
                return
        self.writes += 1

    def _report(self, action: ReportWorkloads) -> None:
        for report in action.reports:
            index = int(report.name.rpartition("-")[2])
            if report.report is Report.RELEASED:
                assert not index or len(self.pods) <= sum(
                    one.trainers for one in self.own.values() if one.state == "admitted"
                )
                assert index or not self.pods, "the base is released once no pod is left"
                self.own[index] = replace(self.own[index], state="waiting", ready=False)
            elif report.report is Report.READY:
                self.own[index].ready = True

    def _snapshot(self) -> ClusterSnapshot:
        return take(*self.objects(), translator=self.translator, now_s=float(self.now))

    def objects(self) -> list[Object]:
        owner = reference_to(self.body)
        found = [*SHARED, self.body]
        found += [
            own_workload(
                one.index,
                one.trainers,
                state=one.state,
                at=one.at,
                owner=owner,
                ready=one.ready,
                digest=one.digest,
            )
            for one in self.own.values()
        ]
        ready: Object = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        for name, ends in self.pods.items():
            spec = {"nodeName": "n1", "containers": [container("1", "1Gi")], "nodeSelector": self.selectors[name]}
            body = pod(name, owner=owner, spec=spec, status=ready)
            if ends:
                body["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:00Z"
            found.append(body)
        for name, (queue, size, priority, created, done) in self.others.items():
            more: dict[str, Any] = {"admitted": size} if done else {}
            found.append(workload(name, size, queue=queue, at=created, priority=priority, **more))
        return found

    def _control(self) -> None:
        """The controller of the job: pods that end are gone; then as many as the object says, the lowest indexes."""
        self.pods = {name: ends for name, ends in self.pods.items() if not ends}
        adapter = SUSPENDING[self.key.kind]
        source = decoded(self.body)
        count = adapter.count(source)
        numbers = sorted(int(name.rpartition("-")[2]) for name in self.live)
        for number in numbers[count:]:
            self.pods[f"{self.prefix}-{number}"] = True
        template: Mapping[str, Any] = self.body["spec"]
        for name in adapter.template_path:
            template = template[name]
        free = (number for number in range(count + len(numbers)) if number not in numbers)
        for number in list(free)[: max(0, count - len(numbers))]:
            name = f"{self.prefix}-{number}"
            self.pods[name] = False
            self.selectors[name] = template["spec"].get("nodeSelector") or {}
            self.made += 1

    @property
    def prefix(self) -> str:
        return "train" if self.body["kind"] == "Job" else "torch-worker"

    def _tree(self) -> PoolTree:
        tree = PoolTree(QUOTAS, POOL)
        for one in self.own.values():
            tree.take(BLUE, one.cpu if one.state != "waiting" else 0)
        for queue, size, _, _, is_admitted in self.others.values():
            tree.take(f"ClusterQueue {queue}", size * 1000 if is_admitted else 0)
        return tree

    def _admit(self) -> None:
        """One round of Kueue: by priority, then by age."""
        waiting = [(-one[2], one[3], name) for name, one in self.others.items() if not one[4]]
        waiting += [(100 if i else 0, one.at, str(i)) for i, one in self.own.items() if one.state == "waiting"]
        for _, _, name in sorted(waiting):
            if name in self.others:
                self._admit_other(name)
            elif self.own[int(name)].cpu <= self._tree().available(BLUE):
                self.own[int(name)].state = "admitted"

    def _admit_other(self, name: str) -> None:
        queue, size, priority, created, _ = self.others[name]
        node_name, tree, need = f"ClusterQueue {queue}", self._tree(), size * 1000
        if need <= tree.available(node_name):
            self.others[name] = queue, size, priority, created, True
        elif queue == "blue" and priority > 0:
            self._evict(need - tree.available(node_name), has_base=True)
        elif self.reclaims and queue == "green" and tree.used(node_name) + need <= tree.nominal(node_name):
            self._evict(need - tree.available(node_name), has_base=False)

    def _evict(self, lacking: int, *, has_base: bool) -> None:
        """Evict as much as somebody needs, with what is evicted already: the newest surplus first, the base last."""
        lacking -= sum(one.cpu for one in self.own.values() if one.state == "evicted")
        for one in sorted(self.own.values(), key=lambda one: (not one.index, -one.at, -one.index)):
            if lacking > 0 and one.state == "admitted" and (one.index or has_base):
                one.state = "evicted"
                lacking -= one.cpu
