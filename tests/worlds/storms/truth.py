"""Compares each statement of the status of a TrainingJob with the cluster. Nothing here imports edl.

A statement may be late by as much as the controller needs: it is false once it has contradicted the cluster for
`LATE_S` in a row. What depends on pauses that the documents name (a refusal is asked again after 5 minutes at the
latest) may be as late as those.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.worlds.storms.world_view import Amounts, Object, SeenPod, WorldView, amount, amounts, copies, request_of

LATE_S = 30.0
TOLD_LATE_S = 60.0
"""For counts: a server that fails is asked again after pauses that double, before a job says so."""
ROOM_LATE_S = 90.0
"""For statements about room: a job that yielded to serving may grow again after 30 s, and cooldowns last a minute."""
REFUSAL_LATE_S = 330.0
"""For statements about refusals: they are asked again after at most 300 s."""
REJECTION_S = 3600.0
"""So long after its kubelet refused a pod of a job, the job may avoid the node, if it says so."""

_COUNT = re.compile(r"^(\d+) of (\d+): (.*)$", re.DOTALL)
_FULL = re.compile(r"\b(cpu|memory|ephemeral-storage|pods) (?:is|are) full\b")
_ON_ONE = re.compile(r"\bfull on node ([a-z0-9-]+)")
_ROOM = re.compile(r"waits for capacity for (\d+) trainers?")
_CODE = re.compile(r"(\S+-(?:trainer|pserver|master)-\d+) exited with code (\d+)")
_UNKNOWN = re.compile(r"(\S+) exited with an unknown code")
_AVOIDS = re.compile(r"avoids nodes? ([a-z0-9, -]+?), which rejected its pods")
_CANNOT = re.compile(r"(\S+-(?:trainer|pserver|master)-\d+) cannot start")


@dataclass(frozen=True)
class _Job:
    """A job with what its status says."""

    body: Object
    pods: list[SeenPod]
    view: WorldView

    @property
    def key(self) -> str:
        return f"{self.body['metadata']['namespace']}/{self.body['metadata']['name']}"

    @property
    def status(self) -> Object:
        return self.body.get("status") or {}

    @property
    def spec(self) -> Object:
        return dict(self.body["spec"])

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or "")

    @property
    def explanation(self) -> str:
        return str(self.status.get("explanation") or "")

    @property
    def low(self) -> int:
        return int(self.spec["trainer"]["min-instance"])

    @property
    def high(self) -> int:
        return int(self.spec["trainer"]["max-instance"])

    def condition(self, kind: str) -> Object:
        found = (c for c in self.status.get("conditions") or () if c["type"] == kind)
        return next(found, {"status": "", "reason": "", "message": ""})

    def role(self, role: str) -> list[SeenPod]:
        return [pod for pod in self.pods if pod.role == role]

    @property
    def completed(self) -> int:
        """Trainers that exited with code 0."""
        return len({pod.index for pod in self.role("trainer") if pod.phase == "Succeeded"})

    @property
    def trainer_request(self) -> Amounts:
        """What a trainer really requests: as the last one was admitted; else as the spec has it."""
        return _one_of(self.body, self.view)


Check = Callable[[_Job], Iterator[str]]


def _phases(job: _Job) -> Iterator[str]:
    ready = sum(pod.is_ready for pod in job.role("trainer"))
    finishing = job.completed > 0
    if job.phase in {"Running", "Scaling"} or job.condition("Running")["status"] == "True":
        if ready + job.completed < job.low and not finishing:
            yield f"phase {job.phase}, but {ready} trainers are ready, of at least {job.low}"
        for pod in (*job.role("pserver"), *job.role("master")):
            if pod.is_live and not pod.is_ready:
                yield f"phase {job.phase}, but {pod.name} is not ready"
    if job.phase == "Running":
        yield from (f"phase Running, but {p.name} is not ready" for p in job.pods if p.is_live and not p.is_ready)
    if job.phase == "Pending" and any(pod.is_live for pod in job.pods):
        yield f"phase Pending, but {sum(pod.is_live for pod in job.pods)} pods are live"
    if "has no pods" in job.condition("Running")["message"] and any(pod.is_live for pod in job.pods):
        yield "condition Running says that it has no pods, but it has"


def _ends(job: _Job) -> Iterator[str]:
    ended = job.view.ended.get(job.body["metadata"]["uid"], [])
    bad = [one for one in ended if one[1] != 0]
    if job.phase == "Succeeded" and not any(code == 0 and "-trainer-" in name for name, code in ended):
        yield "phase Succeeded, but no trainer of it has exited with code 0"
    if job.phase in {"Succeeded", "Failed"} and any(pod.is_ready for pod in job.pods):
        yield f"phase {job.phase}, but pods of it run"
    if (failures := int(job.status.get("failures") or 0)) > len(bad):
        yield f"{failures} failures, but {len(bad)} containers have failed"


def _counts(job: _Job) -> Iterator[str]:
    for role in ("trainer", "pserver", "master"):
        said = job.status.get(role) or {}
        live = [pod for pod in job.role(role) if pod.is_live]
        ready = sum(pod.is_ready for pod in live)
        for name, true in (("ready", ready), ("pending", len(live) - ready)):
            if job.status and int(said.get(name) or 0) != true:
                yield f"{said.get(name)} {role}s {name}, but {true} are"


def _maximum(job: _Job) -> Iterator[str]:
    found = _COUNT.match(job.explanation)
    if found is None or job.phase in {"Succeeded", "Failed"}:
        return
    target, of = int(found[1]), int(found[2])
    live = sum(pod.is_live for pod in job.role("trainer")) + job.completed
    finishing = job.completed > 0
    if "at its maximum" in found[3] and not finishing:
        if of != job.high or target < of:
            yield f"{job.explanation!r}, but its maximum is {job.high}"
        elif live < target and job.status.get("reason") == "AtMax":
            yield f"{job.explanation!r}, but it has {live} trainers"
        elif job.status.get("reason") == "AtMax" and job.condition("Degraded")["status"] != "True":
            waits = [p for p in job.role("trainer") if p.is_live and not p.ran and job.view.now_s - p.since_s > 150]
            yield from (f"{job.explanation!r}, but {pod.name} has not started" for pod in waits)
    if live > target and job.condition("Degraded")["status"] != "True" and not finishing:
        yield f"{job.explanation!r}, but it has {live} trainers"


def _exits(job: _Job) -> Iterator[str]:
    ended = set(job.view.ended.get(job.body["metadata"]["uid"], []))
    for text in _texts(job):
        for name, code in _CODE.findall(text):
            if (name, int(code)) not in ended:
                yield f"{name} exited with code {code}, but it did not"
        if (unknown := _UNKNOWN.search(text)) is not None:
            yield f"{unknown[1]} exited with an unknown code, but no container of it has ended so"


def _starts(job: _Job) -> Iterator[str]:
    degraded = job.condition("Degraded")
    if degraded["status"] == "True":
        for name in _CANNOT.findall(degraded["message"]):
            if not any(pod.name == name and pod.is_live and not pod.is_ready for pod in job.pods):
                yield f"{name} cannot start, but it is ready, or there is none"


def _texts(job: _Job) -> list[str]:
    """What is said in the present tense."""
    found = [c["message"] for c in job.status.get("conditions") or () if c["status"] == "True"]
    return [job.explanation, *found]


def _room(job: _Job) -> Iterator[str]:
    if job.phase in {"Succeeded", "Failed"} or job.status.get("reason") not in {
        "InsufficientCapacity",
        "MinUnsatisfied",
        "Unschedulable",
    }:
        return
    request = job.trainer_request
    room = {name: copies(request, free) for name, free in job.view.free() if name not in _avoided(job)}
    promised = _promised(job)
    if (waits := _ROOM.search(job.explanation)) is not None:
        if not job.pods and sum(room.values()) - promised >= int(waits[1]) + _others(job):
            yield f"{job.explanation!r}, but the nodes have capacity for {sum(room.values())}"
    elif (full := _FULL.search(job.explanation)) is not None and _COUNT.match(job.explanation):
        if (only := _ON_ONE.search(job.explanation)) is not None:  # it says nothing of the others
            room = {name: most for name, most in room.items() if name == only[1]}
        free = [name for name, most in room.items() if most]
        if full[1] in request and sum(room.values()) > promised:
            yield f"{job.explanation!r}, but {free[0]} has capacity for a trainer"


def _avoided(job: _Job) -> list[str]:
    """The nodes that a job says it avoids because they rejected its pods."""
    found = _AVOIDS.search(job.explanation)
    return re.split(r", | and ", found[1]) if found is not None else []


def _rejections(job: _Job) -> Iterator[str]:
    now_s, uid = job.view.now_s, job.body["metadata"]["uid"]
    for name in _avoided(job):
        if now_s - job.view.rejected_s.get((uid, name), -REJECTION_S) >= REJECTION_S:
            yield f"{job.explanation!r}, but {name} has not"


def _promised(job: _Job) -> int:
    """How many trainers of the job the pods are worth that have no node yet, or that other jobs are to have."""
    waiting = [pod.request for pod in job.view.pods if pod.is_live and not pod.node]
    for body in (*job.view.jobs, *job.view.batch):
        owned = [pod for pod in job.view.of(body) if pod.role == "trainer" and pod.is_live]
        status = body.get("status") or {}
        is_over = bool(status.get("completionTime")) or bool(status.get("succeeded"))
        wanted = body["spec"].get("parallelism", (status.get("trainer") or {}).get("desired") or 0)
        if (missing := int(wanted) - len(owned)) > 0 and not is_over:
            waiting += [_one_of(body, job.view)] * missing
    return sum(1 + max(0, one.get("cpu", 0) - 1) // max(1, job.trainer_request.get("cpu", 1)) for one in waiting)


def _one_of(body: Object, view: WorldView) -> Amounts:
    """What a trainer of a TrainingJob, or a pod of a `batch/v1` Job, requests; see `_Job.trainer_request`."""
    last = view.admitted.get(body["metadata"]["uid"])
    if last is not None:
        return request_of(last)
    if (template := body["spec"].get("template")) is not None:
        return request_of(template)
    resources = body["spec"]["trainer"].get("resources") or {}
    return {"pods": 1, **amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def _others(job: _Job) -> int:
    """Trainers that would take at least as much room as the master and the pservers of a job."""
    return int((job.spec.get("pserver") or {}).get("min-instance") or 0) + 1 if job.spec.get("pserver") else 1


def _quotas(job: _Job) -> Iterator[str]:
    said = [text for text in _texts(job) if "team-quota" in text]
    if not said:
        return
    namespace = job.body["metadata"]["namespace"]
    quotas = [one for one in job.view.quotas if one["metadata"]["namespace"] == namespace]
    if not any(_is_full(job, quota) for quota in quotas):
        yield f"{said[0]!r}, but " + ("it has capacity" if quotas else "there is no such quota")


def _is_full(job: _Job, quota: Object) -> bool:
    """True if the quota has no room for one more trainer; for a job without pods, for its master and its minimum."""
    trainers, masters = (1, 0) if job.pods else (job.low, 1)
    status: dict[str, Any] = quota.get("status") or {}
    for name, hard in (status.get("hard") or {}).items():
        used = amount((status.get("used") or {}).get(name, 0), name)
        plain = name.removeprefix("requests.").removeprefix("count/")
        more = 1 if plain not in {"cpu", "memory", "limits.cpu"} else 0
        if plain in job.trainer_request:
            more = trainers * job.trainer_request[plain] + masters * (plain == "pods")
        if name.startswith("limits.") or used + max(1, more) > amount(hard, name):
            return True
    return False


CHECKS: tuple[tuple[Check, float], ...] = (
    (_phases, LATE_S),
    (_ends, LATE_S),
    (_counts, LATE_S),
    (_maximum, TOLD_LATE_S),
    (_exits, LATE_S),
    (_starts, LATE_S),
    (_room, ROOM_LATE_S),
    (_rejections, LATE_S),
    (_quotas, REFUSAL_LATE_S),
)


@dataclass
class Truth:
    """Looks at all statuses again and again.

    Attributes:
        false: each false statement once, with the job and when it became false.
    """

    false: list[str] = field(default_factory=list)
    _since: dict[tuple[str, str], float] = field(default_factory=dict)
    _said: set[tuple[str, str]] = field(default_factory=set)

    def look(self, view: WorldView) -> None:
        """Compare now."""
        found: dict[tuple[str, str], tuple[str, float]] = {}
        for body in view.jobs:
            job = _Job(body, view.of(body), view)
            if not job.status or body["metadata"].get("deletionTimestamp"):
                continue
            for check, late_s in CHECKS:
                for text in check(job):
                    found.setdefault((body["metadata"]["uid"], check.__name__), (f"{job.key}: {text}", late_s))
        self._since = {what: self._since.get(what, view.now_s) for what in found}
        for what, (text, late_s) in found.items():
            if view.now_s - self._since[what] >= late_s and what not in self._said:
                self._said.add(what)
                self.false.append(f"{self._since[what]:.0f} s: {text}")
