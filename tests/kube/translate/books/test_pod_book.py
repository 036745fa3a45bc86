"""A translator that follows changes sees what a new one sees that reads the whole cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from edl.kube.translate.books import sorted_values
from edl.kube.translate.objects import JobObject, NodeObject, PodObject
from edl.kube.translate.snapshot import ClusterObjects, Translator
from edl.model import cluster as model
from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey
from edl.model.pods import Pod
from tests.worlds.raw_objects import Object, decoded, job, node, owned_by, pod, trainer

CLASSES = [decoded({"kind": "PriorityClass", "metadata": {"name": "gold"}, "value": value}) for value in (5, 9)]
QUOTAS = [
    decoded({"kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "ads"}, "spec": {"hard": {"cpu": "9"}}})
]
DAEMONS = [
    decoded({"kind": "DaemonSet", "metadata": {"name": "log", "namespace": "ads"}, "spec": {"template": pod("log")}})
]

NOW_S = 1000.0


def for_node(name: str) -> Object:
    """What the controller of DaemonSets writes into a pod for one node."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        }
    }


@dataclass
class Cluster:
    """Objects that change, and one translator that hears of the changes of pods, jobs and nodes."""

    rng: Random
    translator: Translator = field(default_factory=Translator)
    pods: dict[tuple[str, str], PodObject] = field(default_factory=dict)
    jobs: dict[str, JobObject] = field(default_factory=dict)
    nodes: dict[str, NodeObject] = field(default_factory=dict)
    classes: list[Any] = field(default_factory=lambda: CLASSES[:1])
    daemons: list[Any] = field(default_factory=lambda: DAEMONS)

    def __post_init__(self) -> None:
        for name in ("n1", "n2"):
            self.put_node(name, node(name))

    def change(self) -> None:
        """One thing happens."""
        match self.rng.randrange(11):
            case 0:
                name = self.rng.choice(["ctr", "sort"])
                self.put_job(name, job(name, uid=f"uid-{name}-{self.rng.randrange(2)}"))
            case 1:
                self.put_job(self.rng.choice(["ctr", "sort"]), None)
            case 8:
                name = self.rng.choice(["n1", "n2", "n3"])
                self.put_node(name, node(name, status={"allocatable": {"cpu": self.rng.choice(["2", "much"])}}))
            case 9:
                self.put_node(self.rng.choice(["n1", "n2", "n3"]), None)
            case 10:
                self.daemons = self.rng.choice([DAEMONS, []])
            case 2:
                self.classes = [self.rng.choice(CLASSES)]
            case 3 if self.pods:
                self.put(self.rng.choice(sorted(self.pods)), None)
            case _:
                body = self.some_pod()
                if self.rng.random() < 0.2:
                    body["metadata"]["deletionTimestamp"] = "2026-01-05T10:00:00Z"
                source = decoded(body)
                self.put((source.metadata.namespace, source.metadata.name), source)

    def put(self, key: tuple[str, str], source: PodObject | None) -> None:
        """A pod comes, changes or goes."""
        if source is None:
            del self.pods[key]
        else:
            self.pods[key] = source
        self.translator.note_pods([(key, source)], self.classes)
        if self.rng.random() < 0.5:
            self.translator.translate_pods(1000.0, self.rng.randrange(1, 4))
        if self.rng.random() < 0.3:
            self.translator.order_pods()

    def read_a_part(self) -> None:
        """Some of what is due is read before the next snapshot, as on a large cluster."""
        if self.rng.random() < 0.3:
            self.translator.sort_pods(2)
            self.translator.reserve_nodes(self.daemons, NOW_S, 1)
            self.translator.read_jobs(NOW_S, 1)

    def put_job(self, name: str, body: Object | None) -> None:
        """A job comes, changes or goes."""
        self.jobs.pop(name, None)
        if body is not None:
            self.jobs[name] = decoded(body)
        self.translator.note_jobs([(JobKey("ads", name), self.jobs.get(name))])
        if self.rng.random() < 0.5:
            self.translator.prepare_jobs(1000.0, 1)

    def put_node(self, name: str, body: Object | None) -> None:
        """A node comes, changes or goes."""
        self.nodes.pop(name, None)
        if body is not None:
            self.nodes[name] = decoded(body)
        self.translator.note_nodes([(name, self.nodes.get(name))])
        if self.rng.random() < 0.5:
            self.translator.translate_nodes(1)

    def some_pod(self) -> Object:
        """Any pod: of a job, of a DaemonSet, serving, finished, nominated, or one that cannot be read."""
        name, index = self.rng.choice(["ctr", "sort"]), self.rng.randrange(4)
        owner = self.rng.choice([None, owned_by(f"uid-{name}-{self.rng.randrange(2)}", name)])
        status: Object = {"phase": self.rng.choice(["Pending", "Running", "Succeeded"])}
        spec: Object = {"priorityClassName": "gold"}
        match self.rng.randrange(5):
            case 0:
                return trainer(index, job=name, owner=owner, spec={"nodeName": "n1"}, status=status)
            case 1:
                return trainer(index, job=name, owner=owner, status=status, spec=spec)
            case 2:
                status["nominatedNodeName"] = self.rng.choice(["n1", "gone"])
                return pod(f"web-{index}", spec=spec, status=status)
            case 3:
                daemon = {"kind": "DaemonSet", "name": "log", "uid": "d"}
                place = self.rng.choice([{"nodeName": "n1"}, {"nodeName": "n2"}, for_node("n1")])
                return pod(f"web-{index}", owner=daemon, spec=place, status={"phase": "Pending"})
            case _:
                resources = {"requests": {"cpu": self.rng.choice(["1", "much"])}}
                return pod(f"web-{index}", spec={"containers": [{"name": "c", "resources": resources}], **spec})

    def snapshot(self) -> ClusterSnapshot:
        """What the translator sees that heard of changes."""
        return self.translator.snapshot(ClusterObjects(nodes=None, pods=None, jobs=None, **self.rest()), NOW_S)

    def afresh(self) -> tuple[ClusterSnapshot, set[str]]:
        """What a new translator sees, and the pods that it leaves out."""
        translator = Translator()
        found = translator.snapshot(
            ClusterObjects(
                nodes=self.nodes.values(), pods=self.pods.values(), jobs=self.jobs.values(), **self.rest()
            ),
            NOW_S,
        )
        return found, set(map(str, translator.quarantined))

    def rest(self) -> dict[str, Any]:
        return {
            "daemonsets": self.daemons,
            "priority_classes": self.classes,
            "resource_quotas": QUOTAS,
        }


