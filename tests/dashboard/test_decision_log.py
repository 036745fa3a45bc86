"""The log of decisions: each change once, with its explanation and the certificate of its plan."""

from __future__ import annotations

from dataclasses import replace

from edl.dashboard.decision_log import MAX_OF_A_PLAN, DecisionLog
from edl.model.cluster import ClusterSnapshot
from edl.model.names import JobKey
from edl.model.plan import Certificate, ScaleDecision, ScalePlan
from edl.model.status import Reason
from tests.worlds.builders import make_serving

CERTIFICATE = Certificate("fulfilment", 1.5, 2.0)


def decided(name: str, target: int) -> ScaleDecision:
    return ScaleDecision(
        JobKey("ads", name), 1, 2, target, 1, 9, True, Reason.INSUFFICIENT_CAPACITY, "short", details="the account"
    )


def at(time_s: float, *waiting: str) -> ClusterSnapshot:
    return ClusterSnapshot(time_s, pods=tuple(make_serving(name) for name in waiting))


def plan(*decisions: ScaleDecision) -> ScalePlan:
    return ScalePlan(decisions, CERTIFICATE)


def test_an_entry_has_the_decision_its_account_and_the_certificate() -> None:
    (entry,) = DecisionLog().take(plan(decided("ctr", 4)), at(1000.04))
    assert entry["job"] == "ads/ctr"
    assert (entry["current"], entry["target"], entry["time"]) == (2, 4, 1000.0)
    assert (entry["message"], entry["account"]) == ("short", "the account")
    assert entry["certificate"] == {"objective": "fulfilment", "achieved": 1.5, "bound": 2.0, "gap": 0.25}


def test_only_what_changes_is_noted() -> None:
    log = DecisionLog()
    log.take(plan(decided("a", 4), decided("b", 4)), at(0.0))
    assert log.take(plan(decided("a", 4), decided("b", 4)), at(1.0)) == []
    assert [e["job"] for e in log.take(plan(decided("a", 4), decided("b", 3)), at(2.0))] == ["ads/b"]
    victims = replace(decided("b", 3), victims=("b-trainer-0",))
    assert [e["victims"] for e in log.take(plan(victims), at(3.0))] == [["b-trainer-0"]]


def test_the_log_is_bounded_and_numbers_go_on() -> None:
    log = DecisionLog(capacity=10)
    for target in range(1, 31):
        log.take(plan(decided("a", target)), at(0.0))
    assert [entry["id"] for entry in log.entries] == list(range(21, 31))
    many = plan(*(decided(f"j{i:03d}", 1) for i in range(MAX_OF_A_PLAN + 5)))
    assert len(DecisionLog().take(many, at(0.0))) == MAX_OF_A_PLAN


def test_trainers_that_end_for_serving_say_for_which_pods() -> None:
    yields = replace(decided("a", 1), victims=("a-trainer-1",), shrink_reason="ServingNeedsRoom")
    gives = replace(decided("b", 1), victims=("b-trainer-1",), shrink_reason="InsufficientCapacity")
    log = DecisionLog()
    entries = log.take(plan(yields, gives), at(0.0, "w0", "w1", "w2", "w3"))
    assert [entry["for"] for entry in entries] == [["serving/w0", "serving/w1", "serving/w2"], []]
    assert [entry["shrinkReason"] for entry in entries] == ["ServingNeedsRoom", "InsufficientCapacity"]
