"""Ways to get the moving of pservers wrong."""

from __future__ import annotations

from tests.planted import Bug

HERE = "core/test_consolidation.py"
STAYS = f"{HERE}::test_nothing_moves_that_may_not_or_for_nothing"
UNREST = f"{HERE}::test_nothing_moves_while_something_happens"
FILE = "core/consolidation.py"

OF_ROOM = (
    Bug(
        "a pserver moved that its owner asks to leave alone",
        FILE,
        " and pod.safe_to_evict is not False",
        "",
        f"{STAYS}[the pserver may not be disturbed]",
    ),
    Bug(
        "a pserver moved of a job that is about to end",
        FILE,
        "    if finished_trainers(job):\n        return False\n",
        "",
        f"{STAYS}[its trainers have begun to finish]",
    ),
    Bug(
        "a pserver moved whose loss gives up its job",
        FILE,
        "is not JobAction.RESTART_POD",
        "is None",
        f"{STAYS}[its policy gives up the job with the pserver]",
    ),
    Bug(
        "a gang taken down for tidiness",
        FILE,
        "pod.role is Role.PSERVER and job.fault_tolerant and",
        "pod.role is Role.PSERVER and",
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
        "INTERRUPTION, MOVE = 0.9, 0.01",
        "INTERRUPTION, MOVE = 0.0, 0.01",
        f"{HERE}::test_nobody_finds_better_moves_by_trying_all",
    ),
    Bug(
        "more pods moved than need be",
        FILE,
        "INTERRUPTION, MOVE = 0.9, 0.01",
        "INTERRUPTION, MOVE = 0.9, -0.01",
        f"{HERE}::test_nobody_finds_better_moves_by_trying_all",
    ),
    Bug(
        "a resize that is no unrest",
        FILE,
        "times += [s.last_resize.time_s for",
        "times += [0.0 * s.last_resize.time_s for",
        f"{UNREST}[a job was resized]",
    ),
    Bug(
        "pservers moved while a pod is on its way",
        FILE,
        "pod.terminating or pod.needs_room for pod in pods",
        "pod.needs_room for pod in pods",
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
        "core/policy.py",
        "if not pays(plan, after, len(moving)):",
        "if False and not pays(plan, after, len(moving)):",
        f"{HERE}::test_a_move_that_the_next_plan_would_not_use_is_not_made",
    ),
    Bug(
        "a pserver moved by a plan that was not made",
        "core/fallback.py",
        "        moves=(),\n",
        "",
        "core/test_fallback.py::test_pservers_stay_where_they_are",
    ),
)
