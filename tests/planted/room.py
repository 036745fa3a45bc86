"""Ways to get the moving of pservers wrong."""

from __future__ import annotations

from tests.planted import Bug

HERE = "planner/test_consolidation.py"
PROPERTIES = "planner/test_consolidation_properties.py"
STAYS = f"{HERE}::test_nothing_moves_that_may_not_or_for_nothing"
UNREST = f"{HERE}::test_nothing_moves_while_something_happens"
FILE = "planner/consolidation.py"

OF_ROOM = (
    Bug(
        "a pserver moved that its owner asks to leave alone",
        FILE,
        " or pod.safe_to_evict is False",
        "",
        f"{STAYS}[the pserver may not be disturbed]",
    ),
    Bug(
        "a pserver moved of a job that is about to end",
        FILE,
        " and not job.completed(Role.TRAINER)",
        "",
        f"{STAYS}[its trainers have begun to finish]",
    ),
    Bug(
        "a pserver moved whose loss gives up its job",
        FILE,
        " is JobAction.RESTART_POD",
        " is not None",
        f"{STAYS}[its policy gives up the job with the pserver]",
    ),
    Bug(
        "a gang taken down for tidiness",
        FILE,
        "goes_on = job.fault_tolerant and answer_to",
        "goes_on = answer_to",
        f"{HERE}::test_a_gang_is_never_asked",
    ),
    Bug(
        "two pservers that keep each other's checkpoints ended at once",
        FILE,
        "bool(pod.safe_to_evict)",
        "pod.safe_to_evict is not False",
        f"{HERE}::test_of_pservers_that_nothing_is_said_of_one_moves_at_a_time",
    ),
    Bug(
        "jobs interrupted for nothing",
        FILE,
        "INTERRUPTION, DEATH, MOVE = 0.7, 0.1, 0.01",
        "INTERRUPTION, DEATH, MOVE = 0.0, 0.1, 0.01",
        f"{HERE}::test_one_job_is_interrupted_rather_than_two_even_if_more_of_its_pods_move",
    ),
    Bug(
        "more pods moved than need be",
        FILE,
        "INTERRUPTION, DEATH, MOVE = 0.7, 0.1, 0.01",
        "INTERRUPTION, DEATH, MOVE = 0.7, 0.1, -0.01",
        f"{PROPERTIES}::test_nobody_finds_better_moves_by_trying_all",
    ),
    Bug(
        "trainers ended for nothing",
        FILE,
        "INTERRUPTION, DEATH, MOVE = 0.7, 0.1, 0.01",
        "INTERRUPTION, DEATH, MOVE = 0.7, -0.1, 0.01",
        f"{HERE}::test_nobody_makes_way_for_nothing",
    ),
    Bug(
        "a trainer of the minimum ended for tidiness",
        FILE,
        "and not seat.is_base and",
        "and",
        f"{HERE}::test_a_trainer_of_the_minimum_or_one_to_be_left_alone_makes_no_way",
    ),
    Bug(
        "a pserver placed anew before it is gone",
        "planner/packing.py",
        "for d in decisions if not d.moves for role",
        "for d in decisions for role",
        f"{PROPERTIES}::test_after_few_moves_there_is_rest_and_nobody_has_lost_a_trainer",
    ),
    Bug(
        "a resize that is no unrest",
        FILE,
        "return resize.time_s if resize is not None else 0.0",
        "return 0.0",
        f"{UNREST}[a job was resized]",
    ),
    Bug(
        "pservers moved while a pod is on its way",
        FILE,
        "next((pod for pod in pods if pod.terminating), None)",
        "next((pod for pod in snapshot.pods if pod.terminating), None)",
        f"{UNREST}[a trainer leaves]",
    ),
    Bug(
        "pservers moved for trainers that the quota forbids",
        FILE,
        "meter.short_of(j) is None and has_load_left",
        "has_load_left",
        f"{HERE}::test_no_program_is_tried_for_trainers_that_no_limit_allows",
    ),
    Bug(
        "a move that is not tried first",
        "planner/decide.py",
        "if pays(plan, after, len(moving.pservers)) else plan",
        "if after else plan",
        f"{HERE}::test_a_move_that_the_next_plan_would_not_use_is_not_made",
    ),
    Bug(
        "a pserver moved by a plan that was not made",
        "planner/fallback.py",
        "        moves=(),\n",
        "",
        "planner/test_fallback.py::test_pservers_stay_where_they_are",
    ),
)
