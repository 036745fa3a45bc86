"""What goes wrong in an hour: each trouble begins and ends at a time, and concerns a namespace, a job or a node.

`words` are what some condition or message of a job must show while the trouble keeps its pods from running.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from edl.model.quantity import parse_quantity
from edl.sandbox.apiserver.http.response import Response
from edl.sandbox.objects import labels_of, name_of, namespace_of
from tests.worlds.storms.cluster_life import Course
from tests.worlds.storms.local_server import Object

WEBHOOK = "pods.policy.example.com"
SIDECAR: Object = {"name": "mesh-proxy", "image": "mesh:1", "resources": {"requests": {"cpu": "500m"}}}


class Kind(StrEnum):
    """The kinds of troubles."""

    WEBHOOK_RAISES = "a webhook doubles the cpu of pods"
    WEBHOOK_LOWERS = "a webhook halves the cpu of pods"
    WEBHOOK_INJECTS = "a webhook puts a sidecar first"
    WEBHOOK_REFUSES = "a webhook rejects pods"
    WEBHOOK_FAILS = "a webhook times out"
    CREATION_FAILS = "the API server answers 500 to each creation"
    SERVER_BUSY = "the API server answers 429 to each creation"
    QUOTA = "a quota is set"
    IMAGE = "an image cannot be pulled"
    CONFIGURATION = "a ConfigMap is missing"
    INIT = "an init container cannot start"
    HANGS = "containers are created for ever"
    CRASH = "containers crash"
    REJECTED = "a node rejects pods"
    RECREATED = "an owner deletes a job and creates it again"


_WORDS = {
    Kind.WEBHOOK_REFUSES: (WEBHOOK,),
    Kind.WEBHOOK_FAILS: (WEBHOOK,),
    Kind.CREATION_FAILS: ("etcdserver",),
    Kind.SERVER_BUSY: ("too many requests", "Too many requests"),
    Kind.QUOTA: ("team-quota",),
    Kind.IMAGE: ("image",),
    Kind.CONFIGURATION: ("configmap",),
    Kind.INIT: ("fetch-data", "init container"),
    Kind.HANGS: ("ContainerCreating", "started"),
    Kind.CRASH: ("exited with code 3",),
}


@dataclass(frozen=True)
class Trouble:
    """One trouble.

    Attributes:
        target: a namespace, `namespace/job`, or a node.
        begin_s, end_s: when, in seconds of the loop.
        detail: what the kind needs: the `hard` of a quota, seconds until a crash, a reason of a kubelet.
        only_surplus: trainers with an index of the minimum are spared.
    """

    kind: Kind
    target: str
    begin_s: float
    end_s: float
    detail: Any = None
    only_surplus: bool = False

    def holds(self, now_s: float) -> bool:
        """True while it lasts."""
        return self.begin_s <= now_s < self.end_s

    @property
    def words(self) -> Sequence[str]:
        """Any of these names the cause."""
        return (str(self.detail),) if self.kind is Kind.REJECTED else _WORDS.get(self.kind, ())

    def __str__(self) -> str:
        more = f" ({self.detail})" if self.detail is not None else ""
        surplus = ", surplus only" if self.only_surplus else ""
        return f"{self.kind.value}{more}{surplus}: {self.target} from {self.begin_s:.0f} to {self.end_s:.0f} s"


class Planned(Protocol):
    """A job: its minimum, and how long its trainers run before they exit with code 0."""

    @property
    def low(self) -> int: ...
    @property
    def works_s(self) -> float | None: ...


@dataclass
class Troubles:
    """All troubles of an hour, as webhook and as fate of the pods.

    Attributes:
        all: the troubles.
        now: the time, in seconds of the loop.
        plans: the jobs, by `namespace/job`.
    """

    all: Sequence[Trouble]
    now: Callable[[], float]
    plans: Mapping[str, Planned] = field(default_factory=dict)

    def of(self, *kinds: Kind) -> list[Trouble]:
        """Those of some kinds that last now."""
        now_s = self.now()
        return [one for one in self.all if one.kind in kinds and one.holds(now_s)]

    # --- As a webhook

    def review(self, pod: Object) -> tuple[Object, Response | None]:
        """What admission makes of a new pod."""
        namespace = str(pod["metadata"].get("namespace") or "")
        for trouble in (one for one in self.of(*_AT_ADMISSION) if one.target == namespace):
            match trouble.kind:
                case Kind.WEBHOOK_RAISES:
                    pod = _scaled(pod, 2.0)
                case Kind.WEBHOOK_LOWERS:
                    pod = _scaled(pod, 0.5)
                case Kind.WEBHOOK_INJECTS:
                    pod = copy.deepcopy(pod)
                    pod["spec"]["containers"].insert(0, SIDECAR)
                case _:
                    return pod, _refusal(trouble.kind)
        return pod, None

    # --- As the fate of pods

    def course(self, pod: Object, _: float) -> Course:
        """What becomes of the containers of a pod now."""
        job, index = job_of(pod), index_of(pod)
        for trouble in self.of(Kind.REJECTED):
            if trouble.target == pod["spec"]["nodeName"] and job:
                return Course(rejected=(str(trouble.detail), _REJECTIONS[str(trouble.detail)]))
        for trouble in self.of(*_OF_CONTAINERS):
            spared = trouble.only_surplus and index is not None and index < self.plans[job].low
            if trouble.target == job and not spared and role_of(pod) == "trainer":
                return _course(trouble)
        works_s = self.plans[job].works_s if job else None
        return Course(runs_s=works_s if role_of(pod) == "trainer" else None)


def job_of(pod: Object) -> str:
    """`namespace/job` of the owner of a pod; empty for a serving pod."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return f"{namespace_of(pod)}/{owners[0]['name']}" if owners else ""


