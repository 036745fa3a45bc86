"""Single effects over real HTTP: each conditional, each answer read for what it means."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from edl.adapters.jobs import read_status
from edl.adapters.keys import KEY_SECRET, MasterKey, make_token
from edl.adapters.session import ApiSession
from edl.adapters.status_body import status_body
from edl.adapters.writer import Writer
from edl.core.lifecycle import (
    Action,
    CreatePod,
    DeleteJob,
    DeletePod,
    EmitEvent,
    EnsureClaim,
    EnsureSecret,
    EnsureService,
    EventKind,
    MarkPod,
    Outcome,
    PatchStatus,
    Result,
)
from edl.core.model import Condition, JobKey, JobPhase, JobStatus, Resize, Role, RoleCount
from edl.errors import ConfigError, TemporaryError
from tests.adapters.fake_api import FakeApi, FakeClock, connected, refusal, reset

Object = dict[str, Any]
KEY = JobKey("ads", "ctr")
UID = "4ecda13a-0000"
PODS = "/api/v1/namespaces/ads/pods"
JOBS = "/apis/paddlepaddle.org/v1/namespaces/ads/trainingjobs"


class WritableApi(FakeApi):
    """Keeps what is written, and honours the preconditions that the real one does."""

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path, subresource = request.path.removesuffix("/status"), request.path.endswith("/status")
        collection, _, name = path.rpartition("/")
        namespace = path.partition("/namespaces/")[2].partition("/")[0]
        stored = self.objects.get(collection, {}).get((namespace, name))
        if self.faults or (request.method == "GET" and stored is None and path in self.objects):
            return await super()._handle(request)
        self.requests.append((request.method, request.path, dict(request.query)))
        raw = await request.read()
        body: Object = json.loads(raw) if raw else {}
        if request.method == "POST":
            return self._create(path, namespace, body)
        if stored is None:
            return refusal(404, "NotFound", f"{path} not found")(request)
        if request.method == "PATCH":
            return self._patch(request, collection, stored, body, is_status=subresource)
        if request.method == "DELETE":
            if body["preconditions"]["uid"] != stored["metadata"]["uid"]:
                return refusal(409, "Conflict", "the UID in the precondition does not match")(request)
            self.remove(collection, name, namespace)
        return web.json_response(stored)

    def _create(self, path: str, namespace: str, body: Object) -> web.Response:
        name = body["metadata"]["name"]
        if (namespace, name) in self.objects.get(path, {}):
            return web.json_response({"kind": "Status", "code": 409, "reason": "AlreadyExists"}, status=409)
        body["metadata"].setdefault("namespace", namespace)
        return web.json_response(self.put(path, body), status=201)

    def _patch(
        self, request: web.Request, collection: str, stored: Object, patch: Object, *, is_status: bool
    ) -> web.Response:
        given, has = patch.get("metadata", {}), stored["metadata"]
        if given.get("resourceVersion", has["resourceVersion"]) != has["resourceVersion"]:
            return refusal(409, "Conflict", "the object has been modified")(request)
        if not is_status and given.get("uid", has["uid"]) != has["uid"]:
            return refusal(422, "Invalid", 'metadata.uid: Invalid value: "x": field is immutable')(request)
        return web.json_response(self.put(collection, merged(stored, patch)))


def merged(into: Object, patch: Object) -> Object:
    """A JSON merge patch."""
    result = dict(into)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(result.get(name, {}), value)
        else:
            result[name] = value
    return result


@dataclass
class Seen:
    """The caches as the writer needs them."""

    api: FakeApi
    expected: list[tuple[str, ...]] = field(default_factory=list)

    def job_body(self, key: JobKey) -> Object | None:
        return self.api.objects.get(JOBS, {}).get((key.namespace, key.name))

    def priority_classes(self) -> frozenset[str]:
        return frozenset({"edl-core", "edl-training"})

    def expect_created(self, kind: str, namespace: str, name: str, uid: str) -> None:
        self.expected.append(("created", kind, namespace, name, uid))

    def expect_deleted(self, kind: str, namespace: str, name: str, uid: str) -> None:
        self.expected.append(("deleted", kind, namespace, name, uid))

    def expect_patched(self, kind: str, namespace: str, name: str, uid: str, resource_version: str) -> None:
        self.expected.append(("patched", kind, namespace, name, uid, resource_version))


@dataclass
class Bench:
    api: WritableApi
    session: ApiSession
    seen: Seen
    writer: Writer

    async def apply(self, action: Action) -> Outcome:
        return await self.writer.apply(action)

    def stored(self, path: str, name: str) -> Object | None:
        return self.api.objects.get(path, {}).get(("ads", name))


def training_job(**spec: Any) -> Object:
    trainer = {
        "entrypoint": "python train.py",
        "min-instance": 1,
        "max-instance": 4,
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
    }
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "ctr", "namespace": "ads", "uid": UID, "generation": 1},
        "spec": {"fault_tolerant": True, "trainer": trainer, **spec},
    }


@asynccontextmanager
async def bench(tmp_path: Path, **spec: Any) -> AsyncIterator[Bench]:
    api = WritableApi()
    async with connected(api) as session:
        api.put(JOBS, training_job(**spec))
        seen = Seen(api)
        key = MasterKey(tmp_path / "key", session, "paddlecloud")
        yield Bench(api, session, seen, Writer(session, seen, FakeClock(), key=key, default_master_image="edl:1"))


def create(role: Role = Role.TRAINER, index: int = 0, node: str | None = "n1") -> CreatePod:
    return CreatePod(KEY, UID, role, index, node)


def pod(name: str = "ctr-trainer-0", *, uid: str = "p1", owner: str = UID, **metadata: Any) -> Object:
    return {
        "metadata": {
            "name": name, "namespace": "ads", "uid": uid, "ownerReferences": [{"uid": owner}], **metadata
        }
    }  # fmt: skip


async def test_a_pod_is_created_under_its_name_for_its_node_and_expected_back(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        outcome = await here.apply(create())
        made = here.stored(PODS, "ctr-trainer-0")
        assert outcome.result is Result.DONE
        assert made is not None
        assert made["metadata"]["annotations"]["paddlepaddle.org/planned-node"] == "n1"
        assert made["spec"]["priorityClassName"] == "edl-training"
        assert here.seen.expected == [("created", "Pod", "ads", "ctr-trainer-0", made["metadata"]["uid"])]


async def test_a_pod_whose_class_is_missing_goes_without(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.apply(create(index=3))
        made = here.stored(PODS, "ctr-trainer-3")
        assert made is not None
        assert "priorityClassName" not in made["spec"]


async def test_a_pod_that_exists_and_is_ours_is_success(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod())
        assert (await here.apply(create())).result is Result.UNCHANGED
        assert here.seen.expected == [("created", "Pod", "ads", "ctr-trainer-0", "p1")]


async def test_a_pod_of_somebody_else_under_our_name_is_refused_with_the_remedy(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod(owner="another"))
        outcome = await here.apply(create())
        assert (outcome.result, outcome.reason) == (Result.REFUSED, "NameTaken")
        assert "rename the job" in outcome.message


async def test_a_pod_of_ours_on_its_way_out_is_a_conflict(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod(deletionTimestamp="2026-01-05T10:00:00Z"))
        assert (await here.apply(create())).result is Result.CONFLICT


async def test_a_job_that_was_deleted_and_made_again_gets_no_pod_by_the_old_decision(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        outcome = await here.apply(CreatePod(KEY, "another-uid", Role.TRAINER, 0, None))
        assert outcome.result is Result.CONFLICT
        assert here.stored(PODS, "ctr-trainer-0") is None


async def test_the_intent_is_stated_before_the_deletion(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod())
        outcome = await here.apply(DeletePod(KEY, UID, "ctr-trainer-0", "p1", "ServingNeedsRoom"))
        assert outcome.result is Result.DONE
        assert [r[0] for r in here.api.requests] == ["PATCH", "DELETE"]
        assert here.stored(PODS, "ctr-trainer-0") is None
        marked = here.api.history[-1][3]["metadata"]["annotations"]
        assert marked == {"paddlepaddle.org/intent": "ServingNeedsRoom"}
        assert [e[0] for e in here.seen.expected] == ["patched", "deleted"]


async def test_a_deletion_never_hits_another_pod_of_the_same_name(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod(uid="p2"))
        for marked in (False, True):
            outcome = await here.apply(DeletePod(KEY, UID, "ctr-trainer-0", "p1", "x", marked=marked))
            assert outcome.result is Result.CONFLICT
        left = here.stored(PODS, "ctr-trainer-0")
        assert left is not None
        assert "annotations" not in left["metadata"]


async def test_what_is_gone_already_is_success(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        for action in (
            MarkPod(KEY, UID, "ctr-trainer-0", "p1", "x"),
            DeletePod(KEY, UID, "ctr-trainer-0", "p1", "x"),
            DeletePod(KEY, UID, "ctr-trainer-0", "p1", "x", marked=True),
        ):
            assert (await here.apply(action)).result is Result.UNCHANGED


async def test_a_forced_deletion_has_no_grace(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(PODS, pod())
        here.api.faults.extend([None, None])
        await here.apply(DeletePod(KEY, UID, "ctr-trainer-0", "p1", "NodeLost", force=True, marked=True))
        sent = json.loads(here.api.bodies[-1])
        assert (sent["gracePeriodSeconds"], sent["preconditions"]) == (0, {"uid": "p1"})


STATUS = JobStatus(
    phase=JobPhase.RUNNING,
    reason="AtMax",
    selector="a=b",
    observed_generation=3,
    conditions=(Condition("Admitted", "True", "AtMax", "4 of 4", 1000.0, 3),),
    trainer=RoleCount(4, 3, 1),
    pserver=RoleCount(2, 2, 0),
    master=RoleCount(1, 1, 0),
    start_s=990.0,
    completion_s=None,
    last_resize=Resize(995.0, 2, 4, "AtMax", 990.0),
    failures=1,
    explanation="4 of 4: at its maximum",
)


def test_a_status_is_read_back_as_it_was_written() -> None:
    for status in (STATUS, JobStatus()):
        assert read_status({"status": status_body(status)}) == status


async def test_a_status_is_written_on_the_version_that_was_seen_and_only_where_it_differs(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        assert (await here.apply(PatchStatus(KEY, UID, STATUS))).result is Result.DONE
        stored = here.stored(JOBS, "ctr")
        assert stored is not None
        assert read_status(stored) == STATUS
        requests = len(here.api.requests)
        assert (await here.apply(PatchStatus(KEY, UID, STATUS))).result is Result.UNCHANGED
        assert len(here.api.requests) == requests
        assert here.seen.expected == [
            ("patched", "TrainingJob", "ads", "ctr", UID, stored["metadata"]["resourceVersion"])
        ]


async def test_a_status_keeps_what_others_have_written_into_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(JOBS, {**training_job(), "status": {"dataset": {"epoch": 2}, "completionTime": "x"}})
        await here.apply(PatchStatus(KEY, UID, STATUS))
        stored = here.stored(JOBS, "ctr")
        assert stored is not None
        assert stored["status"]["dataset"] == {"epoch": 2}
        assert "completionTime" not in stored["status"]


async def test_a_status_is_never_written_on_another_job_of_the_same_name(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        assert (await here.apply(PatchStatus(KEY, "another", STATUS))).result is Result.CONFLICT
        assert not here.api.requests


async def test_an_expired_job_is_deleted_by_its_uid(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        assert (await here.apply(DeleteJob(KEY, "another"))).result is Result.CONFLICT
        assert (await here.apply(DeleteJob(KEY, UID))).result is Result.DONE
        assert here.stored(JOBS, "ctr") is None


async def test_the_service_is_made_once_and_recognised(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        assert (await here.apply(EnsureService(KEY, UID))).result is Result.DONE
        service = here.stored("/api/v1/namespaces/ads/services", "ctr")
        assert service is not None
        assert service["spec"]["clusterIP"] == "None"
        requests = len(here.api.requests)
        assert (await here.apply(EnsureService(KEY, UID))).result is Result.UNCHANGED
        assert len(here.api.requests) == requests


async def test_a_service_of_somebody_else_is_refused(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put("/api/v1/namespaces/ads/services", pod("ctr", owner="another"))
        assert (await here.apply(EnsureService(KEY, UID))).reason == "NameTaken"


async def test_the_secret_holds_the_two_tokens_and_is_never_read(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.apply(EnsureSecret(KEY, UID))
        name = f"ctr-token-{UID[:8]}"
        secret = here.stored("/api/v1/namespaces/ads/secrets", name)
        assert secret is not None
        key = (tmp_path / "key").read_bytes()
        assert sorted(secret["stringData"].values()) == sorted(
            make_token(key, KEY, UID, role) for role in ("trainer", "controller")
        )
        assert [r[0] for r in here.api.requests] == ["POST"]


CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CLAIMS = "/api/v1/namespaces/ads/persistentvolumeclaims"


@pytest.mark.parametrize(
    ("spec", "has_default", "claims"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"master": {"storage": {"size": "2Gi"}}}, False, True),
    ],
)
async def test_the_journal_is_on_a_claim_where_asked_or_where_there_is_a_default_class(
    tmp_path: Path,
    spec: dict[str, Any],
    has_default: bool,
    claims: bool,
) -> None:
    async with bench(tmp_path, **spec) as here:
        note = {"storageclass.kubernetes.io/is-default-class": "true"} if has_default else {}
        here.api.put(CLASSES, {"metadata": {"name": "standard", "annotations": note}})
        await here.apply(EnsureClaim(KEY, UID))
        await here.apply(create(Role.MASTER))
        master = here.stored(PODS, "ctr-master-0")
        assert master is not None
        volumes = [v for v in master["spec"]["volumes"] if "persistentVolumeClaim" in v]
        assert bool(here.api.objects.get(CLAIMS)) == claims
        assert bool(volumes) == claims


async def test_a_journal_does_not_move_when_the_default_class_goes(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put(CLASSES, {"metadata": {"name": "standard"}})
        here.api.put(CLAIMS, pod(f"ctr-journal-{UID[:8]}"))
        await here.apply(EnsureClaim(KEY, UID))
        await here.apply(create(Role.MASTER))
        master = here.stored(PODS, "ctr-master-0")
        assert master is not None
        assert any("persistentVolumeClaim" in v for v in master["spec"]["volumes"])


EVENTS = "/api/v1/namespaces/ads/events"


async def test_an_event_names_the_job_and_a_repeated_one_is_counted(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        event = EmitEvent(KEY, UID, EventKind.NORMAL, "ScaledUp", "2 -> 4: there is room")
        for _ in range(3):
            assert (await here.apply(event)).result is Result.DONE
        await here.apply(EmitEvent(KEY, UID, EventKind.NORMAL, "ScaledUp", "4 -> 5: there is room"))
        stored = list(here.api.objects[EVENTS].values())
        assert [e["count"] for e in stored] == [3, 1]
        assert stored[0]["involvedObject"] == {
            "apiVersion": "paddlepaddle.org/v1",
            "kind": "TrainingJob",
            "namespace": "ads",
            "name": "ctr",
            "uid": UID,
        }


@pytest.mark.parametrize(
    ("fault", "result", "reason"),
    [
        (refusal(403, "Forbidden", "exceeded quota: pods=4"), Result.REFUSED, "Forbidden"),
        (refusal(422, "Invalid", "spec.containers: required"), Result.REFUSED, "Invalid"),
        (refusal(400, "", "admission webhook denied"), Result.REFUSED, "Http400"),
        (refusal(401, "Unauthorized"), Result.FAILED, "Unauthorized"),
        (refusal(409, "Conflict"), Result.CONFLICT, "Conflict"),
        (refusal(404, "NotFound", 'namespaces "ads" not found'), Result.REFUSED, "NotFound"),
        (refusal(500, "InternalError"), Result.FAILED, "Unavailable"),
        (refusal(503, "ServiceUnavailable"), Result.FAILED, "Unavailable"),
        (reset, Result.FAILED, "Unavailable"),
    ],
)
async def test_every_answer_of_the_server_is_an_outcome(
    tmp_path: Path, fault: Any, result: Result, reason: str
) -> None:
    async with bench(tmp_path) as here:
        here.api.faults.append(fault)
        outcome = await here.apply(create())
        assert (outcome.result, outcome.reason) == (result, reason)
        assert outcome.message


async def test_a_busy_server_says_when_to_come_back(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.faults.append(refusal(429, "TooManyRequests", "slow down", **{"Retry-After": "7"}))
        outcome = await here.apply(create())
        assert (outcome.result, outcome.retry_after_s) == (Result.FAILED, 7.0)


def key_in(path: Path) -> MasterKey:
    """A key that is kept in a file: no API server is asked, so none is given."""
    return MasterKey(path, session=None, namespace="x")  # type: ignore[arg-type]


def test_a_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state" / "edl" / "key"
    key_in(path)
    made = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(made) >= 32
    key_in(path)
    assert path.read_bytes() == made


def test_a_key_that_is_too_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("short")
    with pytest.raises(ConfigError, match="at least 16"):
        key_in(tmp_path / "key")


async def test_where_the_file_cannot_be_made_the_key_is_a_secret_made_by_one_replica() -> None:
    path = Path("/proc/edl/key")
    api = WritableApi()
    async with connected(api) as session:
        leader, other = (MasterKey(path, session, "paddlecloud") for _ in range(2))
        key = await leader.get()
        assert await leader.get() == key
        assert api.objects["/api/v1/namespaces/paddlecloud/secrets"][("paddlecloud", KEY_SECRET)]["data"]["key"]
        with pytest.raises(TemporaryError, match="does not show"):
            await other.get()


def test_tokens_differ_by_role_job_and_uid() -> None:
    made = {
        make_token(b"k" * 32, JobKey(namespace, name), uid, role)
        for namespace in ("a", "b")
        for name in ("a", "b")
        for uid in ("1", "2")
        for role in ("trainer", "controller")
    }
    assert len(made) == 16
