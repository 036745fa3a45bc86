"""Serving pods that no eviction helps cost nobody a trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from edl.controller.planning import plan_snapshot
from edl.explain.blocked_serving import blocked_lines
from edl.model.actions import DeletePod
from edl.model.limits import Limits
from edl.model.names import JobKey
from tests.worlds.builders import make_job, make_nodes, make_serving, make_snapshot
from tests.worlds.raw_objects import Object, node, pod, the_pod
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living

USELESS, NO_VICTIMS = "Preemption is not helpful for scheduling", "No preemption victims found for incoming pod"
NOT_HELPFUL = f"preemption: 0/4 nodes are available: 4 {USELESS}."
FOUR_SHORT = "0/4 nodes are available: 4 Insufficient cpu."
NO_DEVICES = "0/4 nodes are available: 4 cannot allocate all claims."
ONE_SHORT = "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) didn't match Pod's node affinity/selector."
NEVER = "preemption: not eligible due to preemptionPolicy=Never."
NO_STORAGE = (
    "0/4 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }, 3 node(s) did not"
    " have enough free storage."
)
LABELS = (
    "0/4 nodes are available: 1 node(s) were unschedulable, 2 node(s) had untolerated taint(s), 1 node(s) didn't"
    " match pod topology spread constraints (missing required label)."
)
NO_VOLUME = "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims."
LEAVES = '0/4 nodes are available: persistentvolumeclaim "data" is being deleted.'
NO_CLASS = "0/4 nodes are available: request gpu: device class gpu.example.com does not exist."
NOT_MADE = (
    "0/4 nodes are available: waiting for ephemeral volume controller to create the persistentvolumeclaim"
    ' "web-scratch".'
)
NO_SUCH_NODE = "0/4 nodes are available: 4 node(s) didn't satisfy plugin(s) [NodeAffinity]."
TWO_REASONS = (
    "0/4 nodes are available: 4 node(s) didn't find available persistent volumes to bind, 4 node(s) didn't match"
    " PersistentVolume's node affinity."
)


QUOTA = (
    "0/4 nodes are available: Insufficient quotas, quotaName: web, runtime: cpu:4, used: cpu:4,"
    " pod's request: cpu:1, exceedDimensions: [cpu]."
)
OLD_QUOTA = (
    "0/4 nodes are available: Insufficient quotas [[nvidia.com/gpu]], quotaName: web, runtime: cpu:1.5, used: cpu:1."
)
NON_PREEMPTIBLE = "0/4 nodes are available: Insufficient non-preemptible quotas, quotaName: web, min: cpu:4."
ELASTIC_QUOTA = (
    "0/4 nodes are available: Pod ads/web is rejected in PreFilter because ElasticQuota ads is more than Max."
)
OVER_LIMIT = (
    "team-a quota has reached the allowable limit of GPUs. Limit is 4 GPUs, currently 4 GPUs allocated and workload"
    " requested 1 GPUs"
)
OVER_QUOTA = "Non-preemptible workload is over quota. Workload requested 1 GPUs, but team-a quota is 4 GPUs."
OVER_MINIMUM = "Pod ads/web is rejected in PreFilter because total ElasticQuota used is more than min."


def waiting(message: str, **condition: str) -> Object:
    scheduled = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        **condition,
    }
    return pod("web", status={"phase": "Pending", "conditions": [scheduled]})


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (
            '0/4 nodes are available: persistentvolumeclaim "not-there" not found. not found',
            "its PersistentVolumeClaim not-there does not exist",
        ),
        (
            f'0/4 nodes are available: persistentvolumeclaim "data" not found. {NOT_HELPFUL}',
            "its PersistentVolumeClaim data does not exist",
        ),
        (
            f"0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims. {NOT_HELPFUL}",
            "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
        ),
        (
            "0/4 nodes are available: 4 node(s) had volume node affinity conflict. no new claims to deallocate, "
            + NOT_HELPFUL,
            "0/4 nodes are available: 4 node(s) had volume node affinity conflict.",
        ),
        (
            f"0/4 nodes are available: 1 node(s) had untolerated taint {{gpu: }}, 3 node(s) didn't match Pod's node"
            f" affinity/selector. {NOT_HELPFUL}",
            "0/4 nodes are available: 1 node(s) had untolerated taint {gpu: }, 3 node(s) didn't match Pod's node"
            " affinity/selector.",
        ),
        (
            f"{NO_DEVICES} still not schedulable, preemption: not eligible due to preemptionPolicy=Never.",
            NO_DEVICES,
        ),
        (
            f"{NO_DEVICES} still not schedulable, preemption: 0/4 nodes are available: 4 {NO_VICTIMS}.",
            NO_DEVICES,
        ),
        (f"{NO_STORAGE} {NEVER}", NO_STORAGE),
        (f"{LABELS} {NEVER}", LABELS),
        (f"{TWO_REASONS} {NEVER}", TWO_REASONS),
        (NO_STORAGE, NO_STORAGE),
        (f"{NO_VOLUME} not found", NO_VOLUME),
        (f"{LEAVES} not found", LEAVES),
        (f"{NOT_MADE} {NEVER}", NOT_MADE),
        (f"{NOT_MADE} {NOT_HELPFUL}", NOT_MADE),
        (f"{NO_CLASS} no new claims to deallocate, {NEVER}", NO_CLASS),
        (f"{NO_SUCH_NODE} {NEVER}", NO_SUCH_NODE),
        (f"{QUOTA} {NEVER}.", QUOTA),
        (f"{QUOTA} preemption: 0/4 nodes are available: 4 {NO_VICTIMS}.", QUOTA),
        (f"{OLD_QUOTA} {NEVER}", OLD_QUOTA),
        (f"{NON_PREEMPTIBLE} preemption: 0/4 nodes are available: 4 {NO_VICTIMS}.", NON_PREEMPTIBLE),
        (f"{ELASTIC_QUOTA} preemption: 0/4 nodes are available: 4 {NO_VICTIMS}.", ELASTIC_QUOTA),
        (OVER_LIMIT, OVER_LIMIT),
        (f"Node-Group 'gpus': {OVER_QUOTA}", f"Node-Group 'gpus': {OVER_QUOTA}"),
    ],
)
def test_what_keeps_a_pod_from_every_node_is_read(message: str, why: str) -> None:
    found = the_pod(waiting(message), node())
    assert (found.blocked, found.is_waiting_serving, found.needs_capacity) == (why, True, False)


@pytest.mark.parametrize(
    "message",
    [
        f"{FOUR_SHORT} preemption: 0/4 nodes are available: 4 {NO_VICTIMS}.",
        f"{ONE_SHORT} preemption: 0/4 nodes are available: 1 {NO_VICTIMS}, 3 {USELESS}.",
        f"{FOUR_SHORT} no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.",
        f"{FOUR_SHORT} preemption: 0/4 nodes are available: 3 {USELESS}.",
        "0/4 nodes are available: 1 Insufficient cpu, 3 cannot allocate all claims. still not schedulable.",
        f"0/4 nodes are available: 4 node(s) didn't match pod anti-affinity rules. preemption: {NO_VICTIMS}.",
        f"0/4 nodes are available: 4 node(s) didn't match pod topology spread constraints. {NEVER}",
        f"0/4 nodes are available: 3 node(s) were unschedulable, 1 node(s) exceed max volume count. {NEVER}",
        f"0/4 nodes are available: 3 node(s) were unschedulable. {NEVER}",
        f"0/4 nodes are available: {OVER_MINIMUM} {NEVER}",
        "pod group is not ready, 3 Pending, 3 minAvailable; Pending: 1 Unschedulable, 2 Undetermined",
        "",
    ],
)
def test_a_pod_that_an_eviction_may_help_gets_room(message: str) -> None:
    found = the_pod(waiting(message), node())
    assert (found.blocked, found.needs_capacity) == ("", True)


def test_nobody_gives_anything_for_a_pod_that_yunikorn_skips_because_its_queue_is_full() -> None:
    found = the_pod(waiting("queue root.web has no quota left", reason="SchedulingSkipped"), node())
    assert (found.tried, found.needs_capacity) == (False, False)
    assert found.blocked == "its scheduler skips it: queue root.web has no quota left"


def test_a_pod_that_was_not_tried_or_has_a_node_is_not_blocked() -> None:
    text = f"0/4 nodes are available: 4 node(s) were unschedulable. {NOT_HELPFUL}"
    assert the_pod(waiting(text, reason="SchedulerError"), node()).blocked == ""
    assert the_pod(waiting(text, status="True"), node()).blocked == ""
    bound = waiting(text)
    bound["spec"]["nodeName"] = "n1"
    assert the_pod(bound, node()).blocked == ""


def test_what_kube_scheduler_says_of_a_trainer_is_kept_without_its_words_on_preemption() -> None:
    text = f"{NO_DEVICES} still not schedulable, preemption: not eligible due to preemptionPolicy=Never."
    assert the_pod(waiting(text), node()).unscheduled == NO_DEVICES
    assert the_pod(waiting(text, status="True"), node()).unscheduled == ""
    assert the_pod(waiting(""), node()).unscheduled == "it gives no reason"


ERRORS = [
    'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded',
    'running Score plugins: plugin "DynamicResources" failed with: number of allocations 1 is smaller than number of'
    " claims 2",
]
"""What kube-scheduler says of a pod for which it found a node, and which it could not bind (kubernetes 139016)."""


@pytest.mark.parametrize("error", ERRORS)
def test_a_pod_that_an_error_keeps_from_its_node_has_been_tried(error: str) -> None:
    found = the_pod(waiting(error, reason="SchedulerError"), node())
    assert (found.has_answer, found.unscheduled, found.needs_capacity) == (True, error, True)
    assert not found.tried, "nothing is said of its nodes: no pinned trainer is made anew for it"
    assert not the_pod(waiting("", reason="SchedulingGated"), node()).has_answer


def test_trainers_get_the_capacity_that_a_pod_leaves_unused_because_of_an_error(living: Living) -> None:
    web = replace(
        the_pod(waiting(ERRORS[0], reason="SchedulerError"), node()), shape=make_serving("web", cpu=2).shape
    )
    living.do(lambda world: world.serving.update({"web": web}))
    living.world.holds_serving = True
    living.do(partial(World.add, job=make_job("a", min_trainers=1, max_trainers=20)))
    seen = set()
    for _ in range(60):
        living.step(2.0)
        seen.add(living.trainers(JobKey("default", "a")))
    assert (min(seen - {0}), max(seen)) == (6, 8), "six beside it, and eight while nobody uses its capacity"


NO_CLAIM = "its PersistentVolumeClaim x does not exist"
BLOCKED = replace(make_serving("web", cpu=2), tried=True, created_s=0.0, blocked=NO_CLAIM)


def test_no_plan_takes_a_trainer_for_it_and_says_why() -> None:
    full = make_job("a", trainers=8, min_trainers=1, max_trainers=20, on=("n000",))
    snapshot = make_snapshot(make_nodes(1, cpu=8), (full,), pods=(BLOCKED,))
    plan = plan_snapshot(snapshot, "", Limits())
    assert (plan.decisions[0].victims, plan.serving.waiting, plan.serving.short) == ((), 1, 1)
    assert list(blocked_lines(snapshot)) == [f"serving pod serving/web: nobody frees capacity for it: {NO_CLAIM}"]
    many = tuple(replace(BLOCKED, name=f"web-{number}", uid=f"u{number}") for number in range(5))
    assert list(blocked_lines(replace(snapshot, pods=many)))[3:] == [
        "and 2 more serving pods for which nobody frees capacity"
    ]


@pytest.fixture
def living() -> Iterator[Living]:
    with closing(Living(make_nodes(1, cpu=8))) as made:
        yield made


def test_none_is_deleted_for_it_in_ten_minutes_and_the_log_names_it_once(living: Living) -> None:
    living.do(partial(World.add, job=make_job("a", min_trainers=1, max_trainers=20)))
    living.settle()
    living.do(lambda world: world.serving.update({"web": BLOCKED}))
    for _ in range(300):
        living.step(2.0)
    assert not [action for action in living.world.writes if isinstance(action, DeletePod)]
    lines = [line for line in living.recorder.put_off if "deletes no trainers for it" in line]
    assert len(lines) == 1
    living.do(lambda world: world.serving.update({"web": replace(BLOCKED, blocked="")}))
    living.settle()
    assert living.world.serving["web"].node, "it gets its capacity once its claim exists"
