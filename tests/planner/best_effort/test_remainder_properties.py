"""Random small clusters: nobody has less for trainers without requests, and what is left is shared fairly."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from edl.explain.decision import decide
from edl.model.cluster import ClusterSnapshot
from edl.model.jobs import Job
from edl.model.limits import Limits
from edl.model.names import Role
from edl.model.plan import ScaleDecision, ScalePlan
from edl.model.pods import Pod
from edl.model.resources import QosClass
from edl.planner.guard import DEAD_BAND, check
from edl.planner.policies.registry import policy_named
from edl.planner.problem_reader import read_problem
from tests.worlds.builders import make_job, make_node, make_serving, make_snapshot

MOST = 4
SIZES = st.integers(1, 3)


@st.composite
def clusters(draw: st.DrawFn, *, running: bool = True) -> ClusterSnapshot:
    """Up to three nodes and five jobs, some of them without requests, and serving pods; no node is overcommitted."""
    nodes = [make_node(f"n{i}", draw(st.integers(1, 4)), pods=draw(st.integers(1, 6))) for i in range(draw(SIZES))]
    cpu = {node.name: node.allocatable["cpu"] // 1000 for node in nodes}
    pods = {node.name: node.allocatable["pods"] for node in nodes}
    jobs = []
    for number in range(draw(st.integers(1, 5))):
        low = draw(st.integers(1, 2))
        needs = int(number > 0 and draw(st.booleans()))
        homes: list[str] = []
        for name in draw(st.lists(st.sampled_from(sorted(cpu)), max_size=MOST)) if running else ():
            if pods[name] > 0 and cpu[name] >= needs:
                homes.append(name)
                pods[name], cpu[name] = pods[name] - 1, cpu[name] - needs
        high = low + draw(st.integers(0, MOST))
        job = make_job(
            f"j{number}", trainers=len(homes), on=tuple(homes), cpu=needs, memory_gib=needs, min_trainers=low,
            max_trainers=high, age_s=float(number), tier=draw(st.integers(0, 1)),
        )  # fmt: skip
        jobs.append(job if needs else replace(job, qos=QosClass.BEST_EFFORT))
    serving = [make_serving(f"s{i}", cpu=draw(st.integers(1, 2))) for i in range(draw(st.integers(0, 2)))]
    return make_snapshot(tuple(nodes), tuple(jobs), tuple(serving))


def plan_of(snapshot: ClusterSnapshot) -> ScalePlan:
    plan = decide(snapshot, policy_named(""), Limits())
    assert check(snapshot, plan) == ()
    return plan


def without_surplus(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The cluster in which jobs without requests never had more than their minimum."""
    going = {one.pod.uid for one in read_problem(snapshot, Limits(), defers=True).yielding}

    def alone(job: Job) -> Job:
        pods = tuple(pod for pod in job.pods if pod.uid not in going)
        return replace(job, pods=pods, max_trainers=job.min_trainers) if job.is_best_effort else job

    return replace(snapshot, jobs=tuple(map(alone, snapshot.jobs)))


@given(clusters())
def test_nobody_else_has_less_for_their_surplus(snapshot: ClusterSnapshot) -> None:
    plan, alone = plan_of(snapshot), plan_of(without_surplus(snapshot))
    assert plan.serving.placed == alone.serving.placed
    assert plan.certificate.achieved == alone.certificate.achieved
    for job, decision, other in zip(snapshot.jobs, plan.decisions, alone.decisions, strict=True):
        assert decision.admitted == other.admitted
        if not job.is_best_effort:
            assert (decision.target, len(decision.victims)) == (other.target, len(other.victims))


def room_left(snapshot: ClusterSnapshot, plan: ScalePlan) -> dict[str, int]:
    """The pods that each node may have beside what jobs with requests have, by the plan; serving is not counted."""
    left = {node.name: node.allocatable["pods"] for node in snapshot.nodes}
    for job, decision in zip(snapshot.jobs, plan.decisions, strict=True):
        if not job.is_best_effort:
            for name in [*stays(job, decision.victims), *(n for n, k in decision.nodes for _ in range(k))]:
                left[name] -= 1
    return left


def stays(job: Job, victims: tuple[str, ...]) -> list[str]:
    return [pod.node for pod in job.pods if kept(pod, victims)]


def kept(pod: Pod, victims: tuple[str, ...]) -> bool:
    return pod.role is Role.TRAINER and bool(pod.node) and pod.name not in victims


@given(clusters(running=False))
def test_what_is_left_is_shared_as_the_best_of_all_divisions(snapshot: ClusterSnapshot) -> None:
    snapshot = replace(snapshot, pods=())
    plan = plan_of(snapshot)
    takers = [(j, d) for j, d in zip(snapshot.jobs, plan.decisions, strict=True) if j.is_best_effort and d.admitted]
    room = sum(room_left(snapshot, plan).values())
    ranges = [range(job.bounds.min_trainers, job.bounds.max_trainers + 1) for job, _ in takers]
    best = max(levels(takers, counts) for counts in product(*ranges) if sum(counts) <= room)
    assert levels(takers, tuple(decision.target for _, decision in takers)) == best


def levels(takers: list[tuple[Job, ScaleDecision]], counts: tuple[int, ...]) -> list[float]:
    """The fulfilments, the least first: the larger list is fairer."""
    return sorted(level(job, n) for (job, _), n in zip(takers, counts, strict=True))


def level(job: Job, count: int) -> float:
    low, high = job.bounds
    return 1.0 if high == low else (count - low) / (high - low)


@given(clusters())
def test_no_room_is_left_and_nobody_is_far_ahead(snapshot: ClusterSnapshot) -> None:
    snapshot = replace(snapshot, pods=())
    plan = plan_of(snapshot)
    left = room_left(snapshot, plan)
    takers = [(j, d) for j, d in zip(snapshot.jobs, plan.decisions, strict=True) if j.is_best_effort and d.admitted]
    for job, decision in takers:
        for name in [*stays(job, decision.victims), *(n for n, k in decision.nodes for _ in range(k))]:
            left[name] -= 1
    hungry = [(job, d.target) for job, d in takers if d.target < job.bounds.max_trainers]
    assert not hungry or not any(left.values())
    for job, count in hungry:
        for other, decision in takers:
            behind = level(other, decision.target) - level(job, count) > DEAD_BAND
            gives = decision.target > other.bounds.min_trainers and level(other, decision.target - 1) >= level(
                job, count + 1
            )
            assert not (behind and gives)
