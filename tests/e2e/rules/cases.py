"""Pods with random rules, and on which nodes a plan lets the last ones of each case run.

The pods of a case carry its number as a label, and each rule selects it. Ports, drivers, devices and resources have
names of their own in each case. So many cases share one cluster, and each is decided as if it were alone.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from edl.explain.decision import decide
from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from edl.model.cluster import ClusterSnapshot, Node
from edl.model.limits import Limits
from edl.model.pods import Pod
from edl.model.resources import HOST_PORT_PREFIX, Resources
from edl.planner.eligibility import takes
from edl.planner.policies.registry import policy_named
from tests.e2e.rules.clusters import NODES, PATIENT, SPACES, URGENT, node_name
from tests.e2e.rules.devices import Devices, random_devices
from tests.e2e.rules.volumes import Storage, claim_volume, random_storage
from tests.worlds.rules.scenes import HOSTNAME, ZONE

Object = dict[str, Any]
APPS = "xyz"


@dataclass(frozen=True, slots=True)
class RuleCase:
    """Pods that run, and pods of one kind that wait.

    Attributes:
        others: volumes, devices and claims of the case.
        running: pods with a node.
        waiting: one pod, or the replicas of one.
        offers: for each node by its number, what it has of the case's own resource.
        limits: for each node by its number, how many volumes of each driver it attaches.
        held: for some running pods by their number, the name and the status of a claim on devices.
        provisioned: a claim of which the scheduler only chooses the node; empty for none.
    """

    number: int
    others: tuple[Object, ...]
    running: tuple[Object, ...]
    waiting: tuple[Object, ...]
    offers: dict[int, dict[str, str]]
    limits: dict[int, dict[str, int]]
    held: dict[int, tuple[str, Object]]
    provisioned: str

    @property
    def namespace(self) -> str:
        """Where the pods wait."""
        return str(self.waiting[0]["metadata"]["namespace"])


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a plan says about the waiting pods of a case.

    Attributes:
        placed: so many get a node.
        nodes: those that take the first one.
        why: the mark of the first one that no eviction helps; empty for none.
    """

    placed: int
    nodes: frozenset[str]
    why: str


def opinion(objects: list[Object]) -> Opinion:
    """Plan the objects of one case.

    Args:
        objects: the nodes and namespaces, and the objects of the case, as the API server has them.
    """
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    snapshot, left_out = read_snapshot_texts([("case.json", items)]).snapshot()
    assert not left_out
    first = snapshot.waiting_serving[0]
    placed = decide(snapshot, policy_named("maxmin"), Limits()).serving.placed
    whys = [pod.blocked for pod in snapshot.waiting_serving if pod.blocked]
    return Opinion(placed, frozenset(_accepting(snapshot, first)), whys[0] if whys else "")


def _accepting(snapshot: ClusterSnapshot, pod: Pod) -> set[str]:
    if pod.blocked:
        return set()
    used: dict[str, Resources] = {}
    for other in snapshot.pods:
        if other.node:
            used[other.node] = used.get(other.node, Resources()) + other.requested
    return {
        node.name
        for node in snapshot.nodes
        if takes(node, pod.shape.placement) and _fits(pod, node, used.get(node.name, Resources()))
    }


def _fits(pod: Pod, node: Node, used: Resources) -> bool:
    """Return True if the node has room and the ports for a pod beside what is used."""
    left = node.allocatable - node.reserved - used
    for name, amount in pod.shape.request.amounts:
        if not name.startswith(HOST_PORT_PREFIX):
            if amount > left[name]:
                return False
        elif any(_are_one_port(name, other) for other in used):
            return False
    return True


def _are_one_port(one: str, other: str) -> bool:
    """Return True for ports of which a node has only one; without an address they are those of all addresses."""
    short, long = sorted((one, other), key=len)
    return short == long or (long.startswith(f"{short}/") and short.startswith(HOST_PORT_PREFIX))


def random_case(seed: int, number: int, batch: int) -> RuleCase:
    """Return a case; the same seed and number give the same one."""
    return _Maker(random.Random(f"{seed}/{number}"), number, batch).case()  # noqa: S311 - no secret depends on it


