"""An hour of virtual time beside a bad neighbour, with and without the cure: trainers lost and slots idle.

    python -m benchmarks.tenants

The real controller and planner run on the simulated cluster of the tests: 20 slots, an honest job in one namespace,
another tenant's job in another. Without the cure, the plan hears nothing of refusals and of the file of tenants.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

from edl.controller.core import Core
from edl.controller.plan_cycle import PlanCycle
from edl.model.actions import Action, CreatePod, DeletePod, Outcome, ProbePod, Result
from edl.model.cluster import ClusterSnapshot, ResourceQuota
from edl.model.jobs import Job
from edl.model.limits import Limits, Quota
from edl.model.names import JobKey
from edl.model.tenants import TenantRule, Tenants, UnknownQueues
from tests.worlds.builders import make_job, make_nodes
from tests.worlds.simulated_controller import Living

HONEST, OTHER = JobKey("honest", "a"), JobKey("other", "b")
SLOTS, HOUR_S, STEP_S = 20, 3600.0, 20.0
WORDS = 'admission webhook "no.example.com" denied the request: never'


@dataclass(frozen=True)
class Row:
    """What an hour came to.

    Attributes:
        lost: trainers of the honest job that were deleted.
        trainers: of the honest job, on average.
        idle: slots on average.
        refused: requests that the API server rejected.
    """

    lost: int
    trainers: float
    idle: float
    refused: int


class _Deaf(PlanCycle):
    """Plans that are told nothing of what the API server rejects."""

    async def allowed(self, view: ClusterSnapshot) -> ClusterSnapshot:
        """The view as it is."""
        return view


class _Unasking(Core):
    """A state machine that asks the API server about no pods beforehand."""

    def _wants_probe(self, job: Job) -> bool:
        return job is None


def refused_by_webhook(living: Living) -> Job:
    """The other job, all of whose pods a webhook rejects."""

    def judge(action: Action) -> tuple[bool, Outcome] | None:
        is_theirs = isinstance(action, CreatePod | ProbePod) and action.job == OTHER
        return (False, Outcome(action, Result.REFUSED, "Forbidden", WORDS)) if is_theirs else None

    living.world.fault = judge
    return make_job("b", namespace=OTHER.namespace, min_trainers=2, max_trainers=SLOTS)


def limited_by_quota(living: Living) -> Job:
    """The other job, in a namespace whose ResourceQuota allows three pods."""
    living.world.quotas[OTHER.namespace] = ResourceQuota(OTHER.namespace, "three", (("pods", 3),))
    return make_job("b", namespace=OTHER.namespace, min_trainers=2, max_trainers=SLOTS)


def of_a_million(_: Living) -> Job:
    """The other job, with a priority of a million and the whole cluster as its minimum."""
    return make_job("b", namespace=OTHER.namespace, min_trainers=SLOTS, max_trainers=SLOTS, tier=1_000_000)


def in_a_queue_of_its_own(_: Living) -> Job:
    """The other job, in a queue that has no quota; tenants are meant to use `batch`, which is limited to 4 cores."""
    job = make_job("b", namespace=OTHER.namespace, min_trainers=2, max_trainers=SLOTS)
    return replace(job, queue="mine")


def hour(neighbour: Callable[[Living], Job], *, cured: bool) -> Row:
    """Play one hour."""
    rules = Tenants((TenantRule("*", max_priority=0),), UnknownQueues.REFUSE) if cured else None
    quotas = (Quota("batch", (("cpu", 4_000),)), Quota("default", (("cpu", 1_000 * SLOTS),)))
    with closing(Living(make_nodes(5, cpu=4), Limits(quotas=quotas, tenants=rules))) as living:
        living.do(lambda w: w.add(make_job("a", namespace=HONEST.namespace, min_trainers=2, max_trainers=SLOTS)))
        living.settle()
        if not cured:
            controller = living.controller
            controller._cycle.__class__, controller._core.__class__ = _Deaf, _Unasking  # noqa: SLF001 - uncured
            living.world.hides_quotas = True
        job = neighbour(living)
        living.do(lambda w: w.add(job))
        before, honest, running = len(living.world.writes), [], []
        for _ in range(int(HOUR_S / STEP_S)):
            living.step(STEP_S)
            honest.append(len(living.world.job(HONEST).live_trainers))
            running.append(sum(bool(o.pod.node) for o in living.world.pods.values()))
        lost = sum(isinstance(w, DeletePod) and w.job == HONEST for w in living.world.writes[before:])
        refused = sum(o.result is Result.REFUSED for o in living.recorder.outcomes)
        return Row(lost, sum(honest) / len(honest), SLOTS - sum(running) / len(running), refused)


def main() -> None:
    """Print a row for each neighbour, with and without the cure."""
    print(f"{'neighbour':<22}{'cure':<6}{'trainers lost':>14}{'honest trainers':>17}{'slots idle':>12}{'refused':>9}")
    for neighbour in (refused_by_webhook, limited_by_quota, of_a_million, in_a_queue_of_its_own):
        for cured in (False, True):
            row = hour(neighbour, cured=cured)
            name, word = neighbour.__name__.replace("_", " "), "yes" if cured else "no"
            print(f"{name:<22}{word:<6}{row.lost:>14}{row.trainers:>17.1f}{row.idle:>12.1f}{row.refused:>9}")


if __name__ == "__main__":
    main()
