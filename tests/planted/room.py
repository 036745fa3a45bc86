"""Known ways to move the wrong pservers."""

from __future__ import annotations

from tests.planted import Bug

HERE = "planner/test_consolidation.py"
PROPERTIES = "planner/test_consolidation_properties.py"
NO_MOVE = f"{HERE}::test_no_pserver_moves_that_may_not_or_without_a_gain"
CHANGES = f"{HERE}::test_no_pserver_moves_soon_after_a_change"
FILE = "planner/consolidation.py"

OF_ROOM = (
    Bug(
        "a pserver moved that is not safe to evict",
        FILE,
        " or pod.safe_to_evict is False",
        "",
        f"{NO_MOVE}[the pserver is not safe to evict]",
    ),
    Bug(
        "a pserver moved of a job that is about to end",
        FILE,
        " and not job.completed(Role.TRAINER)",
        "",
        f"{NO_MOVE}[its trainers have begun to finish]",
    ),
    Bug(
        "a pserver moved whose loss aborts its job",
        FILE,
        " is JobAction.RESTART_POD",
        " is not None",
        f"{NO_MOVE}[its policy aborts the job if a pserver is lost]",
    ),
    Bug(
        "pservers moved of a job that is not fault-tolerant",
        FILE,
        "survives = job.fault_tolerant and ",
        "survives = ",
        f"{HERE}::test_pservers_of_a_job_that_is_not_fault_tolerant_do_not_move",
    ),
    Bug(
        "two pservers that keep each other's checkpoints deleted at once",
        FILE,
        "bool(pod.safe_to_evict)",
        "pod.safe_to_evict is not False",
        f"{HERE}::test_pservers_that_are_not_marked_safe_to_evict_move_one_at_a_time",
    ),
    Bug(
        "jobs interrupted without a gain",
        FILE,
        "INTERRUPTION, DELETION, MOVE = 0.7, 0.1, 0.01",
        "INTERRUPTION, DELETION, MOVE = 0.0, 0.1, 0.01",
        f"{HERE}::test_one_job_is_interrupted_rather_than_two_even_if_more_of_its_pods_move",
    ),
    Bug(
        "more pods moved than need be",
        FILE,
        "INTERRUPTION, DELETION, MOVE = 0.7, 0.1, 0.01",
        "INTERRUPTION, DELETION, MOVE = 0.7, 0.1, -0.01",
        f"{PROPERTIES}::test_no_choice_of_pservers_is_better_than_the_one_found",
    ),
    Bug(
        "trainers deleted without a gain",
        FILE,
        "INTERRUPTION, DELETION, MOVE = 0.7, 0.1, 0.01",
        "INTERRUPTION, DELETION, MOVE = 0.7, -0.1, 0.01",
        f"{HERE}::test_no_trainer_is_deleted_without_a_gain",
    ),
    Bug(
        "a trainer of the minimum deleted for a move",
        FILE,
        "and not trainer.is_base and",
        "and",
        f"{HERE}::test_a_base_trainer_or_one_that_is_not_safe_to_evict_is_not_deleted_for_a_pserver",
    ),
    Bug(
        "a pserver created again before the old one is gone",
        "planner/packing.py",
        "for d in decisions if not d.moves for role",
        "for d in decisions for role",
        f"{PROPERTIES}::test_moves_come_to_an_end_and_no_job_loses_a_trainer",
    ),
    Bug(
        "a resize that does not count as a change",
        FILE,
        "return resize.time_s if resize is not None else 0.0",
        "return 0.0",
        f"{CHANGES}[a job was resized]",
    ),
    Bug(
        "pservers moved while a trainer terminates",
        FILE,
        "next((pod for pod in pods if pod.terminating), None)",
        "next((pod for pod in snapshot.pods if pod.terminating), None)",
        f"{CHANGES}[a trainer terminates]",
    ),
    Bug(
        "pservers moved for trainers that the quota forbids",
        FILE,
        "meter.quota_shortage(j) is None and has_load_left",
        "has_load_left",
        f"{HERE}::test_no_pserver_moves_for_trainers_that_quota_or_load_forbids",
    ),
    Bug(
        "a move that is not tried first",
        "planner/decide.py",
        "if pays(plan, after, len(moving.pservers)) else plan",
        "if after else plan",
        f"{HERE}::test_no_pserver_moves_if_the_next_plan_would_not_gain_a_trainer",
    ),
    Bug(
        "a pserver moved by a plan that was not made",
        "planner/fallback.py",
        "        moves=(),\n",
        "",
        "planner/test_fallback.py::test_pservers_stay_where_they_are",
    ),
)
