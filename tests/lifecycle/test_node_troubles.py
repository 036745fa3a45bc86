"""What a job stores about nodes on which its trainers failed or hung."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edl.lifecycle.data_progress import HungTrainer
from edl.lifecycle.desired_state import JobContext
from edl.lifecycle.node_troubles import MOST_TROUBLES, NODE_AVOIDED
from edl.lifecycle.node_watch import NodeWatch
from edl.lifecycle.status import is_over
from edl.model.cluster import AvoidedNode
from edl.model.names import JobKey, Role
from edl.model.status import NodeTrouble
from tests.lifecycle.test_data_progress import hear, report, trained
from tests.worlds.job_by_spec import Life, fault_tolerant, gang

FIRST_S = 600.0
WATCH = NodeWatch(FIRST_S)


def elastic(**fields: Any) -> Life:
    """Four trainers on four nodes that have run for long."""
    life = fault_tolerant(**fields)
    life.context = JobContext(nodes=WATCH)
    assert len({pod.node for pod in life.job.live_trainers}) == 4
    return life


def fails(life: Life, *numbers: int) -> None:
    for number in numbers:
        life.world.finish(life.key, f"a-trainer-{number}", exit_code=1)
    life.round()


def newest(life: Life) -> str:
    return max(life.job.live_trainers, key=lambda pod: pod.uid).name


def told(life: Life) -> list[tuple[str, bool, bool]]:
    return [(t.node, t.hung, t.confirmed) for t in life.status.troubles]


def test_a_failure_while_others_do_well_is_confirmed_and_stored_once() -> None:
    life = elastic()
    node = life.world.pods(life.key)["a-trainer-2"].node
    fails(life, 2)
    assert told(life) == [(node, False, True)]
    stored = life.status.troubles
    life.settle(3)
    assert life.status.troubles == stored
    assert life.status.failures == 1


def test_a_job_whose_trainers_fail_everywhere_accuses_no_node() -> None:
    life = elastic(backoff_limit=99)
    fails(life, 0, 1, 2)
    assert [confirmed for _, _, confirmed in told(life)] == [False] * 3
    fails(life, 3)
    assert [confirmed for _, _, confirmed in told(life)] == [False] * 4


def test_a_later_failure_elsewhere_withdraws_what_was_confirmed() -> None:
    life = elastic(backoff_limit=99)
    fails(life, 0)
    fails(life, 1)
    assert [confirmed for _, _, confirmed in told(life)] == [True, True]
    fails(life, 2)
    assert [confirmed for _, _, confirmed in told(life)] == [False] * 3


def test_a_trainer_alone_proves_nothing_until_it_does_well_elsewhere() -> None:
    life = fault_tolerant(1, 1, wanted=1)
    life.context = JobContext(nodes=WATCH)
    node = life.world.pods(life.key)["a-trainer-0"].node
    fails(life, 0)
    assert told(life) == [(node, False, False)]
    life.settle(3)
    life.world.change(life.key, newest(life), node="elsewhere", started_s=life.now_s)
    life.now_s += FIRST_S / 10 - 1
    life.round()
    assert told(life) == [(node, False, False)]
    life.now_s += 1
    life.round()
    assert told(life) == [(node, False, True)]


def test_a_trainer_that_hangs_tells_the_same_when_it_is_replaced() -> None:
    life = trained()
    life.context = replace(life.context, nodes=WATCH)
    pod = life.job.live_trainers[1]
    for seconds in (119.0, 120.0):
        hear(life, report(hung=(HungTrainer(pod.uid, is_silent=True, seconds=seconds),)))
        life.context = replace(life.context, nodes=WATCH)
        life.round()
        assert bool(life.status.troubles) is (seconds == 120.0)
    assert told(life) == [(pod.node, True, True)]


def test_evicted_preempted_deleted_and_completed_trainers_tell_nothing() -> None:
    life = elastic()
    life.evict("a-trainer-0")
    life.world.preempt(life.key, "a-trainer-1")
    life.world.finish(life.key, "a-trainer-2")
    life.world.change(life.key, "a-trainer-3", terminating=True)
    life.round()
    assert told(life) == []


def test_pods_of_other_roles_tell_nothing() -> None:
    life = elastic()
    life.world.finish(life.key, "a-pserver-0", exit_code=1)
    life.round()
    assert told(life) == []


def test_a_gang_tells_nothing_by_the_restart_of_its_other_trainers() -> None:
    life = gang()
    life.context = JobContext(nodes=WATCH)
    node = life.world.pods(life.key)["a-trainer-1"].node
    fails(life, 1)
    life.settle(6)
    assert [t.node for t in life.status.troubles] == [node]


def test_a_trainer_that_does_well_there_withdraws_it() -> None:
    life = elastic()
    node = life.world.pods(life.key)["a-trainer-2"].node
    fails(life, 2)
    life.settle(3)
    life.world.change(life.key, newest(life), node=node, created_s=life.now_s, started_s=life.now_s)
    life.now_s += FIRST_S / 2 - 1
    life.round()
    assert len(told(life)) == 1
    life.now_s += 1
    life.round()
    assert told(life) == []


def test_troubles_end_with_their_time_with_a_cleared_node_and_with_the_flag() -> None:
    for context, after_s in (
        (JobContext(nodes=WATCH), 4 * FIRST_S),
        (JobContext(nodes=NodeWatch(FIRST_S, cleared=frozenset({"n002"}))), 1.0),
        (JobContext(), 1.0),
    ):
        life = elastic()
        fails(life, 2)
        assert [t.node for t in life.status.troubles] == ["n002"]
        life.world.drop(life.key, "a-trainer-2")
        life.context, life.now_s = context, life.now_s + after_s
        life.round()
        assert told(life) == []


def test_a_failure_counts_as_a_further_one_only_after_the_wait() -> None:
    for until_s, waits in ((5000.0, 1), (0.0, 2)):
        life = elastic()
        known = AvoidedNode("n002", until_s, (JobKey("default", "b"),), waits=1)
        life.context = JobContext(nodes=NodeWatch(FIRST_S, (known,)))
        fails(life, 2)
        assert [(t.node, t.waits) for t in life.status.troubles] == [("n002", waits)]


def test_an_ended_job_keeps_what_it_told_and_adds_nothing() -> None:
    life = elastic(backoff_limit=0)
    fails(life, 2)
    life.settle(2)
    assert is_over(life.job)
    assert told(life) == [("n002", False, True)]
    life.now_s += 4 * FIRST_S
    life.settle(3)
    assert told(life) == []


def test_the_status_names_the_avoided_node_and_one_event_does() -> None:
    life = elastic()
    fails(life, 2)
    known = AvoidedNode("n002", life.now_s + 600, (JobKey("default", "a"), JobKey("default", "b")))
    life.context = JobContext(nodes=NodeWatch(FIRST_S, (known,)))
    life.settle(4)
    degraded = life.condition("Degraded")
    assert degraded.reason == NODE_AVOIDED
    assert degraded.message.startswith("trainers failed or hung on n002 (2 jobs, until 1970-01-01T00:")
    assert life.event_reasons.count(NODE_AVOIDED) == 1
    life.context = JobContext(nodes=NodeWatch(FIRST_S, (replace(known, spared=True),)))
    life.settle(1)
    assert life.condition("Degraded").status == "False"


def test_a_status_stores_so_many_nodes_at_most() -> None:
    life = elastic()
    many = tuple(NodeTrouble(f"x{i:02d}", life.now_s - i) for i in range(MOST_TROUBLES))
    life.forge(troubles=many)
    fails(life, 2)
    assert len(life.status.troubles) == MOST_TROUBLES
    assert {"n002", "x00"} <= {t.node for t in life.status.troubles}
    assert "x15" not in {t.node for t in life.status.troubles}
    assert all(p.role is not Role.MASTER for p in life.job.live_trainers)
