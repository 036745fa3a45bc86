"""Serving pods that their scheduler starts only as a group cost a trainer only if the group fits as a whole.

The reports are kubernetes-sigs/lws 167 and scheduler-plugins 713: a part of a group holds capacity and cannot start.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from edl.explain.blocked_serving import waiting_lines
from edl.model.cluster import Gang
from edl.model.limits import Limits
from edl.planner.clock import Clock
from edl.planner.minimums import gangs
from edl.planner.minimums.batches import Served
from edl.planner.minimums.serving import count_serving
from edl.planner.problem import Problem
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.rules.scenes import Object, job, members, nodes, plan, pod, snapshot, victims

VOLCANO: Object = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "web"}}}
NEW_VOLCANO: Object = {"metadata": {"annotations": {"scheduling.volcano.sh/group-name": "web"}}}
KAI: Object = {"metadata": {"annotations": {"pod-group-name": "web"}}}
NATIVE: Object = {"schedulingGroup": {"podGroupName": "web"}}
COSCHEDULING: Object = {"labels": {"scheduling.x-k8s.io/pod-group": "web"}}
NAMED = (("name", "web"), ("min-available", "3"))
OLD: Object = {"labels": {f"pod-group.scheduling.sigs.k8s.io/{key}": value for key, value in NAMED}}
KOORDINATOR: Object = {
    "metadata": {"annotations": {f"gang.scheduling.koordinator.sh/{key}": value for key, value in NAMED}}
}
NO_CAPACITY = "its scheduler starts 3 pods of group web only together, and so many do not fit, even without any job"


def group(minimum: int, api: str = "scheduling.volcano.sh/v1beta1", name: str = "web") -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": api, "kind": "PodGroup", "metadata": metadata, "spec": {"minMember": minimum}}


def native(minimum: int, version: str = "v1beta1") -> Object:
    """A group of Kubernetes; without a minimum its pods start one by one."""
    policy: Object = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
    return {**group(0, f"scheduling.k8s.io/{version}"), "spec": {"schedulingPolicy": policy}}


def full(count: int) -> list[Object]:
    """Nodes of 8 cores full of trainers, the minimum of whose job is one."""
    places = [f"n{number}" for number in range(count) for _ in range(8)][1:]
    return [*nodes(count), job("t"), *members("t", *places)]


def web(count: int, cpu: str = "6", name: str = "web", **more: Any) -> list[Object]:
    """Pods that wait; no node takes two of them."""
    return [pod(f"{name}-{number}", cpu=cpu, **deepcopy(more)) for number in range(count)]


@pytest.mark.parametrize(
    ("pods", "groups"),
    [
        (VOLCANO, [group(3)]),
        (NEW_VOLCANO, [group(3)]),
        (COSCHEDULING, [group(3, "scheduling.x-k8s.io/v1alpha1")]),
        (KAI, [group(3, "scheduling.run.ai/v2alpha2")]),
        (KOORDINATOR, []),
        (OLD, []),
        (NATIVE, [native(3)]),
        (NATIVE, [native(3, "v1alpha2")]),
        (NATIVE | VOLCANO, [native(3), group(1)]),
    ],
)
def test_nobody_ends_for_a_part_of_a_group_and_a_group_that_fits_gets_all(pods: Object, groups: list[Object]) -> None:
    found = plan(full(2), web(3, **pods), groups)
    assert (victims(found), found.serving.placed, found.serving.short) == ([], 0, 3)
    lines = list(waiting_lines(snapshot(full(2), web(3, **pods), groups)))
    assert lines == [
        f"serving pod default/web-{number}: nobody frees capacity for it: {NO_CAPACITY}" for number in range(3)
    ]
    whole = plan(full(3), web(3, **pods), groups)
    assert (len(victims(whole)), whole.serving.placed) == (18, 3)


@pytest.mark.parametrize(
    ("pods", "groups"),
    [
        (VOLCANO, [group(1)]),
        (VOLCANO, [group(3, "scheduling.x-k8s.io/v1alpha1")]),
        (VOLCANO, [group(3, name="other")]),
        ({}, [group(3)]),
        (NATIVE, [native(0)]),
        (NATIVE, [native(1)]),
        (NATIVE, [group(3)]),
    ],
)
def test_pods_that_start_one_by_one_get_what_there_is(pods: Object, groups: list[Object]) -> None:
    assert plan(full(2), web(3, **pods), groups).serving.placed == 2


def test_a_group_of_which_too_few_pods_exist_waits_for_these() -> None:
    scene = (full(3), web(2, **VOLCANO), [group(3)])
    assert victims(plan(*scene)) == []
    (line, _) = waiting_lines(snapshot(*scene))
    assert line.endswith("its scheduler starts 3 pods of group web only together, and there are 2 without a node")


def test_pods_that_run_count_for_their_group() -> None:
    running = pod("web-9", "n0", cpu="1", **VOLCANO)
    scene = [*nodes(2), job("t"), *members("t", *["n0"] * 6, *["n1"] * 8), running]
    assert plan(scene, web(2, **VOLCANO), group(3)).serving.placed == 2
    assert plan(scene, web(2, cpu="8", **VOLCANO), group(3)).serving.placed == 0
    assert plan(scene, web(2, cpu="8", **VOLCANO), group(2)).serving.placed == 1


def test_tasks_of_volcano_that_have_succeeded_count_for_their_group() -> None:
    done = {**pod("web-9", "n0", cpu="1", **deepcopy(VOLCANO)), "status": {"phase": "Succeeded"}}
    running = pod("web-8", "n1", cpu="100m", **deepcopy(VOLCANO))
    assert plan(full(2), group(3), running, done, web(1, **VOLCANO)).serving.placed == 1
    assert plan(full(2), group(4), running, done, web(1, **VOLCANO)).serving.placed == 0


def test_a_group_of_koordinator_that_has_begun_goes_on_one_by_one() -> None:
    running = pod("web-8", "n0", cpu="100m", **deepcopy(KOORDINATOR))
    assert plan(full(1), running, web(2, **KOORDINATOR)).serving.placed == 1
    assert plan(full(1), web(2, **KOORDINATOR)).serving.placed == 0


def test_a_group_that_does_not_fit_leaves_its_place_to_single_pods_and_to_other_groups() -> None:
    other: Object = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "small"}}}
    small = web(2, cpu="3", name="small", **other)
    found = plan(full(2), web(3, **VOLCANO), group(3), small, group(2, name="small"), web(1, cpu="2", name="one"))
    assert (found.serving.placed, found.serving.short) == (3, 3)


def test_the_group_of_the_highest_priority_comes_first() -> None:
    other: Object = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "first"}}}
    first = [{**one, "spec": {**one["spec"], "priority": 5}} for one in web(2, name="first", **other)]
    scene = snapshot(full(2), web(2, **VOLCANO), group(2), first, group(2, name="first"))
    seen = gangs.with_whole_gangs(scene, Limits(), Clock())
    assert {one.name for one in seen.waiting_serving if one.blocked} == {"web-0", "web-1"}


def two_groups() -> list[list[Object]]:
    """Two groups of two pods, and two nodes: either group fits if the other one does not start."""
    other: Object = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "other"}}}
    return [full(3), web(2, **VOLCANO), [group(2)], web(2, name="other", **other), [group(2, name="other")]]


def test_beyond_some_groups_each_pod_counts_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan(*two_groups()).serving.placed == 2
    monkeypatch.setattr(gangs, "MOST_TRIED", 1)
    assert plan(*two_groups()).serving.placed == 3
    monkeypatch.setattr(gangs, "MOST_TRIED", 0)
    too_many = plan(full(2), web(3, **VOLCANO), group(3))
    assert too_many.serving.placed == 0, "a group that fits on no empty nodes is never tried"


def test_groups_take_a_small_part_of_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gangs, "TRIED_BY", -1.0)
    found = plan(*two_groups())
    assert (found.serving.placed, found.cut) == (3, ("groups of serving pods",))


def test_the_namespaces_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without turns the two groups of the first namespace would be tried, and a part of the other one would start."""
    there: Object = {"metadata": {"namespace": "there", "annotations": {"scheduling.k8s.io/group-name": "zone"}}}
    last = {**group(2, name="zone"), "metadata": {"name": "zone", "namespace": "there"}}
    monkeypatch.setattr(gangs, "MOST_TRIED", 2)
    seen = gangs.with_whole_gangs(snapshot(*two_groups(), web(2, name="zone", **there), last), Limits(), Clock())
    assert {one.name for one in seen.waiting_serving if one.blocked} == {"zone-0", "zone-1"}


def test_groups_of_many_sizes_are_counted_without_patterns_as_the_decision_counts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Patterns of a hundred sizes took the time of every plan."""
    seen: list[bool] = []

    def noted(problem: Problem, deadline_s: float) -> Served:
        seen.append(problem.is_many)
        return count_serving(problem, deadline_s)

    monkeypatch.setattr(gangs, "count_serving", noted)
    names = [f"volcano/g{number}" for number in range(100)]
    pods = tuple(
        replace(make_serving(f"{name}-{i}", cpu=3 + 0.001 * number), tried=True, gang=name)
        for number, name in enumerate(names)
        for i in range(2)
    )
    scene = make_snapshot(make_nodes(50, cpu=16), (make_job("a", min_trainers=1, max_trainers=50),), pods)
    groups = tuple(sorted(Gang(pods[0].namespace, name, 2) for name in names))
    gangs.with_whole_gangs(replace(scene, gangs=groups), Limits(), Clock())
    assert seen
    assert all(seen)
