"""Random waves of serving, owners and borrowers in one cohort of Kueue: with edl, and with Kueue alone.

Two ClusterQueues of 8 cpus lend to each other. Jobs of both take what is idle; owners, of a fixed size, come and go;
serving takes up to 20 of the 32 cpus of the nodes, outside of all quotas. After each wave the cluster comes to rest.
"""

from __future__ import annotations

import contextlib
import json
import operator
import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count

from edl.model.limits import GROWTH_HOLD_S
from tests.e2e.control_plane.kube import KubeError
from tests.kueue.accounts import Account, lines
from tests.kueue.history import Change, Histories, is_live
from tests.kueue.legs import EVICTION, SIZES, Legs
from tests.kueue.owned_jobs import OwnedScene
from tests.kueue.programs import CLUSTER_QUEUES, WORKLOADS
from tests.kueue.rests import LONGEST_S, Rests
from tests.kueue.scene import Cluster, Scene, owner_of, true_of
from tests.kueue.wave_results import Result

QUOTA, NODE_CPUS, SERVING_CPUS = 16, 32, 2
BORROWERS = {"a": ("blue", 2, 14), "b": ("blue", 2, 8), "c": ("green", 1, 6)}
"""(queue, the fewest pods, the most) of the jobs whose size may change, by name."""
HOLD_S = GROWTH_HOLD_S + 4.0
"""A job that has shrunk for serving, or for pods of owners, grows again only then."""
QUIET_S = 30.0
"""For so long nothing may be written at the end."""
ACCOUNTED_S = 0.5
"""What happened is shown of each longer time in which a job had more pods than quota."""
Say = Callable[[str], object]
EDL = ("sizer", "owner")
MODES = (*EDL, "Kueue, minimum", "Kueue, maximum")


@dataclass(frozen=True, slots=True)
class Wave:
    """What there is from one moment on.

    Attributes:
        serving: pods of two cpus each.
        owners: (name, queue, pods) of jobs of a fixed size.
        borrowers: the names of the jobs whose size may change.
    """

    serving: int
    owners: tuple[tuple[str, str, int], ...]
    borrowers: tuple[str, ...]


def waves_of(seed: int, number: int) -> list[Wave]:
    """Return random waves; the owners of a queue never ask for more than its own quota beside the minimums there."""
    chance, found = random.Random(seed), []  # noqa: S311 - waves, not secrets
    owners: dict[str, tuple[str, str, int]] = {}
    for index in range(number):
        for name in list(owners):
            if chance.random() < 0.5:
                del owners[name]
        queue = chance.choice(("blue", "green"))
        most = 8 - sum(low for where, low, _ in BORROWERS.values() if where == queue)
        size = chance.randint(1, 4)
        if sum(one[2] for one in owners.values() if one[1] == queue) + size <= most:
            owners[f"owner-{index}"] = f"owner-{index}", queue, size
        borrowers = tuple(name for name in BORROWERS if chance.random() < 0.85) or ("a",)
        found.append(Wave(chance.randint(0, 10), tuple(owners.values()), borrowers))
    return found


@dataclass(frozen=True, slots=True)
class Stage:
    """Where waves are played.

    Attributes:
        cluster: with Kueue and edl.
        histories: of all namespaces.
        nodes: labels of the nodes that are for these waves; empty if all are.
        cohorts: how many are played at once.
    """

    cluster: Cluster
    histories: Histories
    nodes: dict[str, str] = field(default_factory=dict)
    cohorts: int = 1


def play(stage: Stage, mode: str, waves: Sequence[Wave], found: Result, say: Say = lambda _: None) -> Result:
    """Play waves in a namespace of their own.

    Args:
        stage: where.
        mode: one of `MODES`.
        waves: at least one.
        found: takes what each wave shows, so that it is known of those before one that never comes to rest.
        say: is called with a line about each wave.

    Returns:
        `found`.
    """
    with closing(OwnedScene(stage.cluster)) as scene:
        reclaim = "Never" if mode == "sizer" else "Any"
        for queue in ("blue", "green"):
            Scene.queue(scene, queue, 8, reclaim=reclaim)
            if mode == "owner":
                _cover_memory(scene, queue)
        if stage.nodes:
            scene.flavor("own", stage.nodes, "blue", "green")
        player = _Player(scene, stage, mode, found)
        try:
            for number, wave in enumerate(waves, start=1):
                player.play(wave)
                found.waves = number
                say(f"{mode}, wave {number} of {len(waves)}: used {found.used[-1]}, above {found.above:.2f} s")
            return player.result()
        finally:
            player.close()


