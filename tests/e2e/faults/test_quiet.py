"""If nothing changes, only the lease is written, according to the API server's audit log.

Twenty seconds in the suite; `make quiet` takes ten minutes, in which every watch ends and begins anew ten times. In
virtual time: tests/controller/loop/test_loop_quiet.py.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from tests.e2e.faults.stage import Stage
from tests.e2e.worlds.controller_process import ControllerProcess

pytestmark = [pytest.mark.alone, pytest.mark.cluster("minutes at real speed, measured beside kube-scheduler")]

SHORT_S = 20.0
FULL_S = 600.0
ACCOUNT = "system:serviceaccount:paddlecloud:training-job-controller"
READS = {"get", "list", "watch"}
RENEWED_EVERY_S = 2.0


def has_two(stage: Stage, job: str) -> bool:
    return stage.here.running(job) == 2


def is_in(stage: Stage, job: str, phase: str) -> bool:
    return bool(stage.status(job).get("phase") == phase)


@pytest.fixture(scope="module")
def crowd(running: Stage) -> Iterator[Stage]:
    """Jobs in every phase that lasts, and a controller that holds the lease."""
    kube = running.here.kube
    running.submit("elastic")
    running.submit("gang", fault_tolerant=False, trainer={"max-instance": 2})
    running.submit("paused", suspend=True)
    running.submit("pinned", trainer={"instances": 3})
    running.submit("impossible", memory="9999999Pi")
    running.submit("done", trainer={"max-instance": 2})
    running.submit("broken", backoffLimit=0, trainer={"max-instance": 2})
    for name, code in (("done", "0"), ("broken", "1")):
        kube.wait_until(partial(has_two, running, name), 40, f"{name} runs")
        for i in range(2):
            kube.annotate("pods", f"{name}-trainer-{i}", exit_code=code)
    wanted = {"elastic": "Running", "gang": "Running", "paused": "Suspended", "pinned": "Running"}
    wanted |= {"impossible": "Pending", "done": "Succeeded", "broken": "Failed"}
    for name, phase in wanted.items():
        kube.wait_until(
            partial(is_in, running, name, phase),
            40,
            f"{name} is {phase}",
        )
    with running.without_controller(), ControllerProcess(running.account, running.here.plane.workdir):
        yield running


@pytest.mark.timeout(900)
def test_a_quiet_cluster_sees_no_write_but_the_renewal_of_the_lease(crowd: Stage, *, is_full_campaign: bool) -> None:
    length_s = FULL_S if is_full_campaign else SHORT_S
    wait_for_silence(crowd)
    began_s, began = time.monotonic(), time.time()
    while (left_s := began_s + length_s - time.monotonic()) > 0:
        time.sleep(min(left_s, 5.0))
        crowd.assert_steady()
    verbs = Counter(f"{e['verb']} {resource(e)}" for e in asked(crowd, began))
    writes = {what: count for what, count in verbs.items() if what.partition(" ")[0] not in READS}
    print(f"in {length_s:g} s: {dict(verbs)}")
    assert writes.keys() == {"update leases"}, "nothing was even tried"
    assert length_s / RENEWED_EVERY_S * 0.7 <= writes["update leases"] <= length_s / RENEWED_EVERY_S + 2


def wait_for_silence(stage: Stage) -> None:
    """Wait until the controller has written nothing but its lease for two intervals."""
    stage.here.kube.wait_until(
        lambda: (
            not [e for e in asked(stage, time.time() - 11.0) if e["verb"] not in READS and resource(e) != "leases"]
        ),
        60,
        "the cluster comes to rest",
        poll_s=1.0,
    )


def asked(stage: Stage, since: float) -> list[dict[str, Any]]:
    """What the controller has asked for and was answered since then, refusals included."""
    lines = (stage.here.plane.workdir / "logs" / "audit.log").read_text().splitlines()
    events = [json.loads(line) for line in lines if ACCOUNT in line and '"ResponseComplete"' in line]
    return [e for e in events if datetime.fromisoformat(e["requestReceivedTimestamp"]).timestamp() >= since]


def resource(event: dict[str, Any]) -> str:
    """The plural of what an event of the audit log is about."""
    return str(event.get("objectRef", {}).get("resource", event["requestURI"]))