@dataclass(slots=True)
class _Maker:
    rng: random.Random
    number: int
    batch: int
    offers: dict[int, dict[str, str]] = field(default_factory=dict)

    def case(self) -> RuleCase:
        rng, number = self.rng, self.number
        places = [rng.randrange(NODES) for _ in range(rng.randrange(1, 6))]
        running = [self._pod(f"r{i}", on, chance=0.25) for i, on in enumerate(places)]
        first = self._pod("w", None, chance=0.45)
        alone = rng.random() < 0.7
        namespace = first["metadata"]["namespace"]
        storage, devices = Storage(), Devices()
        if rng.random() < 0.3:
            storage = random_storage(rng, number, namespace, NODES, alone=alone)
        for place, name in enumerate(storage.used):
            running[place % len(running)]["metadata"]["namespace"] = namespace
            running[place % len(running)]["spec"].setdefault("volumes", []).append(claim_volume(name))
        self._mount(first, storage)
        if rng.random() < 0.25:
            here = [on if running[i]["metadata"]["namespace"] == namespace else -1 for i, on in enumerate(places)]
            names = [node_name(self.batch, node) for node in range(NODES)]
            devices = random_devices(rng, number, namespace, names, here, alone=alone)
            self._claim(first, running, devices)
        if rng.random() < 0.25:
            self._own_resource([first, *running])
        if rng.random() < 0.2:
            self._ports(first, running)
        waiting = (first,) if alone else _replicas(first, rng.randrange(2, 7))
        return RuleCase(
            number,
            (*storage.objects, *devices.objects),
            tuple(running),
            waiting,
            self.offers,
            storage.limits,
            devices.held,
            storage.provisioned,
        )

    def _mount(self, first: Object, storage: Storage) -> None:
        volumes = [claim_volume(name) for name in storage.mounted]
        if storage.inline:
            volumes += [{"name": f"i{place}", "csi": {"driver": storage.inline}} for place in range(2)]
        if volumes:
            first["spec"]["volumes"] = volumes

    def _claim(self, first: Object, running: list[Object], devices: Devices) -> None:
        for place, (name, _) in devices.held.items():
            running[place]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
        if devices.claims:
            first["spec"]["resourceClaims"] = devices.claims
        if devices.requests:
            _resources(first).setdefault("limits", {}).update(devices.requests)

    def _own_resource(self, pods: list[Object]) -> None:
        """A resource that some nodes have, and that some pods request."""
        name = f"case{self.number}.example.com/r"
        for node in range(NODES):
            if self.rng.random() < 0.8:
                self.offers[node] = {name: str(self.rng.randrange(1, 4))}
        for place, pod in enumerate(pods):
            if not place or self.rng.random() < 0.5:
                amount = str(self.rng.choice((1, 1, 2)))
                _resources(pod).setdefault("limits", {})[name] = amount

    def _ports(self, first: Object, running: list[Object]) -> None:
        """The same port of the host, of several addresses and protocols."""
        for pod in (first, *running):
            if pod is first or self.rng.random() < 0.6:
                port: Object = {"containerPort": 80, "hostPort": 10_000 + self.number % 40_000}
                port["protocol"] = self.rng.choice(("TCP", "TCP", "UDP"))
                if self.rng.random() < 0.4:
                    port["hostIP"] = self.rng.choice(("0.0.0.0", "127.0.0.1", "10.0.0.1"))  # noqa: S104 - of a pod
                pod["spec"]["containers"][0]["ports"] = [port]

    def _pod(self, name: str, on: int | None, chance: float) -> Object:
        rng = self.rng
        labels = {"case": str(self.number), "app": rng.choice(APPS), "rev": rng.choice("12")}
        spec: Object = {"containers": [{"name": "c", "image": "x"}], "terminationGracePeriodSeconds": 0}
        affinity: Object = {}
        if rng.random() < chance:
            affinity["podAntiAffinity"] = self._terms()
        if rng.random() < chance / 3:
            affinity["podAffinity"] = self._terms()
        if rng.random() < 0.3:
            affinity["nodeAffinity"] = self._node_affinity()
        if affinity:
            spec["affinity"] = affinity
        if rng.random() < chance:
            spread = {one["topologyKey"]: one for one in (self._spread() for _ in range(rng.choice((1, 1, 2))))}
            spec["topologySpreadConstraints"] = list(spread.values())
        spec["tolerations"] = self._tolerations()
        if rng.random() < 0.1:
            spec["nodeSelector"] = {ZONE: rng.choice("abc")}
        if on is None:
            spec |= {"priorityClassName": rng.choice((PATIENT, URGENT))} if rng.random() < 0.3 else {}
        else:
            spec["nodeName"] = node_name(self.batch, on)
            spec["tolerations"].append({"operator": "Exists", "effect": "NoExecute"})
        metadata = {"name": f"{name}-{self.number}", "namespace": rng.choice(SPACES), "labels": labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _tolerations(self) -> list[Object]:
        rng = self.rng
        found: list[Object] = []
        if rng.random() < 0.3:
            key = rng.choice(("gpu", "spot"))
            found.append({"key": key, "operator": "Exists"})
        if rng.random() < 0.2:
            effect = rng.choice(("", "NoSchedule", "NoExecute"))
            found.append({"key": rng.choice(("gpu", "spot")), "value": rng.choice("xy"), "effect": effect})
        if rng.random() < 0.05:
            found.append({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"})
        return found

    def _node_affinity(self) -> Object:
        """Required terms, and sometimes preferred ones, which exclude no node."""
        rng = self.rng
        terms = [{"matchExpressions": self._requirements()} for _ in range(rng.choice((1, 1, 2)))]
        if rng.random() < 0.25:
            names = [node_name(self.batch, rng.randrange(NODES))]
            terms = [
                {"matchFields": [{"key": "metadata.name", "operator": rng.choice(("In", "NotIn")), "values": names}]}
            ]
        found: Object = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        if rng.random() < 0.3:
            preference = {"matchExpressions": self._requirements()}
            found["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": 10, "preference": preference}]
        return found

    def _requirements(self) -> list[Object]:
        rng = self.rng
        return rng.sample(
            (
                {"key": "disk", "operator": "In", "values": ["ssd"]},
                {"key": "disk", "operator": "NotIn", "values": ["ssd"]},
                {"key": ZONE, "operator": "NotIn", "values": [rng.choice("abc")]},
                {"key": ZONE, "operator": rng.choice(("Exists", "DoesNotExist"))},
                {"key": "rank", "operator": rng.choice(("Gt", "Lt")), "values": [str(rng.randrange(1, 5))]},
            ),
            rng.choice((1, 1, 2)),
        )

    def _selector(self) -> Object:
        rng = self.rng
        case = {"case": str(self.number)}
        match rng.randrange(4):
            case 0:
                return {"matchLabels": case}
            case 1:
                values = rng.sample(APPS, 2)
                operator = rng.choice(("In", "NotIn"))
                return {
                    "matchLabels": case,
                    "matchExpressions": [{"key": "app", "operator": operator, "values": values}],
                }
            case _:
                return {"matchLabels": {**case, "app": rng.choice(APPS)}}

    def _terms(self) -> Object:
        rng = self.rng
        found = []
        for _ in range(rng.choice((1, 1, 2))):
            term: Object = {"labelSelector": self._selector(), "topologyKey": rng.choice((HOSTNAME, ZONE))}
            match rng.randrange(6):
                case 0:
                    term["namespaces"] = rng.sample(SPACES, 2)
                case 1:
                    term["namespaceSelector"] = rng.choice(
                        ({}, {"matchLabels": {"team": rng.choice(("one", "two"))}})
                    )
                case 2:
                    term[rng.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["rev"]
            found.append(term)
        return {"requiredDuringSchedulingIgnoredDuringExecution": found}

    def _spread(self) -> Object:
        rng = self.rng
        found: Object = {
            "maxSkew": rng.choice((1, 1, 2)),
            "topologyKey": rng.choice((HOSTNAME, ZONE)),
            "whenUnsatisfiable": rng.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": self._selector(),
        }
        if rng.random() < 0.3 and found["whenUnsatisfiable"] == "DoNotSchedule":
            found["minDomains"] = rng.randrange(1, 5)
        if rng.random() < 0.3:
            found["nodeAffinityPolicy"] = rng.choice(("Honor", "Ignore"))
        if rng.random() < 0.3:
            found["nodeTaintsPolicy"] = rng.choice(("Honor", "Ignore"))
        if rng.random() < 0.2:
            found["matchLabelKeys"] = ["rev"]
        return found


def _resources(pod: Object) -> Object:
    found: Object = pod["spec"]["containers"][0].setdefault("resources", {})
    return found


def _replicas(pod: Object, count: int) -> tuple[Object, ...]:
    """A pod several times over, as a Deployment makes them."""
    texts = [json.dumps(pod)] * count
    found = tuple(json.loads(text) for text in texts)
    for number, one in enumerate(found):
        one["metadata"]["name"] += f"-{number}"
    return found
