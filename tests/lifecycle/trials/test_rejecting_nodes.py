"""All pods of a job keep away from the nodes that reject them, if others accept them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edl.lifecycle.trials.rejecting_nodes import away_in_plan, away_when_created
from edl.model.actions import CreatePod
from edl.model.cluster import AvoidedNode
from edl.model.jobs import FixedPods
from edl.model.names import Role
from edl.model.resources import Placement
from edl.planner.eligibility import takes
from tests.worlds.builders import make_job, make_nodes, make_shape

NODES = make_nodes(3)
FIXED = (FixedPods(Role.MASTER, make_shape(0.25), 1), FixedPods(Role.PSERVER, make_shape(0.5), 2))
JOB = make_job("a", fixed=FIXED)
REJECTING = (AvoidedNode("n001", 1000.0, (JOB.key,)),)


def test_no_pod_of_the_job_is_planned_there() -> None:
    planned = away_in_plan(JOB, REJECTING, NODES)
    for shape in (planned.trainer, *(one.shape for one in planned.fixed)):
        assert [takes(node, shape.placement) for node in NODES] == [True, False, True]
    assert away_in_plan(JOB, (), NODES) is JOB


@pytest.mark.parametrize("role", list(Role))
def test_no_pod_of_the_job_is_created_there(role: Role) -> None:
    action = CreatePod(JOB.key, JOB.uid, role, 0, "n000", avoided=("n002",))
    (away,) = away_when_created((action,), JOB, REJECTING, NODES)
    assert away == replace(action, avoided=("n001", "n002"))
    assert away_when_created((action,), JOB, (), NODES) == (action,)


def test_only_the_pod_that_is_planned_for_a_node_that_is_tried_may_go_there() -> None:
    tried = (replace(REJECTING[0], probe=JOB.key),)
    actions = [CreatePod(JOB.key, JOB.uid, role, 0, node) for role in Role for node in ("n000", "n001")]
    found = away_when_created(actions, JOB, tried, NODES)
    assert [a.avoided for a in found if isinstance(a, CreatePod)] == [("n001",), ()] * len(Role)
    assert away_in_plan(JOB, tried, NODES) == JOB


def test_no_pod_names_a_node_that_is_gone() -> None:
    """An autoscaler replaces nodes, and those that rejected a pod and are gone are never tried."""
    gone = replace(REJECTING[0], name="gone", probe=JOB.key)
    action = CreatePod(JOB.key, JOB.uid, Role.TRAINER, 0, "n000")
    assert away_when_created((action,), JOB, (gone,), NODES) == (action,)


@pytest.mark.parametrize(("tried", "named"), [(63, 62), (300, 0)])
def test_a_pod_names_no_more_nodes_that_are_tried_than_it_may(tried: int, named: int) -> None:
    """All nodes of a large job may be tried at once; a pod with too many requirements could not be read."""
    nodes = [replace(REJECTING[0], name=f"n{number:03}", probe=JOB.key) for number in range(tried)]
    actions = [CreatePod(JOB.key, JOB.uid, role, 0, "n000") for role in Role]
    found = away_when_created(actions, JOB, nodes, make_nodes(tried))
    assert [len(a.avoided) for a in found if isinstance(a, CreatePod)] == [named] * len(Role)


def test_a_role_that_no_other_node_accepts_stays() -> None:
    bound = make_shape(0.5, placement=Placement((("kubernetes.io/hostname", "n001"),)))
    job = replace(JOB, fixed=(replace(FIXED[0], shape=bound), FIXED[1]))
    planned = away_in_plan(job, REJECTING, NODES)
    assert [one.shape == bound for one in planned.fixed] == [True, False]
    actions = [CreatePod(job.key, job.uid, role, 0, "") for role in (Role.MASTER, Role.PSERVER)]
    created = away_when_created(actions, job, REJECTING, NODES)
    assert [a.avoided for a in created if isinstance(a, CreatePod)] == [(), ("n001",)]
