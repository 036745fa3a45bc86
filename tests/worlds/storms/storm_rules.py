"""What nobody may do too often, hold for nothing, or leave without a word.

- A storm: pods of a job are made, ended, refused or resized at more than `MOST` times in an hour. What follows within
  `ONCE_S` counts as once. The same name is made at most so often, too.
- A hoard: a trainer above a minimum that did not start for a minute after it said that it cannot (or for two, if it
  says nothing) keeps its node while others want it.
- Silence: what a trouble does to a job is not named by the job for `SILENT_S`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.worlds.storms.local_server import Asked, Object
from tests.worlds.storms.random_hour import JobPlan
from tests.worlds.storms.troubles import Kind, Trouble, Troubles
from tests.worlds.storms.world_view import Amounts, SeenPod, WorldView, copies

MOST = 20
MOST_WHILE_BUSY = 130
"""A server that says when to ask again is asked about every 30 s."""
ONCE_S = 3.0
HELD_S, HELD_SILENTLY_S = 60.0, 120.0
REACTION_S = 20.0
"""How long after such a time a plan may take to be made and carried out."""
SILENT_S = 60.0
_OF_ADMISSION = (Kind.WEBHOOK_REFUSES, Kind.WEBHOOK_FAILS, Kind.CREATION_FAILS, Kind.QUOTA)
_OF_STARTS = (Kind.IMAGE, Kind.CONFIGURATION, Kind.INIT)


@dataclass
class StormRules:
    """Counts and looks.

    Attributes:
        broken: the rules that were broken, so far.
        made_by_name: (UID of a TrainingJob, `namespace/pod`) -> when a pod of that name was made for it.
    """

    jobs: Sequence[JobPlan]
    troubles: Troubles
    broken: list[str] = field(default_factory=list)
    made_by_name: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    _made: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    _owners: dict[str, tuple[str, str]] = field(default_factory=dict)
    _since: dict[tuple[str, str], float] = field(default_factory=dict)
    _said: set[tuple[str, str]] = field(default_factory=set)

    # --- Storms

    def made(self, pod: Object, now_s: float) -> None:
        """A pod was made."""
        owners = pod["metadata"].get("ownerReferences") or ()
        if owners:
            owner = (owners[0]["uid"], f"{pod['metadata']['namespace']}/{owners[0]['name']}")
            self._owners[pod["metadata"]["uid"]] = owner
            if owners[0]["kind"] == "TrainingJob":
                self._made[owner].append(now_s)
                self.made_by_name[owner[0], f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"].append(now_s)

    def count(self, asked: Sequence[Asked]) -> Iterator[str]:
        """The storms of the hour."""
        done: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for one in asked:
            found = self._asked_for(one)
            if found is not None:
                what, owner = found
                done[owner][what].append(one.at_s)
        for owner, times in self._made.items():
            done[owner]["made pods"] = times
        for (_, key), kinds in done.items():
            for what, times in kinds.items():
                if (often := moments(times)) > (MOST_WHILE_BUSY if what.endswith("now") else MOST):
                    yield f"{key}: storm: edl {what} at {often} times ({len(times)} in all)"
        for (_, name), times in self.made_by_name.items():
            if len(times) > MOST:
                yield f"{name}: storm: made {len(times)} times"

    def _asked_for(self, one: Asked) -> tuple[str, tuple[str, str]] | None:
        """What a request did to which job; None if it concerns neither pods nor the size of a job."""
        path = one.path.partition("?")[0]
        if one.method == "DELETE" and "/pods/" in path and one.code < 300:
            owner = self._owners.get(str((one.body.get("preconditions") or {}).get("uid")))
            return None if owner is None else ("ended pods", owner)
        if one.method == "POST" and one.code >= 300 and (one.code != 409 or path.endswith("/pods")):
            owners = (one.body.get("metadata") or {}).get("ownerReferences") or ()
            if not owners:
                return None
            key = f"{one.body['metadata'].get('namespace')}/{owners[0]['name']}"
            what = "was told that the server is busy now" if one.code == 429 else "was refused objects"
            return (what, (owners[0]["uid"], key))
        if one.method == "PATCH" and "/jobs/" in path and "parallelism" in str(one.body.get("spec")):
            parts = path.split("/")
            return ("resized it", (path, f"{parts[-3]}/{parts[-1]}"))
        return None

    # --- Hoards and silence

    def look(self, view: WorldView) -> None:
        """Look at the cluster now."""
        found = {**dict(self._hoards(view)), **dict(self._promises(view)), **dict(self._silences(view))}
        self._since = {what: self._since.get(what, view.now_s) for what in found}
        for what, (text, after_s) in found.items():
            if view.now_s - self._since[what] >= after_s and what not in self._said:
                self._said.add(what)
                self.broken.append(f"{self._since[what]:.0f} s: {text}")

    def _hoards(self, view: WorldView) -> Iterator[tuple[tuple[str, str], tuple[str, float]]]:
        wants = self._wants(view)
        lows = {job.key: job.low for job in self.jobs if job.kind != "gang"}
        for pod in view.pods:
            key = f"{pod.namespace}/{pod.owner_name}"
            if not (pod.node and pod.is_live and not pod.ran and key in lows and pod.role == "trainer"):
                continue
            own = [one for one in view.pods if one.owner == pod.owner and one.role == "trainer" and one.is_live]
            if len(own) <= lows[key] or (pod.index < lows[key] and "-trainer-" in pod.name):
                continue
            others = [who for who, request in wants.items() if who != key and copies(request, pod.request)]
            if others:
                allowed_s = (HELD_S if pod.waits else HELD_SILENTLY_S) + REACTION_S
                text = f"{key}: hoard: {pod.name} holds {pod.node} and has not started; {others[0]} wants it"
                yield (f"hoard {key}", pod.uid), (text, allowed_s)

    def _promises(self, view: WorldView) -> Iterator[tuple[tuple[str, str], tuple[str, float]]]:
        """Trainers above a minimum that nobody makes, whose room others want."""
        wants = self._wants(view)
        plans = {job.key: job for job in self.jobs if job.kind != "gang"}
        for body in (*view.jobs, *view.batch):
            key = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
            status = body.get("status") or {}
            if key not in plans or status.get("completionTime") or status.get("succeeded"):
                continue
            own = sum(pod.is_live and pod.role == "trainer" for pod in view.of(body))
            wanted = int(body["spec"].get("parallelism", (status.get("trainer") or {}).get("desired") or 0))
            others = [who for who, request in wants.items() if who != key and self._is_room_for(request, view)]
            if wanted > max(own, plans[key].low) and others:
                text = f"{key}: hoard: {wanted - own} trainers that nobody makes; {others[0]} wants their capacity"
                yield (f"promise {body['metadata']['uid']}", ""), (text, HELD_S + REACTION_S)

    def _is_room_for(self, request: Amounts, view: WorldView) -> bool:
        """True if a pod has a place; a node that rejects every pod now has none, whoever leaves it free."""
        rejecting = {one.target for one in self.troubles.of(Kind.REJECTED)}
        return any(name not in rejecting and copies(request, free) for name, free in view.free())

    def _wants(self, view: WorldView) -> dict[str, dict[str, int]]:
        """Who could use more capacity, and what one more pod of it requests; only those whom no trouble touches."""
        wants = {
            f"web/{pod.name}": pod.request
            for pod in view.pods
            if not pod.owner and pod.namespace == "web" and not pod.node and pod.is_live
        }
        for body in view.jobs:
            key = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
            plan = next((job for job in self.jobs if job.key == key), None)
            phase = (body.get("status") or {}).get("phase")
            if plan is None or plan.kind == "gang" or phase in {"Succeeded", "Failed"} or self._of(plan):
                continue
            if sum(pod.is_ready for pod in view.of(body)) < plan.high and phase in {"Running", "Scaling"}:
                wants[key] = {"pods": 1, "cpu": plan.cores * 1000}
        return wants

    def _of(self, plan: JobPlan) -> list[Trouble]:
        now_s = self.troubles.now()
        targets = {plan.key, plan.namespace}
        return [one for one in self.troubles.all if one.holds(now_s) and one.target in targets]

    def _silences(self, view: WorldView) -> Iterator[tuple[tuple[str, str], tuple[str, float]]]:
        for body in view.jobs:
            key = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
            plan = next((job for job in self.jobs if job.key == key), None)
            status = body.get("status") or {}
            if plan is None or status.get("phase") in {"Succeeded", "Failed"}:
                continue
            shown = str([status.get("explanation"), [c["message"] for c in status.get("conditions") or ()]])
            for trouble in [*self._of(plan), *self.troubles.of(Kind.REJECTED)]:
                if self._touches(trouble, view.of(body), view) and not any(w in shown for w in trouble.words):
                    said = status.get("explanation")
                    text = f"{key}: silence: nothing names {trouble.words} ({said!r}); {trouble}"
                    yield (f"silence {body['metadata']['uid']}", trouble.kind.value), (text, SILENT_S)

    def _touches(self, trouble: Trouble, pods: Sequence[SeenPod], view: WorldView) -> bool:
        """True if the trouble keeps pods of a job from running now."""
        if trouble.kind in _OF_STARTS:
            return any(pod.waits and pod.is_live for pod in pods)
        if trouble.kind is Kind.HANGS:
            return any(p.node and p.is_live and not p.ran and view.now_s - (p.bound_s or 0.0) > 150 for p in pods)
        if trouble.kind is Kind.CRASH:
            return any(3 in pod.codes for pod in pods)
        if trouble.kind is Kind.REJECTED:
            return any(pod.status.get("reason") == trouble.detail and not pod.is_deleted for pod in pods)
        return False

    def refused(self, view: WorldView, asked: Sequence[Asked]) -> None:
        """Note jobs that were refused objects at least twice, and say nothing of it although that still holds.

        Args:
            view: the cluster now.
            asked: all that the controller has asked for so far.
        """
        for body in view.jobs:
            uid, status = body["metadata"]["uid"], body.get("status") or {}
            key = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
            plan = next((job for job in self.jobs if job.key == key), None)
            if plan is None or status.get("phase") in {"Succeeded", "Failed"}:
                continue
            own = [
                one for one in asked if one.method == "POST" and _owner_of(one) == uid and "/events" not in one.path
            ]
            failed = [one for one in own if one.code >= 300 and one.code != 409]
            if len(failed) < 2 or own[-1] is not failed[-1]:
                continue
            shown = str([status.get("explanation"), [c["message"] for c in status.get("conditions") or ()]])
            causes = [one for one in self._of(plan) if one.kind in _OF_ADMISSION and failed[-2].at_s >= one.begin_s]
            if failed[-1].code == 429:  # whatever else would refuse them, this is the answer
                causes = [one for one in self.troubles.all if one.kind is Kind.SERVER_BUSY]
            words = [word for one in causes for word in one.words]
            what = (f"silence {uid}", "refused")
            if not words or view.now_s - failed[-1].at_s < SILENT_S or what in self._said:
                continue
            if not any(word in shown for word in words):
                self._said.add(what)
                self.broken.append(
                    f"{view.now_s:.0f} s: {key}: silence: refused {len(failed)} times, and nothing names any of"
                    f" {words} ({status.get('explanation')!r})"
                )


def moments(times: Sequence[float]) -> int:
    """At how many times something happened; what follows within `ONCE_S` of the one before is the same time."""
    ordered = sorted(times)
    return bool(ordered) + sum(b - a > ONCE_S for a, b in pairwise(ordered))


def _owner_of(one: Asked) -> str:
    owners = (one.body.get("metadata") or {}).get("ownerReferences") or ()
    return str(owners[0]["uid"]) if owners else ""
