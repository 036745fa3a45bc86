"""A gang whose pods are gone without a trace: the whole gang starts again, or it is done if all of its ranks were."""

from __future__ import annotations

import pytest

from edl.lifecycle.desired_state import as_planned
from edl.model.job_policies import JobAction, JobEvent
from edl.model.jobs import RolePolicy
from edl.model.names import Role
from edl.model.status import JobPhase
from tests.worlds.job_by_spec import PSERVERS, Life, gang


def vanish(life: Life, *names: str) -> None:
    """Somebody deletes pods by force, and edl sees none of it."""
    for name in names or tuple(life.names):
        life.world.drop(life.key, name)


def ranks(life: Life) -> set[int | None]:
    return {pod.index for pod in life.job.live_trainers}


def of_trainers_alone() -> Life:
    return gang(3, fixed=())


def finish(life: Life, *indexes: int) -> None:
    for index in indexes:
        life.world.finish(life.key, f"a-trainer-{index}")
    life.settle(2)


@pytest.mark.parametrize("done", [(), (0,), (0, 1), (1, 2)])
def test_the_whole_gang_starts_again_when_its_last_pod_vanishes(done: tuple[int, ...]) -> None:
    life = of_trainers_alone()
    finish(life, *done)
    assert life.status.completed == done
    vanish(life)
    for _ in range(6):
        life.settle(1)
        assert len(ranks(life)) in {0, 3}, "no rank starts alone"
    assert life.phase is JobPhase.RUNNING
    assert ranks(life) == {0, 1, 2}
    assert life.status.completed == ()
    assert life.event_reasons.count("Restarting") == 1
    assert as_planned(life.job).min_trainers == 3


def test_a_gang_with_pservers_starts_again_as_a_whole_too() -> None:
    life = gang(3)
    finish(life, 0, 1)
    vanish(life)
    life.settle(6)
    assert ranks(life) == {0, 1, 2}
    assert sum(pod.role is Role.PSERVER for pod in life.job.pods) == PSERVERS.count
    assert life.phase is JobPhase.RUNNING


def test_a_gang_all_of_whose_ranks_were_done_is_done() -> None:
    life = of_trainers_alone()
    finish(life, 0, 1)
    life.world.finish(life.key, "a-trainer-2")
    life.forge(completed=(0, 1, 2))
    vanish(life)
    life.settle(3)
    assert life.phase is JobPhase.SUCCEEDED
    assert ranks(life) == set()


def test_a_gang_that_aborts_on_an_eviction_does_not_if_edl_itself_may_have_deleted_its_pods() -> None:
    aborts = RolePolicy(Role.TRAINER, JobEvent.POD_EVICTED, JobAction.ABORT_JOB)
    life = gang(3, fixed=(), policies=(aborts,))
    vanish(life)
    life.settle(4)
    assert life.phase is JobPhase.RUNNING


def test_a_gang_that_has_not_run_yet_does_not_restart() -> None:
    life = of_trainers_alone()
    life.edit(suspended=True)
    life.settle(4)
    assert life.names == set()
    life.edit(suspended=False)
    life.settle(4)
    assert life.phase is JobPhase.RUNNING
    assert "Restarting" not in life.event_reasons
