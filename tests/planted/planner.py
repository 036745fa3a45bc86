"""Bugs in the shares of jobs and in the moves of pservers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

from edl.model.cluster import ClusterSnapshot
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import Job, RolePolicy
from edl.model.names import Role
from edl.model.plan import ScalePlan
from edl.model.pods import Pod
from tests.planted import Right, bug, targets
from tests.planted.install import swapped

SHARING = "planner/test_sharing.py"
RAISING = "planner/policies/test_raising.py"
MOVES = "planner/test_consolidation.py"
PROPERTIES = "planner/test_consolidation_properties.py"
NO_MOVE = f"{MOVES}::test_no_pserver_moves_that_may_not_or_without_a_gain"
CHANGES = f"{MOVES}::test_no_pserver_moves_soon_after_a_change"

# --- time


@bug(
    "a stage goes on after its time is over",
    at=targets.CLOCK_CHECK,
    caught_by="planner/test_clock.py::test_admission_ends_at_its_part_of_the_deadline",
)
def stall(_: Right) -> Right:
    return lambda *_: None


# --- pods that are left out

COLLECTING = "planner/programs/test_collecting.py"


@bug(
    "nodes exchange no pods, so a pod that is left out stays so",
    at=targets.EXCHANGE,
    caught_by=f"{COLLECTING}::test_all_pods_have_a_place_although_next_to_nothing_is_left_free[5-0]",
)
def no_exchange(_: Right) -> Right:
    return lambda *_: None


@bug(
    "an exchange gives a node pods that may not go there",
    at=targets.EXCHANGE,
    caught_by=f"{COLLECTING}::test_pods_go_to_nodes_that_may_have_them_only[0]",
)
def exchanged_anywhere(right: Right) -> Right:
    def wrong(pods: Any, *terms: Any) -> None:
        right(replace(pods, most=pods.count[:, None].repeat(len(pods.capacity), axis=1)), *terms)

    return wrong


# --- workloads of others


@bug(
    "a job is stopped although workloads could give room elsewhere",
    at=targets.STOPPED,
    caught_by="planner/owners/test_order.py::test_a_workload_gives_what_it_can_before_another_job_is_stopped",
)
def stopped_for_workloads(_: Right) -> Right:
    return lambda *_: frozenset()


@bug(
    "workloads that are no TrainingJobs give no trainer to other jobs",
    at=targets.GIVERS,
    caught_by="controller/loop/test_loop_mixes.py::"
    "test_a_mix_keeps_every_bound_and_shares_evenly_and_serving_waits_as_beside_training_jobs[1]",
)
def workloads_keep_their_share(right: Right) -> Right:
    def wrong(packing: Any, **terms: Any) -> dict[int, int]:
        demands = packing.problem.demands
        return {j: n for j, n in right(packing, **terms).items() if demands[j].job.owner_count is None}

    return wrong


# --- shares


@bug(
    "what does not suffice for all is given out in the order of names",
    at=targets.URGENCY,
    caught_by="planner/test_packing.py::test_what_does_not_suffice_for_all_promises_goes_to_the_worst_off_in_turn",
)
def promises_by_name(right: Right) -> Right:
    def wrong(*args: Any) -> tuple[float, float, Any]:
        urgency, level, key = right(*args)
        return urgency, 0.0 if urgency == -inf else level, key

    return wrong


@bug(
    "one job gains while another falls below the lowest fulfilment",
    at=targets.RESHARE,
    caught_by=f"{SHARING}::test_nobody_is_shrunk_for_another_where_that_leaves_somebody_worse_off_than_anybody_was",
)
def gain_at_the_cost_of_the_worst(right: Right) -> Right:
    def wrong(packing: Any, grown: Any, *rest: Any) -> Any:
        def blind(from_worst: Callable[[Any], list[float]]) -> Callable[[Any], list[float]]:
            return lambda trial: [] if trial is grown.packing else from_worst(trial)

        with swapped(targets.FROM_WORST, blind), swapped(targets.GAIN_OF_WORST, lambda _: lambda *_: 1.0):
            return right(packing, grown, *rest)

    return wrong


@bug(
    "trainers are deleted for a share that fits once serving pods have left",
    at=targets.ONCE_TERMINATED,
    caught_by=f"{SHARING}::test_nobody_is_shrunk_for_another_where_room_that_serving_is_leaving_will_do",
)
def leaving_serving_ignored(_: Right) -> Right:
    return lambda packing: packing.copy()


@bug(
    "jobs are promised less than they can have",
    at=targets.FURTHEST,
    caught_by=f"{RAISING}::test_as_little_less_is_promised_as_can_be_had_and_few_steps_are_tried",
)
def promised_too_little(right: Right) -> Right:
    return lambda tries, reach: right(tries[:1], reach)[:1]


# --- moves of pservers


@bug(
    "a pserver moves although its annotation forbids it",
    at=targets.MAY_MOVE,
    caught_by=f"{NO_MOVE}[the pserver is not safe to evict]",
)
def forbidden_move(right: Right) -> Right:
    return lambda job, pod: right(job, replace(pod, safe_to_evict=pod.safe_to_evict or None))


@bug(
    "a pserver moves although its job is about to end",
    at=targets.MAY_MOVE,
    caught_by=f"{NO_MOVE}[its trainers have begun to finish]",
)
def move_at_the_end(right: Right) -> Right:
    def wrong(job: Job, pod: Pod) -> bool:
        done = job.completed(Role.TRAINER)
        return bool(right(replace(job, pods=tuple(p for p in job.pods if p not in done)), pod))

    return wrong


@bug(
    "a pserver moves although its loss ends the job",
    at=targets.MAY_MOVE,
    caught_by=f"{NO_MOVE}[its policy aborts the job if a pserver is lost]",
)
def move_that_ends_the_job(right: Right) -> Right:
    def wrong(job: Job, pod: Pod) -> bool:
        mild = RolePolicy(Role.PSERVER, JobEvent.POD_EVICTED, JobAction.RESTART_POD)
        has_policy = job.action_for(Role.PSERVER, JobEvent.POD_EVICTED) is not None
        return bool(right(replace(job, policies=(mild,)) if has_policy else job, pod))

    return wrong


@bug(
    "a pserver of a gang moves",
    at=targets.MAY_MOVE,
    caught_by=f"{MOVES}::test_pservers_of_a_job_that_is_not_fault_tolerant_do_not_move",
)
def move_in_a_gang(right: Right) -> Right:
    return lambda job, pod: right(replace(job, fault_tolerant=True), pod)


@bug(
    "two pservers that may hold each other's checkpoints move at once",
    at=targets.PSERVER_GROUPS,
    caught_by=f"{MOVES}::test_pservers_that_are_not_marked_safe_to_evict_move_one_at_a_time",
)
def two_pservers_at_once(right: Right) -> Right:
    return lambda packing: [replace(group, is_safe=True) for group in right(packing)]


@bug(
    "jobs are interrupted for nothing",
    at=targets.INTERRUPTION_PRICE,
    caught_by=f"{MOVES}::test_one_job_is_interrupted_rather_than_two_even_if_more_of_its_pods_move",
)
def interruption_is_free(right: float) -> float:
    return 0 * right


@bug(
    "more pods move than necessary",
    at=targets.MOVE_PRICE,
    caught_by=f"{PROPERTIES}::test_no_choice_of_pservers_is_better_than_the_one_found",
)
def moves_pay(right: float) -> float:
    return -right


@bug(
    "trainers are deleted for nothing",
    at=targets.DELETION_PRICE,
    caught_by=f"{MOVES}::test_no_trainer_is_deleted_without_a_gain",
)
def deletions_pay(right: float) -> float:
    return -right


@bug(
    "a trainer of the minimum is deleted for a move",
    at=targets.SURPLUS_TRAINERS,
    caught_by=f"{MOVES}::test_a_base_trainer_or_one_that_is_not_safe_to_evict_is_not_deleted_for_a_pserver",
)
def minimum_makes_way(right: Right) -> Right:
    def wrong(packing: Any) -> Any:
        trial = packing.copy()
        trainers = tuple(trainer._replace(is_base=False) for trainer in packing.problem.live_trainers)
        trial.problem = replace(packing.problem, live_trainers=trainers)
        return right(trial)

    return wrong


@bug(
    "a pserver is created again before the old one is gone",
    at=targets.STARTABLE,
    caught_by=f"{PROPERTIES}::test_moves_come_to_an_end_and_no_job_loses_a_trainer",
)
def moved_pserver_started_too_soon(right: Right) -> Right:
    def wrong(snapshot: ClusterSnapshot, plan: ScalePlan) -> Any:
        return right(snapshot, replace(plan, decisions=tuple(replace(d, moves=()) for d in plan.decisions)))

    return wrong


@bug(
    "pservers move right after a resize",
    at=targets.TIME_UNCHANGED,
    caught_by=f"{CHANGES}[a job was resized]",
)
def resize_is_no_unrest(right: Right) -> Right:
    def wrong(snapshot: ClusterSnapshot) -> Any:
        def calm(job: Job) -> Job:
            return replace(job, status=replace(job.status, last_resize=None)) if job.status is not None else job

        return right(replace(snapshot, jobs=tuple(map(calm, snapshot.jobs))))

    return wrong


@bug(
    "pservers move while a pod terminates",
    at=targets.TIME_UNCHANGED,
    caught_by=f"{CHANGES}[a trainer terminates]",
)
def terminating_pod_is_no_unrest(right: Right) -> Right:
    def wrong(snapshot: ClusterSnapshot) -> Any:
        def staying(job: Job) -> Job:
            return replace(job, pods=tuple(replace(pod, terminating=False) for pod in job.pods))

        return right(replace(snapshot, jobs=tuple(map(staying, snapshot.jobs))))

    return wrong


@bug(
    "pservers move for trainers that the quota forbids",
    at=targets.WANTED_TRAINERS,
    caught_by=f"{MOVES}::test_no_pserver_moves_for_trainers_that_quota_or_load_forbids",
)
def quota_ignored_for_moves(right: Right) -> Right:
    def wrong(packing: Any) -> Any:
        with swapped(targets.QUOTA_SHORTAGE, lambda _: lambda *_: None):
            return right(packing)

    return wrong


@bug(
    "a move is made although the next plan would not use it",
    at=targets.MOVE_PAYS,
    caught_by=f"{MOVES}::test_no_pserver_moves_if_the_next_plan_would_not_gain_a_trainer",
)
def move_not_tried(_: Right) -> Right:
    return lambda *_: True


@bug(
    "a fallback plan moves pservers",
    at=targets.WITHOUT_GROWTH,
    caught_by="planner/test_fallback.py::test_pservers_stay_where_they_are",
)
def fallback_moves_pservers(right: Right) -> Right:
    def wrong(plan: ScalePlan, *rest: Any) -> ScalePlan:
        reduced: ScalePlan = right(plan, *rest)
        moves = {decision.job: decision.moves for decision in plan.decisions}
        return replace(reduced, decisions=tuple(replace(d, moves=moves[d.job]) for d in reduced.decisions))

    return wrong


@bug(
    "a job gets trainers that slow it",
    at=targets.SLOWED_BEYOND,
    caught_by="planner/policies/test_utility.py::test_nobody_gets_trainers_that_slow_it",
)
def trainers_that_slow(_: Right) -> Right:
    return lambda _self, job: job
