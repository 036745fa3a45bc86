"""New trainers and pservers that must stay together require the label of their planned node."""

from __future__ import annotations

from dataclasses import replace

from edl.lifecycle.domains import require_domains
from edl.model.actions import CreatePod, EnsureService
from edl.model.names import JobKey, Role
from edl.model.topology import Topology, TopologyMode
from tests.worlds.builders import make_job, make_node

KEY = "example.com/rack"
JOB = replace(make_job("job"), topology=Topology(KEY, TopologyMode.REQUIRED))
NODES = (make_node("a1", labels={KEY: "a"}), make_node("bare"))
NEW = CreatePod(JobKey("default", "job"), "uid", Role.TRAINER, 0, node="a1")
SERVICE = EnsureService(JobKey("default", "job"), "uid")


def test_a_trainer_requires_the_domain_of_its_planned_node() -> None:
    assert require_domains((SERVICE, NEW), JOB, NODES) == (SERVICE, replace(NEW, label=(KEY, "a")))


def test_a_pserver_requires_it_too() -> None:
    pserver = replace(NEW, role=Role.PSERVER)
    assert require_domains((pserver,), JOB, NODES) == (replace(pserver, label=(KEY, "a")),)


def test_masters_may_be_anywhere_and_so_may_trainers_without_a_domain() -> None:
    others = (replace(NEW, role=Role.MASTER), replace(NEW, node="bare"), replace(NEW, node=None))
    assert require_domains(others, JOB, NODES) == others


def test_a_preference_requires_nothing() -> None:
    for topology in (None, Topology(KEY, TopologyMode.PREFERRED)):
        assert require_domains((NEW,), replace(JOB, topology=topology), NODES) == (NEW,)
