"""Bugs in what edl does about nodes that break trainers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from edl.lifecycle.node_watch import NodeWatch
from edl.model.actions import Action, CreatePod
from edl.model.cluster import AvoidedNode
from edl.model.jobs import Job
from edl.model.status import NodeTrouble
from tests.planted import Right, bug, targets

TROUBLES = "lifecycle/test_node_troubles.py"


@bug(
    "a job that fails everywhere accuses the nodes",
    at=targets.NODE_TROUBLES,
    caught_by=f"{TROUBLES}::test_a_job_whose_trainers_fail_everywhere_accuses_no_node",
)
def all_troubles_confirmed(right: Right) -> Right:
    def wrong(*given: Any, **more: Any) -> tuple[NodeTrouble, ...]:
        return tuple(replace(trouble, confirmed=True) for trouble in right(*given, **more))

    return wrong


@bug(
    "a node is tried with as many trainers as fit",
    at=targets.ONE_TRIAL_PER_NODE,
    caught_by="lifecycle/test_broken_nodes.py::test_new_trainers_exclude_the_nodes_and_only_one_is_the_probe",
)
def many_probes(_: Right) -> Right:
    def wrong(starts: Iterable[Any], _avoided: Iterable[AvoidedNode]) -> tuple[Any, ...]:
        return tuple(starts)

    return wrong


@bug(
    "kube-scheduler does not learn which nodes new trainers avoid",
    at=targets.KEEP_AWAY,
    caught_by="lifecycle/test_broken_nodes.py::test_new_trainers_exclude_the_nodes_and_only_one_is_the_probe",
)
def pods_without_exclusion(right: Right) -> Right:
    def wrong(actions: Iterable[Action], job: Job, avoided: Sequence[AvoidedNode], nodes: Any) -> tuple[Action, ...]:
        made = right(actions, job, avoided, nodes)
        return tuple(replace(a, avoided=()) if isinstance(a, CreatePod) else a for a in made)

    return wrong


@bug(
    "every node with troubles is avoided, however many there are",
    at=targets.WATCH_NODES,
    caught_by="lifecycle/test_broken_nodes.py::test_whatever_jobs_tell_few_nodes_are_avoided_and_each_job_keeps_one",
)
def no_limit_of_nodes(right: Right) -> Right:
    def wrong(*given: Any) -> NodeWatch:
        watch: NodeWatch = right(*given)
        return replace(watch, avoided=tuple(replace(node, spared=False) for node in watch.avoided))

    return wrong
