"""Two replicas and one lease: the leader is stopped past its lease, the other takes over, the first continues."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus

import pytest

from tests.e2e.faults.faults import after, hang, reset
from tests.e2e.faults.proxy import FaultProxy
from tests.e2e.faults.stage import Stage
from tests.e2e.worlds.controller_process import ControllerProcess

LEASE_S = 15.0
RENEWED_EVERY_S = 2.0
SLACK_S = 15.0
MANY = 40
SOME = 12
STILL_S = 1.0
"""No request begins any more if none came for so long."""
JOB = "handed-over"


@dataclass
class Replica:
    """One controller and its own way to the server."""

    proxy: FaultProxy
    process: ControllerProcess


@dataclass
class Pair:
    """Both replicas, as they began."""

    stage: Stage
    leader: Replica
    standby: Replica


@pytest.fixture(scope="module")
def pair(running: Stage) -> Iterator[Pair]:
    """A leader and a standby in place of the controller without election."""
    with ExitStack() as stack:
        stack.enter_context(running.without_controller())
        replicas = []
        for _ in range(2):
            proxy = stack.enter_context(FaultProxy(running.account))
            process = ControllerProcess(proxy.kubeconfig, running.here.plane.workdir)
            replicas.append(Replica(proxy, stack.enter_context(process)))
            running.here.kube.wait_until(lambda: holder(running), 10, "somebody leads")
        yield Pair(running, *replicas)


JOBS_PATH = "/apis/paddlepaddle.org/v1/trainingjobs"


def holder(stage: Stage) -> str:
    """Who holds the lease."""
    lease = stage.here.kube.find("leases", "edl-controller", "paddlecloud")
    return str(lease["spec"].get("holderIdentity") or "") if lease else ""


def test_a_leader_that_is_stopped_past_its_lease_writes_nothing_when_it_wakes_up(pair: Pair) -> None:
    stage, leader, standby = pair.stage, pair.leader, pair.standby
    first = holder(stage)
    with leader.proxy.fault(after(SOME, hang), "POST", "/pods$") as creations:
        stage.submit(JOB, trainer={"max-instance": MANY})
        # A request that the process has begun to send when it stops would be sent in full when it wakes up.
        stage.here.kube.wait_until(
            lambda: len(creations) > SOME and time.monotonic() - creations[-1].at_s > STILL_S,
            20,
            "some trainers are created, all other requests wait",
        )
        leader.process.send(signal.SIGSTOP)
        stopped_s = time.monotonic()
        assert standby.proxy.writes() == [], "who does not lead writes nothing"
        stage.here.kube.wait_until(lambda: stage.here.running(JOB) == MANY, 60, "the standby goes on")
    written_s = standby.proxy.writes()[0].at_s
    assert LEASE_S - RENEWED_EVERY_S - 1 <= written_s - stopped_s <= LEASE_S + RENEWED_EVERY_S + SLACK_S
    # Kinds that the cluster lacks are asked for now and then.
    lists = sorted(a.path for a in standby.proxy.since(stopped_s) if a.is_list and a.status == HTTPStatus.OK)
    assert lists == ["/api/v1/pods", JOBS_PATH], "its caches were warm: it lists jobs and their pods, once"
    assert holder(stage) not in {"", first}
    woke_s = time.monotonic()
    leader.process.send(signal.SIGCONT)
    assert leader.process.wait(60.0) == 1
    assert "could not renew its lease" in leader.process.tail()
    assert [a for a in leader.proxy.since(woke_s) if a.is_write] == []
    names = sorted(p["metadata"]["name"] for p in stage.pods_of(JOB))
    assert names == sorted([f"{JOB}-master-0", *(f"{JOB}-trainer-{i}" for i in range(MANY))])
    assert stage.log.most[JOB] <= MANY
    assert not [p for p in stage.log.ended_trainers() if p["metadata"]["name"].startswith(JOB)]


def test_a_replica_that_starts_while_the_server_is_away_lives_and_follows_once_it_is_back(pair: Pair) -> None:
    stage, late = pair.stage, pair.leader
    leading = holder(stage)
    with late.proxy.fault(reset):
        began_s = time.monotonic()
        late.process.start(until="/healthz")
        stage.here.kube.wait_until(lambda: len(late.proxy.since(began_s)) >= 8, 15, "it tries")
        assert late.process.answers("/healthz")
        assert not late.process.answers("/readyz")
    stage.here.kube.wait_until(lambda: late.process.answers("/readyz"), 20, "its caches are filled")
    assert holder(stage) == leading
    assert not [a for a in late.proxy.since(began_s) if a.is_write]
