"""The random mixes of `tests.worlds.mixes` on a real control plane with Volcano, each on nodes of its own.

All mixes run side by side under one controller and meet their waves at the same times. A follower of the pods sees
each count that the API server stored.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from edl.model.names import WorkloadKind
from tests.e2e.control_plane.kube import Kube
from tests.e2e.control_plane.nodes import NodeSpec, make_nodes
from tests.e2e.worlds import facts
from tests.e2e.worlds.follow import Follower
from tests.e2e.worlds.jobs import batch_job, serving, training_job, volcano_job
from tests.e2e.worlds.pod_log import cause_of_end
from tests.volcano.scene import Scene
from tests.worlds.mixes.random_mix import CORES, Member, Mix
from tests.worlds.mixes.rules import Bounds, unfair

Object = dict[str, Any]
POOL = "edl.test/mix"
_WEB = "web-"
QUIET_S = 5.0
REST_S = 240.0
"""Cooldowns of 60 s and holds of 30 s pass before the shares are level."""
_ONE = {"requests": {"cpu": "1", "memory": "1Gi"}}
_MODEST: Object = {"metadata": {"name": "modest"}, "value": 10, "preemptionPolicy": "Never"}
"""Of serving: else kube-scheduler takes its room from TrainingJobs alone, at once, and below their minimum."""
_RESTARTS = [{"event": "PodEvicted", "action": "RestartJob"}, {"event": "PodFailed", "action": "RestartJob"}]


def nodes_of(mixes: Sequence[Mix]) -> list[NodeSpec]:
    """The nodes of all mixes, each with the label of its mix."""
    return [
        node
        for mix in mixes
        for node in make_nodes(
            mix.nodes, cpu=str(CORES), memory="64Gi", prefix=f"mix-{mix.seed}", labels={POOL: str(mix.seed)}
        )
    ]


def object_of(mix: Mix, member: Member) -> Object:
    """The job as its user would create it, with its minimum; Volcano restarts it if a pod is evicted or fails."""
    name, pool = f"m{mix.seed}-{member.name}", {POOL: str(mix.seed)}
    if member.kind is WorkloadKind.BATCH_JOB:
        job = batch_job(name, parallelism=member.low, low=member.low, high=member.high)
        job["spec"]["template"]["spec"]["nodeSelector"] = pool
        return job
    if member.kind is WorkloadKind.VOLCANO_JOB:
        job = volcano_job(name, replicas=member.low, low=member.low, high=member.high, policies=_RESTARTS)
        trainer = job["spec"]["tasks"][0]
        trainer["template"]["spec"]["nodeSelector"] = pool
        if member.pservers:
            job["spec"]["tasks"].append({**trainer, "name": "pserver", "replicas": member.pservers})
        job["spec"]["minAvailable"] = member.low + member.pservers
        return job
    placed = {"template": {"spec": {"nodeSelector": pool}}}
    pserver = {"min-instance": member.pservers, "max-instance": member.pservers, "resources": _ONE, **placed}
    more: Object = {"pserver": pserver} if member.pservers else {}
    return training_job(
        name,
        min_trainers=member.low,
        max_trainers=member.high,
        trainer=placed,
        master={"resources": _ONE, **placed},
        **more,
    )


class Counts:
    """Follows all pods; use it as a context manager.

    Attributes:
        changed: when a pod last changed, in monotonic seconds.
        waits: how long each serving pod waited.
    """

    def __init__(self, kube: Kube, mixes: Sequence[Mix]) -> None:
        self._members = {f"m{mix.seed}-{member.name}": member for mix in mixes for member in mix.members}
        self._bounds: dict[str, Bounds] = {name: Bounds() for name in self._members}
        self._live: defaultdict[str, set[str]] = defaultdict(set)
        self._moving: set[str] = set()
        self.waits = Waits()
        self._follower = Follower(kube, "pods", self._look, self._see)
        self.changed = time.monotonic()

    def of(self, mix: Mix) -> dict[Member, int]:
        """The trainers of each job of a mix that has some."""
        counts = {member: len(self._live[f"m{mix.seed}-{member.name}"]) for member in mix.members}
        return {member: count for member, count in counts.items() if count}

    def moving(self) -> str:
        """A pod that starts or terminates; empty if there is none."""
        return next(iter(sorted(self._moving)), "")

    def broken(self) -> list[str]:
        """Each count outside the bounds of its job, with the name of the job."""
        return [f"{name}: {line}" for name, bounds in self._bounds.items() for line in bounds.broken]

    def _look(self, pods: list[Object]) -> None:
        for pod in pods:
            self._see("LISTED", pod)

    def _see(self, change: str, pod: Object) -> None:
        self.changed = time.monotonic()
        self.waits.see(pod, self.changed)
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        is_gone = change == "DELETED"
        (self._moving.discard if is_gone or facts.is_ready(pod) else self._moving.add)(name)
        owner = next((one["name"] for one in pod["metadata"].get("ownerReferences") or ()), "")
        member = self._members.get(owner)
        if member is None or (member.kind is not WorkloadKind.BATCH_JOB and "-trainer-" not in name):
            return
        is_live = not (is_gone or facts.is_terminating(pod) or facts.is_finished(pod))
        (self._live[owner].add if is_live else self._live[owner].discard)(uid)
        bounds = self._bounds[owner]
        before = len(bounds.broken)
        bounds.see(member, len(self._live[owner]))
        if len(bounds.broken) > before:
            bounds.broken[-1] += f" since {name} ended: {cause_of_end(pod)}" if not is_live else f" with {name}"

    def __enter__(self) -> Counts:
        self._follower.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._follower.__exit__()


class Waits:
    """How long serving pods wait: from the first sight of each until it is ready for the first time."""

    def __init__(self) -> None:
        self._first_s: dict[str, float] = {}
        self._waited: dict[str, tuple[int, float]] = {}

    def see(self, pod: Object, at_s: float) -> None:
        """A change of a pod, at a monotonic time."""
        uid, app = pod["metadata"]["uid"], (pod["metadata"].get("labels") or {}).get("app", "")
        if not app.startswith(_WEB):
            return
        since_s = self._first_s.setdefault(uid, at_s)
        if facts.is_ready(pod):
            self._waited.setdefault(uid, (int(app.split("-")[1]), at_s - since_s))

    def of(self, seed: int) -> list[float]:
        """The seconds of each pod of a mix that has been ready."""
        return [seconds for of, seconds in self._waited.values() if of == seed]


def play(here: Scene, mixes: Sequence[Mix]) -> tuple[list[str], dict[int, list[float]]]:
    """Play all mixes on a cluster that has `nodes_of(mixes)`.

    Returns:
        The rules that were broken; and for each seed how long each serving pod waited, in seconds.
    """
    world = here.with_edl()
    here.kube.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **_MODEST})
    with world.controller, Counts(here.kube, mixes) as counts:
        for number in range(len(mixes[0].waves)):
            for mix in mixes:
                for member in (one for one in mix.members if one.wave == number):
                    here.kube.create(object_of(mix, member))
            _rest(here, counts, mixes, number)
            _rise(here, counts, mixes, number)
            for mix in mixes:
                here.kube.delete("deployments", _web(mix, number))
        _rest(here, counts, mixes, len(mixes[0].waves))
        return [*counts.broken(), *_restarted(here, mixes)], {mix.seed: counts.waits.of(mix.seed) for mix in mixes}


def _web(mix: Mix, number: int) -> str:
    return f"{_WEB}{mix.seed}-{number}"


def _rise(here: Scene, counts: Counts, mixes: Sequence[Mix], number: int) -> None:
    """Create the serving pods of a wave, and wait until all of them have been ready."""
    for mix in mixes:
        wave = mix.waves[number]
        where = {"nodeSelector": {POOL: str(mix.seed)}, "priorityClassName": _MODEST["metadata"]["name"]}
        here.kube.create(serving(_web(mix, number), replicas=wave.pods, cpu=str(wave.cores), memory="1Gi", **where))
    due = {mix.seed: sum(wave.pods for wave in mix.waves[: number + 1]) for mix in mixes}

    def all_ready() -> bool:
        return all(len(counts.waits.of(seed)) >= pods for seed, pods in due.items())

    here.kube.wait_until(all_ready, REST_S, f"the serving pods of wave {number} are ready")


def _rest(here: Scene, counts: Counts, mixes: Sequence[Mix], number: int) -> None:
    """Wait until nothing changes, every job that has arrived runs, and all shares are within the dead band."""

    def restless() -> Iterator[str]:
        if (quiet_s := time.monotonic() - counts.changed) < QUIET_S:
            yield f"a pod changed {quiet_s:.1f} s ago"
        if pod := counts.moving():
            yield f"pod {pod} starts or terminates"
        for mix in mixes:
            found = counts.of(mix)
            missing = [member.name for member in mix.members if member.wave <= number and member not in found]
            yield from (f"m{mix.seed}-{name} has no trainer" for name in missing)
            yield from (f"mix {mix.seed}: {line}" for line in unfair(found, mix.nodes * CORES))

    here.kube.wait_until(lambda: _Rest(restless), REST_S, f"rest before wave {number}", poll_s=0.5)


class _Rest:
    """True if nothing is left to wait for; a wait that times out shows what was."""

    def __init__(self, restless: Callable[[], Iterator[str]]) -> None:
        self._left = list(restless())

    def __bool__(self) -> bool:
        return not self._left

    def __repr__(self) -> str:
        return "; ".join(self._left)


def _restarted(here: Scene, mixes: Sequence[Mix]) -> Iterator[str]:
    """Jobs that their own controllers restarted, or of which they counted a pod as failed."""
    for mix in mixes:
        for member in mix.members:
            name = f"m{mix.seed}-{member.name}"
            if member.kind is WorkloadKind.VOLCANO_JOB:
                if here.restarts(name) or here.phase(name) != "Running":
                    yield f"{name} was restarted {here.restarts(name)} times and is {here.phase(name)}"
            elif member.kind is WorkloadKind.BATCH_JOB:
                if failed := (here.kube.get("jobs.batch", name).get("status") or {}).get("failed"):
                    yield f"{failed} pods of {name} count as failed"
            elif failures := here.kube.get("trainingjobs", name)["status"].get("failures"):
                yield f"{failures} trainers of {name} count as failed"
