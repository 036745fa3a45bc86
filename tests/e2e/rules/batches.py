"""Cases that are tried together on the nodes of one cluster."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from tests.e2e.control_plane.kube import Kube
from tests.e2e.rules.cases import Opinion, RuleCase, opinion, random_case
from tests.e2e.rules.clusters import NODES, SPACES, csi_node, node_name, random_nodes
from tests.e2e.rules.verdicts import Verdicts

Object = dict[str, Any]
WITHIN_S, SETTLED_S, TRIES, AT_ONCE = 20.0, 1.0, 3, 6
"""A verdict that differs is asked for again with new pods: the first may come before the scheduler sees an object."""
_GONE = ("pods", "resourceclaims", "persistentvolumeclaims")
_GONE_WITH_NODES = ("resourceslices", "csinodes", "nodes", "persistentvolumes", "storageclasses", "deviceclasses")


class Batch:
    """Cases that are tried together on fresh nodes; use as a context.

    Args:
        kube: the cluster.
        verdicts: of its scheduler.
        seed: of all cases.
        number: of the batch.
        cases: their numbers.
    """

    def __init__(self, kube: Kube, verdicts: Verdicts, seed: int, number: int, cases: range) -> None:
        self._kube, self._verdicts, self._seed, self._number = kube, verdicts, seed, number
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self.cases = [random_case(seed, one, number) for one in cases]
        self._known: dict[int, list[Object]] = {case.number: [] for case in self.cases}
        self._nodes: list[Object] = []
        self._spaces: list[Object] = []

    def prepare(self) -> None:
        """Create the nodes, and all objects but the waiting pods."""
        rng = random.Random(f"{self._seed}/batch/{self._number}")  # noqa: S311 - no secret depends on it
        bodies = random_nodes(rng, self._number)
        for node, body in enumerate(bodies):
            for case in self.cases:
                body["status"]["allocatable"] |= case.offers.get(node, {})
                body["status"]["capacity"] |= case.offers.get(node, {})
        self._create(bodies)
        limits = ({k: v for c in self.cases for k, v in c.limits.get(n, {}).items()} for n in range(NODES))
        self._create(csi_node(node_name(self._number, n), of) for n, of in enumerate(limits) if of)
        self._kube.wait_until(self._are_open, WITHIN_S, "the nodes are there")
        found = {
            node["metadata"]["name"]: {"apiVersion": "v1", "kind": "Node", **node}
            for node in self._kube.list("nodes")
        }
        self._nodes = [found[node_name(self._number, number)] for number in range(NODES)]
        self._spaces = [{"apiVersion": "v1", "kind": "Namespace", **one} for one in self._kube.list("namespaces")]
        others = [(case, one) for case in self.cases for one in case.others]
        for (case, _), body in zip(others, self._create(one for _, one in others), strict=True):
            self._known[case.number].append(body)
        self._kube.wait_until(self._are_bound, WITHIN_S, "claims are bound", poll_s=0.5)
        self._read_volumes()
        running = [(case, place, one) for case in self.cases for place, one in enumerate(case.running)]
        created = self._create(one for _, _, one in running)
        for (case, _, _), pod in zip(running, created, strict=True):
            self._known[case.number].append(pod)
        held = [
            (case, place, pod) for (case, place, _), pod in zip(running, created, strict=True) if place in case.held
        ]
        for case, place, pod in held:
            self._hold(case, place, pod)

    def judge(self) -> list[str]:
        """Try every case, again where plan and scheduler differ; return a line for each that does so to the end.

        kube-scheduler chooses where the first volume of a claim is made; then the plan knows it in the next attempt.
        """
        left, lines = self.cases, dict[int, str]()
        for attempt in range(TRIES):
            pods = self._submit(left, attempt)
            opinions = {case.number: self._opinion(case, pods[case.number]) for case in left}
            self._verdicts.wait(partial(self._are_decided, left, pods), WITHIN_S)
            self._verdicts.wait(partial(self._all_agree, left, pods, opinions), SETTLED_S)
            different = self._differ(left, pods, opinions)
            lines = {case.number: self._line(case, pods[case.number], opinions[case.number]) for case in different}
            left = different
            if not left:
                break
            if attempt + 1 < TRIES:
                self._remove(pod for case in left for pod in pods[case.number])
                self._read_volumes()
        return list(lines.values())

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove everything."""
        self._pool.shutdown()
        for kind in _GONE:
            for space in SPACES:
                self._remove_all(self._kube.resource(kind).path(space))
        for kind in _GONE_WITH_NODES:
            self._remove_all(self._kube.resource(kind).path(None))

    def counts(self) -> Counter[str]:
        """How many cases have what."""
        return Counter(feature for case in self.cases for feature in features(case))

    def _opinion(self, case: RuleCase, pods: list[Object]) -> Opinion:
        nodes = [_only(one, case.offers.get(number, {})) for number, one in enumerate(self._nodes)]
        csi = [csi_node(node_name(self._number, number), of) for number, of in case.limits.items()]
        return opinion([*nodes, *self._spaces, *csi, *self._known[case.number], *pods])

    def _create(self, bodies: Iterable[Object]) -> list[Object]:
        def create(body: Object) -> Object:
            return {"apiVersion": body["apiVersion"], "kind": body["kind"], **self._kube.create(body)}

        return list(self._pool.map(create, bodies))

    def _are_open(self) -> bool:
        found = [
            node for node in self._kube.list("nodes") if node["metadata"]["name"].startswith(f"b{self._number}-")
        ]
        closed = ("node.kubernetes.io/not-ready",)
        taints = [taint["key"] for node in found for taint in node["spec"].get("taints") or ()]
        return len(found) == NODES and not any(key in closed for key in taints)

    def _are_bound(self) -> bool:
        claims = self._kube.list("persistentvolumeclaims")
        volumes = self._kube.list("persistentvolumes")
        return all(c["status"].get("phase") == "Bound" for c in claims if c["spec"].get("volumeName")) and all(
            volume["status"].get("phase") in {"Available", "Bound"} for volume in volumes
        )

    def _read_volumes(self) -> None:
        """Take over what the controller of volumes wrote."""
        kinds = ("PersistentVolume", "PersistentVolumeClaim")
        now = {(kind, one["metadata"]["name"]): one for kind in kinds for one in self._kube.list(kind)}
        for known in self._known.values():
            for body in known:
                body.update(now.get((body["kind"], body["metadata"]["name"]), {}))

    def _hold(self, case: RuleCase, place: int, pod: Object) -> None:
        """Give a running pod its devices."""
        name, status = case.held[place]
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        body = {"status": {**status, "reservedFor": [user]}}
        found = self._kube.patch("resourceclaims", name, body, case.namespace, subresource="status")
        known = self._known[case.number]
        known[:] = [one for one in known if (one["kind"], one["metadata"]["name"]) != ("ResourceClaim", name)]
        known.append({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **found})

    def _submit(self, cases: list[RuleCase], attempt: int) -> dict[int, list[Object]]:
        """Create the waiting pods, under names of their own for each attempt."""
        bodies = [(case, pod) for case in cases for pod in case.waiting]
        for _, pod in bodies:
            name = pod["metadata"]["name"].partition(".")[0]
            pod["metadata"]["name"] = f"{name}.t{attempt}" if attempt else name
        found: dict[int, list[Object]] = {case.number: [] for case in cases}
        for (case, _), pod in zip(bodies, self._create(pod for _, pod in bodies), strict=True):
            found[case.number].append(pod)
        return found

    def _remove(self, pods: Iterable[Object]) -> None:
        for pod in pods:
            self._kube.delete("pods", pod["metadata"]["name"], pod["metadata"]["namespace"], grace_s=0)

    def _remove_all(self, path: str) -> None:
        self._kube.request("DELETE", path, query={"gracePeriodSeconds": "0"})

    def _verdicts_of(self, case: RuleCase, pods: list[Object]) -> list[str | None]:
        named = [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in pods]
        return [self._verdicts.of(name, case.provisioned) for name in named]

    def _are_decided(self, cases: list[RuleCase], pods: dict[int, list[Object]]) -> bool:
        return all(None not in self._verdicts_of(case, pods[case.number]) for case in cases)

    def _differ(
        self, cases: list[RuleCase], pods: dict[int, list[Object]], opinions: dict[int, Opinion]
    ) -> list[RuleCase]:
        return [c for c in cases if not agrees(opinions[c.number], self._verdicts_of(c, pods[c.number]))]

    def _all_agree(self, cases: list[RuleCase], pods: dict[int, list[Object]], opinions: dict[int, Opinion]) -> bool:
        return not self._differ(cases, pods, opinions)

    def _line(self, case: RuleCase, pods: list[Object], mine: Opinion) -> str:
        found = self._verdicts_of(case, pods)
        named = [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in pods]
        said = " | ".join(dict.fromkeys(self._verdicts.why(name) for name in named if self._verdicts.of(name) == ""))
        return (
            f"case {case.number} ({', '.join(sorted(features(case)))}): of {len(pods)} kube-scheduler places "
            f"{sum(map(bool, found))} on {sorted(filter(None, found))}, the plan {mine.placed} of "
            f"{sorted(mine.nodes)}; {said or '-'}; {mine.why or '-'}"
        )


