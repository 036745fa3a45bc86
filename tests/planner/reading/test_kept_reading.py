"""What is read with the arrays of the last plan is what is read without them, whatever has changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from random import Random
from typing import Any

import numpy as np
import pytest

from benchmarks.random_worlds import random_world
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.pods import Pod, PodPhase
from edl.model.resources import CPU, Resources
from edl.planner.amounts import Names, ShapeTable
from edl.planner.problem import BoundPods, Problem
from edl.planner.problem_reader import read_problem
from edl.planner.reading import pods_of_jobs
from edl.planner.reading.kept import KeptReading
from edl.planner.reading.pods_of_others import FURTHEST, PodsOfOthers, unchanged_runs
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot

HISTORIES, STEPS = int(os.environ.get("EDL_READINGS", "20")), 12
APART = {"snapshot", "clock", "known_buckets", "known_lists", "known_orders", "used_columns"}


def differences(one: Problem, other: Problem) -> list[str]:
    """The fields in which two problems differ."""
    found = []
    for name in (field.name for field in fields(Problem) if field.name not in APART):
        mine, its = getattr(one, name), getattr(other, name)
        if isinstance(mine, BoundPods):
            pairs = [(getattr(mine, part.name), getattr(its, part.name)) for part in fields(BoundPods)]
            same = all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)
        elif isinstance(mine, np.ndarray):
            same = np.array_equal(mine, its) and mine.dtype == its.dtype
        else:
            same = mine == its
        found += [] if same else [name]
    return found


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_reading_with_what_is_kept_is_reading_anew(seed: int) -> None:
    random, world, kept = Random(seed), random_world(seed), KeptReading()  # noqa: S311
    snapshot = world.snapshot
    for step in range(STEPS):
        defers = random.random() < 0.7
        seen = read_problem(snapshot, world.limits, defers=defers, kept=kept)
        assert differences(seen, read_problem(snapshot, world.limits, defers=defers)) == [], step
        for _ in range(random.choice([0, 1, 1, 3])):
            snapshot = random.choice(CHANGES)(snapshot, random)


def others_change(snapshot: ClusterSnapshot, random: Random) -> ClusterSnapshot:
    pods = list(snapshot.pods)
    for _ in range(random.choice([1, 2, 5])):
        at = random.randrange(len(pods) + 1)
        kind = random.random()
        if kind < 0.3 or at == len(pods):
            node = random.choice(["", "gone", *(n.name for n in snapshot.nodes)])
            pods.insert(at, make_serving(f"new-{random.random()}", cpu=random.choice([0.5, 1, 2]), node=node))
        elif kind < 0.5:
            del pods[at]
        else:
            pods[at] = changed_pod(pods[at], snapshot, random)
    return replace(snapshot, pods=tuple(pods))


def changed_pod(pod: Pod, snapshot: ClusterSnapshot, random: Random) -> Pod:
    ends_by_s = random.choice([None, snapshot.observed_at_s + 20.0, snapshot.observed_at_s - 1e4])
    return random.choice(
        [
            replace(pod, phase=PodPhase.SUCCEEDED),
            replace(pod, terminating=True, ends_by_s=ends_by_s),
            replace(pod, ready=not pod.ready),
            replace(pod, node=random.choice(snapshot.nodes).name),
            replace(pod, node="", nominated=random.choice(snapshot.nodes).name),
            replace(pod, lent_cpu_milli=random.choice([0, 200])),
            replace(pod, grace_s=random.choice([0, 10**6])),
            replace(pod, shape=replace(pod.shape, request=pod.shape.request + Resources.of({CPU: 7}))),
        ]
    )


def a_job_changes(snapshot: ClusterSnapshot, random: Random) -> ClusterSnapshot:
    jobs = list(snapshot.jobs)
    if not jobs:
        return snapshot
    at = random.randrange(len(jobs))
    jobs[at] = changed_job(jobs[at], snapshot, random)
    return replace(snapshot, jobs=tuple(jobs))


def changed_job(job: Job, snapshot: ClusterSnapshot, random: Random) -> Job:
    pods, low = list(job.pods), random.randint(1, 3)
    if pods:
        at = random.randrange(len(pods))
        pods[at] = changed_pod(pods[at], snapshot, random)
    more = replace(job.trainer, request=job.trainer.request + Resources.of({CPU: 3}))
    return random.choice(
        [
            replace(job, pods=tuple(pods)),
            replace(job, pods=job.pods[:-1]),
            replace(job, min_trainers=low, max_trainers=max(low, job.max_trainers)),
            replace(job, trainer=more),
            replace(job, fixed=job.fixed[:-1]),
            replace(job, finished=not job.finished),
            replace(job, tier=job.tier + 1),
        ]
    )


def a_job_comes_or_goes(snapshot: ClusterSnapshot, random: Random) -> ClusterSnapshot:
    jobs = list(snapshot.jobs)
    if jobs and random.random() < 0.5:
        del jobs[random.randrange(len(jobs))]
    else:
        on = tuple(node.name for node in snapshot.nodes[:2])
        jobs.append(make_job(f"new-{random.random()}", trainers=random.randint(0, 3), on=on))
    return replace(snapshot, jobs=tuple(sorted(jobs, key=lambda job: job.key)))


def nodes_change(snapshot: ClusterSnapshot, random: Random) -> ClusterSnapshot:
    nodes = list(snapshot.nodes)
    at = random.randrange(len(nodes))
    if random.random() < 0.4 and len(nodes) > 1:
        del nodes[at]
    elif random.random() < 0.5:
        nodes[at] = replace(nodes[at], ready=not nodes[at].ready)
    else:
        nodes.insert(at, replace(nodes[0], name=f"new-{random.random()}"))
    return replace(snapshot, nodes=tuple(nodes))


def time_passes(snapshot: ClusterSnapshot, random: Random) -> ClusterSnapshot:
    return replace(snapshot, observed_at_s=snapshot.observed_at_s + random.choice([1.0, 100.0, 1e5]))


CHANGES: list[Callable[[ClusterSnapshot, Random], ClusterSnapshot]] = [
    others_change,
    others_change,
    a_job_changes,
    a_job_changes,
    a_job_comes_or_goes,
    nodes_change,
    time_passes,
]


@pytest.mark.parametrize("seed", range(200))
def test_runs_are_in_both_and_cover_what_has_not_changed(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    before = [object() for _ in range(random.choice([0, 1, 5, 700, 2000]))]
    after = before.copy()
    changes = random.choice([0, 1, 2, 6])
    for _ in range(changes):
        at = random.randrange(len(after) + 1)
        if random.random() < 0.5:
            after.insert(at, object())
        elif after:
            del after[at - 1]
    found, covered = (0, 0), 0
    for i, j, count in unchanged_runs(before, after):
        assert (i, j) >= found
        assert count > 0
        assert before[i : i + count] == after[j : j + count]
        found, covered = (i + count, j + count), covered + count
    assert covered == len(set(map(id, before)) & set(map(id, after)))


def test_beyond_many_changes_in_one_place_nothing_is_kept() -> None:
    before = [object() for _ in range(3000)]
    after = [*before[:1000], *(object() for _ in range(FURTHEST + 1)), *before[1000:]]
    assert list(unchanged_runs(before, after)) == [(0, 0, 1000)]


def test_only_jobs_whose_pods_have_changed_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = tuple(make_job(f"j{k}", trainers=2, on=("n000", "n001")) for k in range(5))
    snapshot, kept, read = make_snapshot(make_nodes(2), jobs), KeptReading(), list[str]()
    plain = pods_of_jobs.read_rows

    def noted(job: Job, *args: Any, **more: Any) -> pods_of_jobs.JobRows:
        read.append(job.key.name)
        return plain(job, *args, **more)

    monkeypatch.setattr(pods_of_jobs, "read_rows", noted)
    read_problem(snapshot, Limits(), kept=kept)
    assert read == ["j0", "j1", "j2", "j3", "j4"]
    read.clear()
    changed = replace(jobs[3], pods=jobs[3].pods[:1])
    renewed = replace(jobs[1], tier=5, max_trainers=7)
    read_problem(replace(snapshot, jobs=(jobs[0], renewed, jobs[2], changed, jobs[4])), Limits(), kept=kept)
    assert read == ["j3"]


def test_a_pod_that_terminates_is_read_again_as_time_passes() -> None:
    job = make_job("a", trainers=2, on=("n000",))
    ending = replace(job.pods[0], terminating=True, ends_by_s=1010.0)
    snapshot = make_snapshot(make_nodes(1), (replace(job, pods=(ending, job.pods[1])),))
    kept = KeptReading()
    soon = read_problem(snapshot, Limits(), kept=kept)
    late = read_problem(replace(snapshot, observed_at_s=1e6), Limits(), kept=kept)
    assert soon.empty[0].tolist() != late.empty[0].tolist()


def test_numbers_of_shapes_are_those_of_the_first_pods_that_use_capacity() -> None:
    pods = (make_serving("a", cpu=2), make_serving("b", cpu=1, node="n0"), make_serving("c", cpu=2, node="n0"))
    reader, table = PodsOfOthers(), ShapeTable(Names((CPU,)))
    node, shape, _ = reader.read(pods, {"n0": 0}, table)
    assert node.tolist() == [-1, 0, 0]
    assert shape[1:].tolist() == [0, 1]
    assert [dict(s.request.amounts)[CPU] for s in table.number] == [1000, 2000]
    assert pods[0].role is not Role.TRAINER