def moving(snapshot: ClusterSnapshot) -> list[tuple[Pod, ...]]:
    """The pods that come or go; of a new tuple of pods nobody has kept count."""
    return [snapshot.waiting_serving, snapshot.nominated_serving, snapshot.terminating]


def cluster_of(seed: int) -> Cluster:
    return Cluster(Random(seed))  # noqa: S311 - the same cluster each time


@pytest.mark.parametrize("one_by_one", [0, 2, 1000])
@pytest.mark.parametrize("seed", range(20))
def test_changes_add_up_to_the_whole_cluster(seed: int, one_by_one: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_values, "MOST_PLACED_ONE_BY_ONE", one_by_one)
    cluster = cluster_of(seed)
    for _ in range(60):
        cluster.change()
        cluster.read_a_part()
        if cluster.rng.random() < 0.4:
            expected, left_out = cluster.afresh()
            found = cluster.snapshot()
            assert found == expected
            assert moving(found) == moving(replace(found, pods=(*found.pods,)))
            assert set(map(str, cluster.translator.quarantined)) == left_out
            again = cluster.snapshot()
            assert again.shares_all(found)


def test_what_has_not_changed_remains_the_same_object() -> None:
    cluster = cluster_of(0)
    for name in ("ctr", "sort"):
        cluster.put_job(name, job(name, uid=f"uid-{name}"))
    for source in (trainer(0), trainer(0, job="sort"), pod("web-0"), pod("web-1")):
        found = decoded(source)
        cluster.put(("ads", found.metadata.name), found)
    before = cluster.snapshot()
    cluster.put(("ads", "web-1"), decoded(pod("web-1", status={"phase": "Pending"})))
    cluster.put(("ads", "sort-trainer-0"), decoded(trainer(0, job="sort", status={"phase": "Pending"})))
    after = cluster.snapshot()
    assert after.pods[0] is before.pods[0]
    assert after.pods[1] != before.pods[1]
    assert after.jobs[0] is before.jobs[0]
    assert after.jobs[1] != before.jobs[1]
    assert after.nodes is before.nodes


def test_pods_of_no_job_are_the_same_tuple_until_one_changes() -> None:
    cluster = cluster_of(0)
    cluster.put(("ads", "web-0"), decoded(pod("web-0")))
    before = cluster.snapshot()
    cluster.put_job("ctr", job("ctr"))
    assert cluster.snapshot().pods is before.pods
    cluster.put(("ads", "web-1"), decoded(pod("web-1")))
    assert len(cluster.snapshot().pods) == 2


def test_pods_are_translated_a_few_at_a_time() -> None:
    cluster = cluster_of(0)
    changes = [(("ads", f"web-{n}"), decoded(pod(f"web-{n}"))) for n in range(5)]
    cluster.translator.note_pods(changes, cluster.classes)
    assert [cluster.translator.translate_pods(1000.0, 2) for _ in range(3)] == [True, True, False]
    assert len(cluster.snapshot().pods) == 5


def test_a_snapshot_knows_which_pods_come_and_go_without_a_look_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = cluster_of(0)
    for number in range(9):
        cluster.put(("ads", f"web-{number}"), decoded(pod(f"web-{number}", spec={"nodeName": "n1"})))
    looked_at: list[int] = []

    def noted(pods: tuple[Pod, ...], moving: Iterable[Pod]) -> Any:
        found = list(moving)
        looked_at.append(len(found))
        return right(pods, found)

    right = model._remember
    monkeypatch.setattr(model, "_remember", noted)
    cluster.put(("ads", "new"), decoded(pod("new", status={"phase": "Pending"})))
    gone = pod("web-3", spec={"nodeName": "n1"})
    gone["metadata"]["deletionTimestamp"] = "2026-01-05T10:00:00Z"
    cluster.put(("ads", "web-3"), decoded(gone))
    found = cluster.snapshot()
    assert [one.name for one in found.waiting_serving] == ["new"]
    assert [one.name for one in found.terminating] == ["web-3"]
    assert looked_at == [2]