def role_of(pod: Object) -> str:
    """The role of a pod in its job; a pod of a batch Job is a trainer."""
    return labels_of(pod).get("paddlepaddle.org/role", "trainer")


def index_of(pod: Object) -> int | None:
    """The index of a trainer of a TrainingJob."""
    text = name_of(pod).rpartition("-trainer-")[2]
    return int(text) if text.isdecimal() else None


def _course(trouble: Trouble) -> Course:
    match trouble.kind:
        case Kind.IMAGE:
            return Course(waiting=("ErrImagePull", 'failed to pull image "train:2": not found'))
        case Kind.CONFIGURATION:
            return Course(waiting=("CreateContainerConfigError", 'configmap "tuning" not found'))
        case Kind.INIT:
            return Course(waiting=("ErrImagePull", 'failed to pull image "fetch:2": not found'), in_init=True)
        case Kind.HANGS:
            return Course(waiting=("ContainerCreating", ""))
    return Course(runs_s=float(trouble.detail), exit_code=3)


_AT_ADMISSION = (
    Kind.WEBHOOK_RAISES,
    Kind.WEBHOOK_LOWERS,
    Kind.WEBHOOK_INJECTS,
    Kind.WEBHOOK_REFUSES,
    Kind.WEBHOOK_FAILS,
    Kind.CREATION_FAILS,
    Kind.SERVER_BUSY,
)
_OF_CONTAINERS = (Kind.IMAGE, Kind.CONFIGURATION, Kind.INIT, Kind.HANGS, Kind.CRASH)
_REJECTIONS = {
    "OutOfcpu": "Node didn't have enough resource: cpu, requested: 1000, used: 8000, capacity: 8000",
    "UnexpectedAdmissionError": "Allocate failed due to no healthy devices present",
    "NodeAffinity": "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
}
REJECTIONS = tuple(_REJECTIONS)


def _scaled(pod: Object, factor: float) -> Object:
    pod = copy.deepcopy(pod)
    for container in pod["spec"]["containers"]:
        requests = container.get("resources", {}).get("requests", {})
        if "cpu" in requests:
            requests["cpu"] = f"{int(parse_quantity(requests['cpu'], 'cpu') * factor)}m"
    return pod


def _refusal(kind: Kind) -> Response:
    post = 'Post "https://policy.web.svc:443/review?timeout=10s": context deadline exceeded'
    code, reason, message = {
        Kind.WEBHOOK_REFUSES: (
            403,
            "Forbidden",
            f'admission webhook "{WEBHOOK}" denied the request: images must be signed',
        ),
        Kind.WEBHOOK_FAILS: (
            500,
            "InternalError",
            f'Internal error occurred: failed calling webhook "{WEBHOOK}": failed to call webhook: {post}',
        ),
        Kind.CREATION_FAILS: (500, "InternalError", "etcdserver: mvcc: database space exceeded"),
        Kind.SERVER_BUSY: (429, "TooManyRequests", "Too many requests, please try again later."),
    }[kind]
    body: Object = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    headers = {"Retry-After": "1"} if code == 429 else {}
    return Response(code, msgspec.json.encode({**body, "message": message}), headers=headers)
