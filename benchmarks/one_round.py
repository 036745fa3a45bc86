"""What one plan costs the controller, in CPU seconds: `python -m benchmarks.one_round [--nodes 5000]`.

A large world without an API server: nodes, nine serving pods on each of them, and a job with a master and seven
trainers for five nodes. Prints what is paid once (decoding and translating everything), what is paid when one
pod has changed, and what is paid when nothing has. Compare figures only with those of the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from edl.api.pods import pod_manifest
from edl.api.v1 import parse_job
from edl.clock import SystemClock
from edl.controller.allotment import Start
from edl.controller.backoff import Backoff
from edl.controller.core import Core
from edl.controller.job_writes import JobWrites
from edl.controller.kept_plan import KeptPlan
from edl.controller.plan_maker import StartablePod
from edl.controller.policy_planner import PolicyPlanner
from edl.dashboard.feed import Feed
from edl.dashboard.live import Live
from edl.explain.decision import decide
from edl.kube.translate.decoders import NODES, PODS, TRAINING_JOBS, Decoder
from edl.kube.translate.objects import PodObject
from edl.kube.translate.snapshot import ClusterObjects, Translator
from edl.lifecycle.desired_state import as_planned
from edl.lifecycle.tenancy import as_permitted
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.names import JobKey, Role
from edl.model.plan import ScalePlan
from edl.observability.metrics import Metrics
from edl.observability.recorder import ControllerRecorder
from edl.planner.policies.registry import policy_named
from tests.e2e.control_plane.nodes import NodeSpec, manifest
from tests.e2e.worlds.jobs import training_job
from tests.worlds.builders import make_serving

Object = dict[str, Any]
SERVING, TRAINERS, NODES_PER_JOB = 9, 7, 5
NOW_S = 1_795_342_000.0
CREATED = "2026-11-22T10:00:00Z"
LIMITS = Limits()


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print the CPU seconds of the block."""
    began_s = time.process_time()
    yield
    print(f"{what:<52}{time.process_time() - began_s:8.3f} s", flush=True)


def raw(objects: list[Object]) -> list[bytes]:
    """The objects as the API server sends them."""
    for number, body in enumerate(objects):
        body["metadata"].update(uid=f"{body['kind']}-{number}", creationTimestamp=CREATED, resourceVersion="9")
    return [msgspec.json.encode(body) for body in objects]


def decoded(decoder: Decoder[Any], bodies: list[bytes]) -> list[Any]:
    """The objects as the cache keeps them."""
    return [decoder.from_bytes(body) for body in bodies]