def _only(node: Object, offers: Object) -> Object:
    """A node with its usual resources and those of one case."""
    amounts = {k: v for k, v in node["status"]["allocatable"].items() if "/" not in k} | offers
    return {**node, "status": {**node["status"], "allocatable": amounts, "capacity": amounts}}


def agrees(mine: Opinion, found: list[str | None]) -> bool:
    """Return True if plan and scheduler place as many pods, and the only one where the plan lets it run."""
    placed = [node for node in found if node]
    if None in found or mine.placed != len(placed):
        return False
    if len(found) > 1:
        return True
    return not placed if not mine.nodes else set(placed) <= mine.nodes and bool(placed)


def features(case: RuleCase) -> set[str]:
    """Name what a case tries."""
    pod = case.waiting[0]["spec"]
    affinity = pod.get("affinity", {})
    names = {
        "anti-affinity": any(
            "podAntiAffinity" in p["spec"].get("affinity", {}) for p in (*case.running, *case.waiting)
        ),
        "affinity": "podAffinity" in affinity,
        "node affinity": "nodeAffinity" in affinity or "nodeSelector" in pod,
        "spread": any(
            one["whenUnsatisfiable"] == "DoNotSchedule" for one in pod.get("topologySpreadConstraints", ())
        ),
        "ports": "ports" in pod["containers"][0],
        "resource": bool(case.offers),
        "devices": bool(case.held) or any(one["kind"] == "DeviceClass" for one in case.others),
        "volumes": "volumes" in pod,
        "attachments": bool(case.limits),
        "one pod": any(
            "ReadWriteOncePod" in one["spec"].get("accessModes", ()) for one in case.others if "spec" in one
        ),
        "first consumer": any(one["kind"] == "StorageClass" for one in case.others),
        "preemptionPolicy": "priorityClassName" in pod,
        "tolerations": bool(pod["tolerations"]),
        "replicas": len(case.waiting) > 1,
    }
    return {name for name, is_there in names.items() if is_there}