class _Player:
    """Plays waves and measures.

    Args:
        scene: has both queues.
        stage: where it is.
        mode: one of `MODES`.
        found: takes what is measured.
    """

    def __init__(self, scene: OwnedScene, stage: Stage, mode: str, found: Result) -> None:
        self._scene, self._mode, self._kube = scene, mode, scene.kube
        self._found, self._numbers, self._legs = found, count(1), Legs(SIZES if mode == "sizer" else EVICTION)
        self._owners: set[str] = set()
        self._waiting: dict[str, float] = {}  # owners that are not admitted yet: when they were created
        self._borrowers: dict[str, str] = {}  # those that are there: the name of the object
        self._deleted: dict[str, float] = {}  # by name of the object: when
        self._live: dict[str, set[str]] = {}  # by name of the object: the UIDs of its pods
        self._above_s: dict[str, float] = {}  # since when it has more pods than quota
        self._serving = 0
        self._awaited_s: float | None = None  # since when serving waits
        self._history, self._account = stage.histories.of(scene.name), Account()
        longest_s = LONGEST_S * stage.cohorts
        self._rests = Rests(self._history, self._judge, self._waiting, longest_s=longest_s)
        container = {"name": "web", "image": "example/web", "resources": {"requests": {"cpu": str(SERVING_CPUS)}}}
        template = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [container], "nodeSelector": stage.nodes},
        }
        spec = {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        metadata = {"name": "web", "namespace": scene.name}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        self._kube.create(body, scene.name)

    def close(self) -> None:
        """End serving."""
        with contextlib.suppress(KubeError):
            self._kube.delete("deployments", "web", self._scene.name)

    def play(self, wave: Wave) -> None:
        """Change what there is, wait until it is at rest, and note what is used."""
        has_grown = wave.serving > self._serving
        names = {name for name, _, _ in wave.owners}
        for name in self._owners - names:
            self._scene.remove(name)
            self._found.never += self._waiting.pop(name, None) is not None
        for name in [name for name in self._borrowers if name not in wave.borrowers]:
            full = self._borrowers.pop(name)
            self._deleted[full] = time.monotonic()
            self._scene.remove(full)
        if wave.serving != self._serving:
            self._awaited_s = time.monotonic() if has_grown else None
            self._serving = wave.serving
            self._kube.scale("deployments", "web", wave.serving, self._scene.name)
        for name, queue, size in wave.owners:
            if name not in self._owners:
                self._waiting[name] = time.monotonic()
                self._legs.follow(name)
                self._scene.submit(name, queue, size, elastic=False)
        self._owners = names
        for name in wave.borrowers:
            if name not in self._borrowers:
                self._submit(name)
        self._rests.wait()
        self._found.soon.append(self._used(wave))
        if self._mode in EDL:
            time.sleep(self._held_s())
            self._rests.wait_used(lambda: self._is_whole(wave))
        self._found.used.append(self._used(wave))

    def result(self) -> Result:
        """What the waves showed, after a time in which nothing should happen."""
        self._rests.wait()
        time.sleep(QUIET_S)
        start_s = time.monotonic()
        late = list(filter(_is_of_interest, self._history.take()))
        self._found.writes = len(late)
        if late:
            self._found.accounts.append("\n".join([f"{self._scene.name}: changes at rest", *lines(late, start_s)]))
        self._found.legs = self._legs.found()
        return self._found

    def _held_s(self) -> float:
        """For how long a job does not grow because it has shrunk for pods without a node; 0 if none."""
        found = (self._scene.job(name)["metadata"].get("annotations", {}) for name in self._borrowers.values())
        last = [
            json.loads(one["paddlepaddle.org/last-resize"]) for one in found if "paddlepaddle.org/last-resize" in one
        ]
        since = [
            datetime.fromisoformat(one["time"]).timestamp() for one in last if one["reason"] == "ServingNeedsRoom"
        ]
        return max((0.0, *(HOLD_S - (time.time() - since_s) for since_s in since)))

    def _submit(self, name: str) -> None:
        queue, low, high = BORROWERS[name]
        full = self._borrowers[name] = f"{name}-{next(self._numbers)}"
        match self._mode:
            case "owner":
                self._scene.own(full, queue, low, high)
            case "sizer":
                self._scene.submit(full, queue, low, bounds=(low, high))
            case _:
                self._scene.submit(full, queue, low if self._mode.endswith("minimum") else high)

    def _used(self, wave: Wave) -> tuple[int, int]:
        """How many pods run, and how many could by quota, nodes and the most that jobs may have."""
        demand = sum(size for _, _, size in wave.owners) + sum(BORROWERS[name][2] for name in wave.borrowers)
        most = min(QUOTA, NODE_CPUS - SERVING_CPUS * wave.serving, demand)
        names = (*self._owners, *self._borrowers.values())
        return sum(len(self._history.moment.live(name)) for name in names), most

    def _is_whole(self, wave: Wave) -> bool:
        """True if all is used, and each job has quota: the fewest pods of all of them always have."""
        return operator.ge(*self._used(wave)) and all(map(self._history.moment.reserved, self._borrowers.values()))

    def _judge(self) -> None:
        """Look at everything that has happened since the last call."""
        for change in self._history.take():
            self._legs.note(change)
            self._account.note(change)
            if change.kind == WORKLOADS and change.body is not None and "Admitted" in true_of(change.body):
                created_s = self._waiting.pop(owner_of(change.body), None)
                if created_s is not None:
                    self._found.owner_s.append(max(0.0, change.at_s - created_s))
            if change.kind == "pods":
                self._judge_serving(change.at_s)
            for name in {*self._borrowers.values(), *self._live}:
                self._judge_job(name, change.at_s)

    def _judge_serving(self, at_s: float) -> None:
        """Note how long it took until all serving pods had a node."""
        if self._awaited_s is None or at_s < self._awaited_s:
            return
        web = (pod for name, pod in self._history.moment.pods.items() if name.startswith("web-") and is_live(pod))
        if sum(bool(pod["spec"].get("nodeName")) for pod in web) == self._serving:
            self._found.serving_s.append(at_s - self._awaited_s)
            self._awaited_s = None

    def _judge_job(self, name: str, at_s: float) -> None:
        """Count stops and ended pods of a job, and find out how long it was above its quota."""
        moment, before = self._history.moment, self._live.get(name, set())
        live = moment.live(name)
        if name in self._deleted and at_s >= self._deleted[name]:
            self._live.pop(name, None)
            self._above_s.pop(name, None)
            return
        if gone := before - live:
            self._found.ended += len(gone)
            if not live:
                self._found.stops += 1
                self._found.accounts.append(self._account.of(f"{name} has lost all of its pods", at_s, at_s))
        since_s = self._above_s.pop(name, None)
        if since_s is not None and at_s - since_s > self._found.above:
            self._found.above = at_s - since_s
            own = [f"{key} {moment.held(key)}" for key, one in moment.workloads.items() if owner_of(one) == name]
            self._found.worst = f"{name} had {len(before)} pods, now {len(live)} of {', '.join(own)}"
        if len(live) > moment.reserved(name):
            self._above_s[name] = at_s if since_s is None else since_s
        elif since_s is not None and at_s - since_s > ACCOUNTED_S:
            self._found.accounts.append(self._account.of(f"{name} had more pods than quota", since_s, at_s))
        self._live[name] = live


def _is_of_interest(change: Change) -> bool:
    """False for an event of another program than edl."""
    if change.kind != "events" or change.body is None:
        return True
    return "edl-controller" in {change.body.get("source", {}).get("component"), change.body.get("reportingComponent")}


def _cover_memory(scene: OwnedScene, queue: str) -> None:
    """Jobs of `OwnedScene` request memory, too."""
    resources = [{"name": "cpu", "nominalQuota": 8}, {"name": "memory", "nominalQuota": "900Gi"}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "a", "resources": resources}]}]
    scene.kube.patch(CLUSTER_QUEUES, scene.full(queue), {"spec": {"resourceGroups": groups}}, "")
