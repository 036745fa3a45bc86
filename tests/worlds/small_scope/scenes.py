"""The scenes of the small scope: what there is, what happens once, and what may go wrong once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from edl.model.actions import Result
from edl.model.cluster import Node
from edl.model.jobs import FixedPods, Job
from edl.model.names import JobKey, Role
from edl.model.pods import PodPhase
from tests.worlds.builders import make_job, make_nodes, make_serving, make_shape
from tests.worlds.small_scope.cluster import Cluster, Event, Pods, Stream, World, changed, with_pod

A, B = JobKey("default", "a"), JobKey("default", "b")


@dataclass(frozen=True)
class Fault:
    """How a request goes wrong: whether it takes effect, and what the controller hears of it."""

    takes_effect: bool
    result: Result
    reason: str


FAULTS = {
    "no answer": Fault(takes_effect=False, result=Result.FAILED, reason="Timeout"),
    "answer lost": Fault(takes_effect=True, result=Result.FAILED, reason="Timeout"),
    "refused": Fault(takes_effect=False, result=Result.REFUSED, reason="Forbidden"),
}


@dataclass(frozen=True)
class Scene:
    """What there is and what happens.

    Attributes:
        events: changes of the cluster that happen once each.
        faults: names of `FAULTS`, and of what happens to the controller: crash, another crash, takeover, lease lost.
        minimums_fit: the minimums of all jobs fit whatever happens.
        evicts_early: plans take so long that trainers are evicted ahead of them.
        waits_for_counts: a status that only repeats counts waits a little.
        is_warm: the jobs run already; else the scene begins with their start.
        depth: by how many changes a watch may be late.
    """

    name: str
    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...] = make_nodes(3, cpu=4)
    events: tuple[Event, ...] = ()
    happens: tuple[str, ...] = ()
    minimums_fit: bool = True
    depth: int = 2
    is_warm: bool = True
    evicts_early: bool = False
    waits_for_counts: bool = False
    faults: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "faults", tuple(name for name in self.happens if name in FAULTS))

    def cluster(self) -> Cluster:
        """The cluster in which all this happens."""
        by_search = tuple(Event(name, _by_search) for name in self.happens)
        return Cluster((*self.events, *by_search), self.depth)


def _by_search(_cluster: Cluster, _world: World) -> None:
    """The search itself carries out what happens to the controller and to its requests."""


def job(name: str, least: int, most: int, **fields: Any) -> Job:
    """A job whose trainers take half a node."""
    made = make_job(name, min_trainers=least, max_trainers=most, cpu=2)
    return replace(made, uid=f"job-{name}", cooldown_s=0.0, created_s=float(ord(name)), **fields)


def comes(made: Job) -> Event:
    """A job comes."""

    def change(cluster: Cluster, world: World) -> dict[Stream, Any]:
        return {Stream.JOBS: (*cluster.value(world, Stream.JOBS), made)}

    return Event(f"{made.key.name} comes", change)


def edited(key: JobKey, what: str, *after: str, **fields: Any) -> Event:
    """The spec of a job is edited."""

    def change(cluster: Cluster, world: World) -> dict[Stream, Any] | None:
        jobs = cluster.value(world, Stream.JOBS)
        if all(job.key != key for job in jobs):
            return None
        return {
            Stream.JOBS: tuple(
                replace(job, generation=job.generation + 1, **fields) if job.key == key else job for job in jobs
            )
        }

    return Event(f"{key.name} {what}", change, after)


def serving_comes(name: str) -> Event:
    """A serving pod comes."""

    def change(cluster: Cluster, world: World) -> dict[Stream, Any]:
        return {Stream.SERVING: (*cluster.value(world, Stream.SERVING), make_serving(name, cpu=3, memory_gib=1))}

    return Event(f"{name} comes", change)


def serving_goes(name: str) -> Event:
    """A serving pod goes."""

    def change(cluster: Cluster, world: World) -> dict[Stream, Any]:
        return {Stream.SERVING: tuple(p for p in cluster.value(world, Stream.SERVING) if p.name != name)}

    return Event(f"{name} goes", change, after=(f"{name} comes",))


def pod_event(name: str, what: str, change_of: Callable[[Pods], Pods]) -> Event:
    """Something happens to a running pod."""

    def change(cluster: Cluster, world: World) -> dict[Stream, Any] | None:
        pods: Pods = cluster.value(world, Stream.PODS)
        runs = any(o.pod.name == name and o.pod.phase is PodPhase.RUNNING and o.pod.is_live for o in pods)
        return {Stream.PODS: change_of(pods)} if runs else None

    return Event(f"{name} {what}", change)


def fails(name: str) -> Event:
    """A running pod fails."""
    return pod_event(name, "fails", lambda pods: changed(pods, name, phase=PodPhase.FAILED, exit_code=1, ready=False))


def evicted(name: str) -> Event:
    """A running pod is evicted."""
    gone = {"terminating": True, "ready": False, "disruption": "EvictionByEvictionAPI"}
    return pod_event(name, "is evicted", lambda pods: changed(pods, name, **gone))


def vanishes(name: str) -> Event:
    """A running pod is gone at once."""
    return pod_event(name, "vanishes", lambda pods: with_pod(pods, name, None))


def node_lost(name: str) -> Event:
    """A node is gone; its pods stay until somebody deletes them."""

    def change(cluster: Cluster, world: World) -> dict[Stream, Any]:
        return {Stream.NODES: tuple(node for node in cluster.value(world, Stream.NODES) if node.name != name)}

    return Event(f"{name} is lost", change)


PSERVER = FixedPods(Role.PSERVER, make_shape(0.5), 1)
TWO = make_nodes(2, cpu=4)
WEB = (serving_comes("web-0"), serving_comes("web-1"))
B_COMES = comes(job("b", 1, 2))
SHRUNK = edited(A, "max is 1", max_trainers=1)
GROWN = edited(A, "max is 3", SHRUNK.name, max_trainers=3)


def gang(name: str) -> Job:
    """A gang of two trainers."""
    return job(name, 2, 2, fault_tolerant=False)


SMALL = (
    Scene("growth", (job("a", 1, 2),), TWO, happens=("crash",), is_warm=False),
    Scene("growth-without-answers", (job("a", 1, 2),), TWO, happens=("no answer", "answer lost"), is_warm=False),
    Scene("growth-without-lease", (job("a", 1, 2),), TWO, happens=("lease lost",), is_warm=False),
    Scene("growth-refused", (job("a", 1, 2),), TWO, happens=("refused",), is_warm=False),
    Scene("pserver", (job("a", 1, 1, fixed=(PSERVER,)),), TWO, happens=("no answer", "crash"), is_warm=False),
    Scene("serving", (job("a", 1, 3),), TWO, events=WEB[:1], happens=("crash",)),
    Scene("serving-early", (job("a", 1, 3),), TWO, events=WEB[:1], evicts_early=True),
    Scene("serving-two-early", (job("a", 1, 3),), events=WEB, evicts_early=True),
    Scene("serving-goes", (job("a", 1, 3),), TWO, events=(WEB[0], serving_goes("web-0"))),
    Scene("growth-of-three", (job("a", 1, 3),), TWO, is_warm=False),
    Scene("node-lost", (job("a", 1, 2),), TWO, events=(node_lost("n000"),)),
    Scene("failure-refused", (job("a", 1, 2),), TWO, events=(fails("a-trainer-0"),), happens=("refused",)),
    Scene("growth-paced", (job("a", 1, 2),), TWO, is_warm=False, waits_for_counts=True),
    Scene(
        "edit-without-answers",
        (job("a", 1, 2),),
        TWO,
        events=(SHRUNK,),
        happens=("no answer", "answer lost"),
        is_warm=False,
    ),
    Scene("arrival", (job("a", 1, 4),), TWO, events=(B_COMES,)),
    Scene("arrival-in-growth", (job("a", 1, 4),), TWO, events=(B_COMES,), is_warm=False, depth=1),
    Scene("arrival-crash", (job("a", 1, 4),), TWO, events=(B_COMES,), happens=("crash",), depth=1),
    Scene("failure", (job("a", 1, 2),), TWO, events=(fails("a-trainer-0"),), happens=("no answer", "crash")),
    Scene("eviction", (job("a", 1, 2),), TWO, events=(evicted("a-trainer-0"),), happens=("crash",)),
    Scene(
        "eviction-without-answers",
        (job("a", 1, 2),),
        TWO,
        events=(evicted("a-trainer-0"),),
        happens=("no answer", "answer lost"),
    ),
    Scene("edit", (job("a", 1, 3),), TWO, events=(SHRUNK,), happens=("crash",)),
    Scene("change-of-mind", (job("a", 1, 3),), TWO, events=(SHRUNK, GROWN)),
    Scene("change-of-mind-crash", (job("a", 1, 2),), TWO, events=(SHRUNK, GROWN), happens=("crash",), depth=1),
    Scene("gang", (gang("a"),), TWO, events=(fails("a-trainer-0"),), happens=("crash",)),
    Scene("takeover-serving", (job("a", 1, 3),), TWO, events=WEB[:1], happens=("takeover",)),
    Scene("takeover-failure", (job("a", 1, 2),), TWO, events=(fails("a-trainer-0"),), happens=("takeover",)),
    Scene("takeover-of-one", (job("a", 1, 1),), TWO, events=(fails("a-trainer-0"),), happens=("takeover",)),
    Scene("takeover-eviction", (job("a", 1, 2),), TWO, events=(evicted("a-trainer-0"),), happens=("takeover",)),
    Scene("takeover-gang", (gang("a"),), TWO, events=(fails("a-trainer-0"),), happens=("takeover",)),
)
"""Of each the ordinary tests search a part, and of one the whole; `make small-scope` searches further."""

LARGE = (
    Scene("two-jobs-two-serving-pods", (job("a", 1, 3),), events=(B_COMES, *WEB), happens=("crash",)),
    Scene(
        "serving-comes-and-goes",
        (job("a", 1, 3), job("b", 1, 2)),
        events=(*WEB, serving_goes("web-0")),
        happens=("crash", "lease lost"),
    ),
    Scene(
        "pods-end",
        (job("a", 1, 3), job("b", 1, 2)),
        events=(fails("a-trainer-0"), evicted("a-trainer-1"), vanishes("b-trainer-0")),
        happens=("crash", "answer lost"),
    ),
    Scene(
        "a-node-is-lost",
        (job("a", 1, 3), job("b", 1, 2)),
        events=(node_lost("n000"), WEB[0]),
        happens=("crash", "no answer"),
    ),
    Scene(
        "edits",
        (job("a", 1, 3), gang("b")),
        events=(SHRUNK, edited(B, "is suspended", suspended=True), WEB[0]),
        happens=("crash",),
    ),
)
"""`make small-scope` searches these as well."""

SCENES = {scene.name: scene for scene in (*SMALL, *LARGE)}
