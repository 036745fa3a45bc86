"""Bugs in which nodes are asked for, which are emptied, and what edl does about nodes that break trainers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from edl.lifecycle.node_watch import NodeWatch
from edl.model.actions import Action, CreatePod, EmitEvent
from edl.model.cluster import AvoidedNode
from edl.model.jobs import Job
from edl.model.status import NodeTrouble
from tests.planted import Right, bug, targets

ASKS = "planner/nodes/test_asking.py"
IDLE = "planner/nodes/test_idle.py"
WRITES = "controller/core/test_job_writes.py"
REQUESTS = "lifecycle/test_node_requests.py"
RUNS = "sim/test_simulation_nodes.py"
TROUBLES = "lifecycle/test_node_troubles.py"


@bug(
    "nodes are asked for that give the job nothing",
    at=targets.NODE_GAIN,
    caught_by=f"{ASKS}::test_a_master_that_the_cheapest_group_cannot_take_uses_room_of_the_cluster",
)
def ask_without_proof(_: Right) -> Right:
    return lambda _self, _job, _group, count: count


@bug(
    "a node that came for a job is given to another while its other nodes still come",
    at=targets.HOLDING,
    caught_by=f"{ASKS}::test_a_request_that_came_holds_its_node_until_the_others_have_come",
)
def hold_nothing(_: Right) -> Right:
    return lambda snapshot: snapshot


@bug(
    "a node is emptied that a waiting job could use",
    at=targets.NEEDS_OF_IDLE,
    caught_by=f"{IDLE}::test_no_node_is_idle_that_a_waiting_job_could_take",
)
def forget_who_waits(_: Right) -> Right:
    return lambda _: []


@bug(
    "a group that brings no node is asked for ever",
    at=targets.NOTE_REQUESTS,
    caught_by=f"{RUNS}::test_a_group_that_brings_no_node_rests_and_is_asked_again_later",
)
def never_rest(_: Right) -> Right:
    return lambda *_: None


@bug(
    "a node that came for a job is reported as a request that nobody needs any more",
    at=targets.END_OF_REQUEST,
    caught_by=f"{REQUESTS}::test_the_user_hears_why_a_request_goes",
)
def forget_the_node(right: Right) -> Right:
    def wrong(job: Any, request: Any, decision: Any, group: Any, _now_s: float) -> Any:
        return right(job, replace(request, pod=replace(request.pod, node="")), decision, group, 0.0)

    return wrong


@bug(
    "a request pod comes or goes without its event",
    at=targets.NODE_REQUESTS,
    caught_by=f"{WRITES}::test_each_request_pod_is_followed_by_its_event",
)
def tell_nobody(right: Right) -> Right:
    def wrong(self: Any, *rest: Any) -> tuple[Action, ...]:
        return tuple(a for a in right(self, *rest) if not isinstance(a, EmitEvent))

    return wrong


@bug(
    "nodes that only surplus holds are kept",
    at=targets.TO_EMPTY,
    caught_by=f"{RUNS}::test_a_node_that_only_surplus_holds_is_emptied_and_leaves",
)
def empty_nothing(_: Right) -> Right:
    def wrong(*_: Any) -> tuple[str, ...]:
        return ()

    return wrong


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
    def wrong(starts: Iterable[Any], *_: Any, **_more: Any) -> tuple[Any, ...]:
        return tuple(starts)

    return wrong


@bug(
    "all pods of a job go back at once to a node that rejected them",
    at=targets.TRIED_NODES,
    caught_by="lifecycle/trials/test_retries_in_a_cluster.py"
    "::test_after_each_pause_one_trainer_is_tried_and_the_others_follow_once_it_runs",
)
def never_tried(_: Right) -> Right:
    return lambda *_: ()


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