def named(objects: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Each object behind its metadata."""
    return ((found.metadata, found) for found in objects)


def serving_pod(name: str, node: str) -> Object:
    """A serving pod on a node."""
    container = {"name": "web", "image": "example/web", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    metadata = {"name": name, "namespace": "default", "labels": {"app": "web"}}
    spec = {"nodeName": node, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def job(name: str) -> Object:
    """A job with a small master."""
    small = {"cpu": "100m", "memory": "64Mi"}
    master = {"resources": {"requests": small, "limits": small}}
    return training_job(name, min_trainers=1, max_trainers=TRAINERS, master=master)


def pods_of_jobs(jobs: list[Object], hosts: list[str], trainers: int = TRAINERS) -> Iterator[Object]:
    """A master and some trainers of each job, three trainers on a node."""
    place = 0
    for body in jobs:
        parsed = parse_job(body)
        for role, count in ((Role.MASTER, 1), (Role.TRAINER, trainers)):
            for index in range(count):
                pod = pod_manifest(parsed, role, index, default_master_image="example/edl", priority_classes=())
                pod["spec"]["nodeName"] = hosts[place // 3 % len(hosts)]
                place += role is Role.TRAINER
                yield pod


def viewed(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The snapshot as the planner gets it."""
    jobs = (as_permitted(as_planned(job, is_finishing=False), LIMITS) for job in snapshot.jobs)
    return replace(snapshot, jobs=tuple(jobs))


async def planned(snapshot: ClusterSnapshot) -> ScalePlan:
    """What the page asks for: the plan of a cluster that a visitor supposes."""
    return decide(snapshot, policy_named("maxmin"), LIMITS)


def main() -> None:
    """Print a line for each part of a plan."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=5000)
    options = parser.parse_args()
    names = [f"node-{number:04}" for number in range(options.nodes)]
    room = {"cpu": "13", "memory": "64Gi", "pods": "110"}
    machines = [manifest(NodeSpec(name, room), number) for number, name in enumerate(names)]
    jobs = [job(f"job-{number:04}") for number in range(max(1, options.nodes // NODES_PER_JOB))]
    raw(jobs)
    serving = [serving_pod(f"web-{name}-{k}", name) for name in names for k in range(SERVING)]
    pods = [*serving, *pods_of_jobs(jobs, names)]
    print(f"{len(machines)} nodes, {len(pods)} pods, {len(jobs)} jobs; CPU seconds")
    bodies = raw(pods)
    with timed("once: decode all pods"):
        objects = decoded(PODS, bodies)
    rest = {"nodes": decoded(NODES, raw(machines)), "jobs": decoded(TRAINING_JOBS, raw(jobs))}
    measure(Translator(), objects, rest, bodies)


def new_core() -> Core:
    """A state machine that knows nothing yet."""
    clock, backoff = SystemClock(), Backoff()
    recorder = ControllerRecorder(Metrics(), policy="maxmin", onlooker=Live(clock, Feed(), planned))
    return Core(clock, JobWrites(clock, recorder, backoff, LIMITS, lambda _: None), backoff)


def look(core: Core) -> None:
    """Look at every job that has changed, without sending anything but what is urgent."""
    while core.has_more:
        core.take(background=False)


def measure_core(
    plan: ScalePlan, startable: Sequence[StartablePod], found: ClusterSnapshot, changed: ClusterSnapshot
) -> None:
    """Time what a plan and a changed pod cost the state machine."""
    starts = [Start(start.job, start.role, start.node) for start in startable]
    core = new_core()
    with timed("a new controller: all jobs are seen"):
        core.seen(found, frozenset())
        core.plan_begins()
    with timed("a plan is published: what each job needs"):
        core.published(plan, starts)
        look(core)
    with timed("a job's pod changed: what the job needs"):
        core.seen(changed, frozenset())
        look(core)
    with timed("nothing changed: what is seen"):
        core.seen(changed, frozenset())
        look(core)
    with timed("the same plan again: what each job needs"):
        core.plan_begins()
        core.published(plan, starts)
        look(core)


def measure(translator: Translator, pods: list[PodObject], rest: dict[str, Any], bodies: list[bytes]) -> None:
    """Time the parts with everything new, with one pod that has changed, and with nothing changed."""

    def note(changed: list[PodObject]) -> None:
        translator.note_pods([((m.namespace, m.name), pod) for m, pod in named(changed)], ())

    def snapshot(at_s: float) -> ClusterSnapshot:
        return translator.snapshot(now_s=NOW_S + at_s, objects=ClusterObjects(nodes=None, pods=None, jobs=None))

    with timed("once: translate all pods, a hundred at a time"):
        note(pods)
        while translator.translate_pods(NOW_S, 100):
            pass
    with timed("once: translate all jobs, five at a time"):
        translator.note_jobs((JobKey(m.namespace, m.name), source) for m, source in named(rest["jobs"]))
        while translator.prepare_jobs(NOW_S, 5):
            pass
    translator.note_nodes((m.name, source) for m, source in named(rest["nodes"]))
    with timed("once: the first snapshot"):
        snapshot(0.0)
    for what, body in (("serving pod", bodies[0]), ("job's pod", bodies[-1])):
        with timed(f"a {what} changed: the snapshot"):
            note(decoded(PODS, [body]))
            found = snapshot(1.0)
    with timed("each plan: the view of the planner"):
        view = viewed(found)
    policy = policy_named("maxmin")
    planner = PolicyPlanner(policy)
    planner.decide(view, LIMITS)
    with timed("a decision"):
        plan = planner.decide(view, LIMITS)
    waiting = replace(view, pods=(*view.pods, replace(make_serving("wide", cpu=3), tried=True)))
    with timed("a serving pod came: a search ahead of the plan"):
        planner.early_evictions(waiting, LIMITS)
    with timed("what may start"):
        planner.startable(view, plan)
    note(decoded(PODS, [bodies[-1]]))
    measure_core(plan, planner.startable(view, plan), found, snapshot(2.0))
    page = Live(SystemClock(), Feed(), planned)
    recorder = ControllerRecorder(Metrics(), policy=policy.name, onlooker=page)
    asyncio.run(recorder.observed(found, leader=True))
    with timed("nothing changed: metrics and history"):
        asyncio.run(recorder.observed(replace(found, observed_at_s=NOW_S + 6.0), leader=True))
    with timed("a pod changed: metrics and history"):
        asyncio.run(recorder.observed(replace(found, pods=(*found.pods[1:], found.pods[0])), leader=True))
    kept: KeptPlan[object] = KeptPlan(LIMITS)
    with timed("after a decision: its next timer"):
        kept.keep(view, plan)
    later = viewed(replace(found, observed_at_s=NOW_S + 6.0))
    with timed("nothing changed: the kept plan"):
        found_again = kept.plan_for(later)
    print("the plan was kept" if found_again is plan else "the plan was NOT kept")


if __name__ == "__main__":
    main()
