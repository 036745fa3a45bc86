"""The API server's refusals: each degrades its own job, with the server's message, and no other job.

The bodies are those of kube-apiserver 1.30 to 1.35, with only the fields that matter.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from edl.errors import TemporaryError
from edl.kube.client.api_errors import LONGEST_RETRY_AFTER_S, error_of
from edl.model.actions import Action, CreatePod, Outcome, Result
from edl.model.names import JobKey
from edl.model.status import JobPhase
from tests.kube.writer_on_fake_api import bench, create
from tests.worlds.builders import make_job, make_nodes
from tests.worlds.fake_api import refusal
from tests.worlds.simulated_cluster import World
from tests.worlds.simulated_controller import Living

QUOTA = (
    'pods "ctr-trainer-0" is forbidden: exceeded quota: team, requested: pods=1,requests.cpu=1, '
    "used: pods=4,requests.cpu=4, limited: pods=4,requests.cpu=4"
)
SECURITY = (
    'pods "ctr-trainer-0" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false '
    '(container "trainer" must set securityContext.allowPrivilegeEscalation=false)'
)
WEBHOOK = 'admission webhook "images.example.com" denied the request: image vgg:latest is not signed'
POLICY = "ValidatingAdmissionPolicy 'owners' with binding 'owners' denied request: label team is missing"
DOWN = (
    'Internal error occurred: failed calling webhook "images.example.com": failed to call webhook: Post '
    '"https://images.default.svc:443/?timeout=10s": dial tcp 10.0.0.1:443: connect: connection refused'
)
RANGE = 'pods "ctr-trainer-0" is forbidden: maximum cpu usage per Container is 500m, but limit is 1'
ENDING = (
    'pods "ctr-trainer-0" is forbidden: unable to create new content in namespace ads because it is being terminated'
)
RIGHTS = (
    'pods is forbidden: User "system:serviceaccount:paddlecloud:edl" cannot create resource "pods" in API group ""'
)
INVALID = 'Pod "ctr-trainer-0" is invalid: spec.containers[0].image: Required value'

REFUSALS = [
    (403, "Forbidden", QUOTA),
    (403, "Forbidden", SECURITY),
    (400, "", WEBHOOK),
    (403, "Forbidden", WEBHOOK),
    (422, "Invalid", POLICY),
    (500, "InternalError", DOWN),
    (403, "Forbidden", RANGE),
    (403, "Forbidden", ENDING),
    (403, "Forbidden", RIGHTS),
    (422, "Invalid", INVALID),
]
A, B = JobKey("default", "a"), JobKey("default", "b")


async def outcome_of(tmp_path: Path, code: int, reason: str, message: str) -> Outcome:
    async with bench(tmp_path) as here:
        here.api.faults.append(refusal(code, reason, message))
        return await here.apply(create())


@pytest.fixture
def living() -> Iterator[Living]:
    with closing(Living(make_nodes(2, cpu=4))) as made:
        for name in ("a", "b"):
            made.do(partial(World.add, job=make_job(name, min_trainers=1, max_trainers=2)))
        yield made


@pytest.mark.parametrize(("code", "reason", "message"), REFUSALS)
def test_a_refusal_degrades_only_its_job_with_the_servers_message_until_it_is_lifted(
    tmp_path: Path, living: Living, code: int, reason: str, message: str
) -> None:
    refused = asyncio.run(outcome_of(tmp_path, code, reason, message))
    assert refused.result is Result.REFUSED
    attempts: list[Action] = []

    def refuse(action: Action) -> tuple[bool, Outcome] | None:
        if not (isinstance(action, CreatePod) and action.job == A):
            return None
        attempts.append(action)
        return False, replace(refused, action=action)

    living.world.fault = refuse
    for _ in range(30):
        living.step(2.0)
    status = living.world.job(A).status
    other = living.world.job(B).status
    assert status is not None
    assert other is not None
    degraded = status.condition("Degraded")
    assert degraded is not None
    assert (degraded.status, degraded.reason) == ("True", refused.reason)
    assert message in degraded.message
    assert not living.world.job(A).pods
    assert len(attempts) <= 2 * 5, "5, 10, 20, 40 s apart, two trainers each time"
    assert other.phase is JobPhase.RUNNING
    events = [e for e in living.world.events if e.reason == refused.reason]
    assert [e.job for e in events] == [A], "one event"
    undegraded = other.condition("Degraded")
    assert undegraded is not None
    assert undegraded.status == "False"
    living.world.fault = lambda _: None
    for _ in range(60):
        living.step(2.0)
    healed = living.world.job(A).status
    assert healed is not None
    assert healed.phase is JobPhase.RUNNING
    degraded = healed.condition("Degraded")
    assert degraded is not None
    assert degraded.status == "False"


def test_a_very_long_message_of_a_webhook_is_cut(living: Living) -> None:
    living.world.fault = lambda a: (
        (False, Outcome(a, Result.REFUSED, "Forbidden", "no " * 20_000)) if isinstance(a, CreatePod) else None
    )
    for _ in range(4):
        living.step(2.0)
    status = living.world.job(A).status
    assert status is not None
    degraded = status.condition("Degraded")
    assert degraded is not None
    assert len(degraded.message) == 1024


@pytest.mark.parametrize(
    ("header", "details", "waits_s"),
    [
        ("7", None, 7.0),
        ("0", None, 0.0),
        ("86400", None, LONGEST_RETRY_AFTER_S),
        ("9" * 400, None, LONGEST_RETRY_AFTER_S),
        (None, 20, 20.0),
        (None, 10**9, LONGEST_RETRY_AFTER_S),
        (None, -5, 0.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None, None),
        (None, None, None),
    ],
)
def test_no_server_and_no_webhook_makes_edl_wait_for_longer_than_minutes(
    header: str | None, details: int | None, waits_s: float | None
) -> None:
    status: dict[str, object] = {"kind": "Status", "code": 429, "message": "slow down"}
    if details is not None:
        status["details"] = {"retryAfterSeconds": details}
    error = error_of(429, json.dumps(status).encode(), "POST pods", header)
    assert isinstance(error, TemporaryError)
    assert error.retry_after_s == waits_s
