"""A plan counts before its sentences are written: pods start at once, and statuses wait for the sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.controller.allotment import Start
from edl.model.actions import Action, CreatePod, PatchStatus
from edl.model.cluster import ClusterSnapshot
from edl.model.names import Role
from edl.model.plan import ScalePlan
from tests.controller.core.core_stage import CoreStage
from tests.controller.loop_stage import plan_of


def publish(stage: CoreStage, targets: dict[str, int]) -> ScalePlan:
    """Publish a plan without its sentences; returns it with them."""
    view = stage.begin()
    plan = unsaid(view, targets)
    starts = [Start(d.job, Role.TRAINER, node) for d in plan.decisions for node, n in d.nodes for _ in range(n)]
    stage.core.published(plan, starts, is_explained=False)
    return said(plan)


def unsaid(view: ClusterSnapshot, targets: dict[str, int]) -> ScalePlan:
    plan = plan_of(view, targets, "AtMax")
    return replace(plan, decisions=tuple(replace(d, message="") for d in plan.decisions))


def said(plan: ScalePlan) -> ScalePlan:
    decisions = (replace(d, message=f"{d.job.name} has {d.target}", details="all of it") for d in plan.decisions)
    return replace(plan, decisions=tuple(decisions))


def explanations(actions: list[Action]) -> list[str]:
    return [action.status.explanation for action in actions if isinstance(action, PatchStatus)]


@pytest.fixture
def stage() -> CoreStage:
    stage = CoreStage()
    for name in ("a", "b"):
        stage.add(name, max_trainers=4)
    stage.settle({"a": 2, "b": 2})
    return stage


def test_pods_start_before_the_sentences_and_statuses_after_them(stage: CoreStage) -> None:
    plan = publish(stage, {"a": 4, "b": 2})
    first = stage.send()
    stage.wait(2.0)
    first += stage.send()
    assert sum(isinstance(action, CreatePod) for action in first) == 2
    assert "a has 4" not in explanations(first)
    assert "" not in explanations(first)
    stage.core.explained(plan)
    stage.wait(2.0)
    then = explanations(stage.send())
    assert "a has 4" in then
    assert "" not in then


@pytest.mark.parametrize("at_once", [False, True])
def test_no_status_is_written_without_its_sentence(stage: CoreStage, at_once: bool) -> None:
    stage.core.at_once = at_once
    publish(stage, {"a": 3, "b": 1})
    written: list[Action] = []
    for _ in range(5):
        stage.world.step()
        written += stage.send()
        stage.wait(1.0)
    assert "" not in explanations(written)
    assert stage.count(stage.world.jobs[next(iter(stage.world.jobs))].key) == 3


def test_jobs_about_which_nothing_has_changed_are_not_looked_at_again(stage: CoreStage) -> None:
    stage.core.explained(publish(stage, {"a": 2, "b": 2}))
    stage.send()
    before = stage.core.looked_at
    stage.core.explained(publish(stage, {"a": 2, "b": 2}))
    stage.send()
    assert stage.core.looked_at == before


def test_sentences_of_a_plan_do_not_bring_back_what_was_amended_since(stage: CoreStage) -> None:
    plan = publish(stage, {"a": 4, "b": 2})
    amended = replace(
        plan.decisions[0], target=1, nodes=(), victims=("a-trainer-1",), shrink_reason="ServingNeedsRoom"
    )
    stage.core.amended([amended], stage.snapshot(), frozenset())
    stage.core.explained(plan)
    assert stage.core.allotments.by_job[amended.job].decision == amended


def test_a_controller_that_lost_the_lease_takes_no_sentences(stage: CoreStage) -> None:
    plan = publish(stage, {"a": 4, "b": 2})
    stage.core.stand_down()
    stage.core.explained(plan)
    assert not stage.core.allotments.by_job
