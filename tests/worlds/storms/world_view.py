"""The cluster as its objects say it, for those who judge. Nothing here imports edl: amounts are read anew.

Amounts are millicores for cpu, and bytes or pieces for everything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

Object = dict[str, Any]
Amounts = dict[str, int]

_DECIMAL = {"": Decimal(1), "m": Decimal("0.001"), "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9)}
_SUFFIXES = {**_DECIMAL, "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30)}


def amount(text: object, resource: str) -> int:
    """A quantity as a number, rounded up."""
    shown = str(text)
    suffix = shown.lstrip("0123456789.")
    value = Decimal(shown.removesuffix(suffix)) * _SUFFIXES[suffix] * (1000 if resource.endswith("cpu") else 1)
    return -int(-value // 1)


def amounts(quantities: Mapping[str, object] | None) -> Amounts:
    """Several quantities."""
    return {name: amount(text, name) for name, text in (quantities or {}).items()}


@dataclass(frozen=True)
class SeenPod:
    """A pod.

    Attributes:
        owner: UID of its controller; empty if it has none.
        since_s: when it was first seen, in seconds of the loop.
        bound_s: when its node was first seen; None if it has none.
        ran: some container of it has run.
        says: reason and message of its containers that wait.
        codes: the exit codes of its containers.
    """

    body: Object
    owner: str
    owner_name: str
    since_s: float
    bound_s: float | None
    ran: bool

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])

    @property
    def role(self) -> str:
        return str((self.body["metadata"].get("labels") or {}).get("paddlepaddle.org/role", "trainer"))

    @property
    def index(self) -> int:
        text = self.name.rpartition("-")[2]
        return int(text) if text.isdecimal() else 0

    @property
    def node(self) -> str:
        return str(self.body["spec"].get("nodeName") or "")

    @property
    def status(self) -> Object:
        return self.body.get("status") or {}

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or "Pending")

    @property
    def is_deleted(self) -> bool:
        return bool(self.body["metadata"].get("deletionTimestamp"))

    @property
    def is_finished(self) -> bool:
        return self.phase in {"Succeeded", "Failed"}

    @property
    def is_live(self) -> bool:
        return not (self.is_deleted or self.is_finished)

    @property
    def is_ready(self) -> bool:
        conditions = self.status.get("conditions") or ()
        return self.is_live and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    @property
    def containers(self) -> list[Object]:
        """The states of all containers."""
        return [*(self.status.get("initContainerStatuses") or ()), *(self.status.get("containerStatuses") or ())]

    @property
    def waits(self) -> list[Object]:
        """What its containers wait for; nothing that every pod waits for at first."""
        found = [one["state"]["waiting"] for one in self.containers if "waiting" in one["state"]]
        return [one for one in found if one["reason"] not in {"ContainerCreating", "PodInitializing"}]

    @property
    def codes(self) -> list[int]:
        found = self.status.get("containerStatuses") or ()
        return [one["state"]["terminated"]["exitCode"] for one in found if "terminated" in one["state"]]

    @property
    def request(self) -> Amounts:
        """What it requests, with one pod."""
        return request_of(self.body)


def request_of(pod: Object) -> Amounts:
    """What a pod requests, with one pod; its init containers request nothing in these hours."""
    total: Amounts = {"pods": 1}
    for container in pod["spec"]["containers"]:
        for name, number in amounts((container.get("resources") or {}).get("requests")).items():
            total[name] = total.get(name, 0) + number
    return total


@dataclass(frozen=True)
class WorldView:
    """Everything at one moment.

    Attributes:
        now_s: in seconds of the loop.
        jobs: TrainingJobs; batch: `batch/v1` Jobs.
        ended: UID of an owner -> how its pods have ended since the beginning, by name.
        rejected_s: (UID of an owner, node) -> when its kubelet last refused a pod of it.
        admitted: UID of a job -> the last trainer that was admitted for it.
    """

    now_s: float
    nodes: list[Object]
    pods: list[SeenPod]
    jobs: list[Object]
    batch: list[Object]
    quotas: list[Object]
    ended: Mapping[str, list[tuple[str, int]]] = field(default_factory=dict)
    rejected_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    admitted: Mapping[str, Object] = field(default_factory=dict)

    def of(self, job: Object) -> list[SeenPod]:
        """The pods of a job."""
        return [pod for pod in self.pods if pod.owner == job["metadata"]["uid"]]

    def free(self) -> Iterator[tuple[str, Amounts]]:
        """What the ready nodes have free."""
        for node in self.nodes:
            name = node["metadata"]["name"]
            left = amounts(node["status"]["allocatable"])
            for pod in self.pods:
                if pod.node == name and not pod.is_finished:
                    for resource, number in pod.request.items():
                        left[resource] = left.get(resource, 0) - number
            yield name, left


@dataclass
class Watcher:
    """Takes views, and remembers what an object does not say of itself."""

    _first: dict[str, float] = field(default_factory=dict)
    _bound: dict[str, float] = field(default_factory=dict)
    _ran: set[str] = field(default_factory=set)
    _ended: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict)
    _rejected: set[str] = field(default_factory=set)
    _rejected_s: dict[tuple[str, str], float] = field(default_factory=dict)

    def note(self, pod: Object, now_s: float) -> None:
        """Note a state of a pod."""
        uid, status = pod["metadata"]["uid"], pod.get("status") or {}
        self._first.setdefault(uid, now_s)
        if pod["spec"].get("nodeName"):
            self._bound.setdefault(uid, now_s)
        states = [one["state"] for one in status.get("containerStatuses") or ()]
        if any("running" in one or "terminated" in one for one in states):
            self._ran.add(uid)
        if status.get("phase") == "Failed" and not states and uid not in self._rejected:
            self._rejected.add(uid)
            self._rejected_s[_owner(pod)[0], pod["spec"]["nodeName"]] = now_s
        for state in states:
            if "terminated" in state:
                name, code = pod["metadata"]["name"], state["terminated"]["exitCode"]
                self._ended.setdefault(_owner(pod)[0], {})[uid] = (name, code)

    def view(self, now_s: float, objects: Mapping[str, list[Object]], admitted: Mapping[str, Object]) -> WorldView:
        """The cluster now, from its collections and the last trainers that were admitted, by job."""
        return WorldView(
            now_s,
            objects["nodes"],
            [self._seen(pod, now_s) for pod in objects["pods"]],
            objects["jobs"],
            objects["batch"],
            objects["quotas"],
            {uid: list(found.values()) for uid, found in self._ended.items()},
            self._rejected_s,
            admitted,
        )

    def _seen(self, pod: Object, now_s: float) -> SeenPod:
        self.note(pod, now_s)
        uid = pod["metadata"]["uid"]
        return SeenPod(pod, *_owner(pod), self._first[uid], self._bound.get(uid), uid in self._ran)


def _owner(pod: Object) -> tuple[str, str]:
    for one in pod["metadata"].get("ownerReferences") or ():
        if one.get("controller"):
            return str(one["uid"]), str(one["name"])
    return "", ""


def copies(request: Amounts, free: Amounts) -> int:
    """How many pods with that request fit."""
    return max(0, min((free.get(name, 0) // number for name, number in request.items() if number), default=0))
