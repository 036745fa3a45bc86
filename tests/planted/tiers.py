"""Bugs in what trainers without requests get, and where they may run."""

from __future__ import annotations

from typing import Any

from tests.planted import Right, bug, targets

PRIORITIES = "api/test_priorities.py"
REMAINDER = "planner/best_effort/test_remainder.py"
PROPERTIES = "planner/best_effort/test_remainder_properties.py"


@bug(
    "the surplus of a job without requests is started anew by each plan",
    at=targets.SURPLUS_NAMES,
    caught_by=f"{REMAINDER}::test_a_trainer_that_need_not_go_stays_where_it_is",
)
def none_stays(_: Right) -> Right:
    return lambda _job: frozenset()


@bug(
    "a job without requests takes part in the shares",
    at=targets.IS_BEST_EFFORT,
    caught_by=f"{REMAINDER}::test_its_surplus_goes_before_a_trainer_with_requests_when_serving_needs_a_pod",
)
def shares_like_any(_: Right) -> Any:
    return property(lambda _job: False)


@bug(
    "a job without requests runs in any queue",
    at=targets.AS_REQUESTED,
    caught_by="lifecycle/test_tenancy.py::test_a_job_without_requests_is_refused_with_the_rule_and_the_remedy",
)
def any_queue(_: Right) -> Right:
    return lambda job, _best_effort: job


@bug(
    "a running trainer without requests goes for room that is only kept",
    at=targets.ROOM_KEPT,
    caught_by=f"{REMAINDER}::test_no_trainer_goes_for_room_that_is_only_kept",
)
def kept_room_is_taken(right: Right) -> Right:
    return lambda shared, packing: right(shared, packing) * 0


@bug(
    "the first job without requests has all that is left",
    at=targets.REST_FULFILMENT,
    caught_by=f"{PROPERTIES}::test_what_is_left_is_shared_as_the_best_of_all_divisions",
)
def first_come(_: Right) -> Right:
    return lambda _low, _high, _count: 0.0


@bug(
    "the priority of a job without requests counts before that of one with requests",
    at=targets.RANK,
    caught_by=f"{REMAINDER}::test_its_minimum_waits_behind_every_job_with_requests_whatever_its_priority",
)
def priority_alone(_: Right) -> Any:
    return property(lambda job: (True, job.tier))


@bug(
    "kube-scheduler cannot tell trainers without requests from others",
    at=targets.PRIORITY_CLASSES_OF,
    caught_by=f"{PRIORITIES}::test_trainers_without_requests_have_classes_of_their_own",
)
def no_class_of_their_own(right: Right) -> Right:
    return lambda *facts, **more: right(*facts, **more)[-1:]


@bug(
    "in a cluster without their classes, trainers without requests have the priority of serving",
    at=targets.PRIORITY_CLASSES_OF,
    caught_by=f"{PRIORITIES}::test_a_cluster_without_these_classes_gives_them_those_of_other_trainers",
)
def no_class_at_all(right: Right) -> Right:
    return lambda *facts, **more: right(*facts, **more)[:1]
