"""The writer on a fake API server that stores objects and enforces preconditions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from edl.kube.client.session import ApiSession
from edl.kube.master_key import MasterKey
from edl.kube.translate.kueue.objects import FlavorSpec
from edl.kube.workloads.registry import ADAPTERS
from edl.kube.writer import Writer
from edl.model.actions import Action, CreatePod, Outcome
from edl.model.names import JobKey, Role, WorkloadKind
from edl.sandbox.apiserver.errors import ApiError
from edl.sandbox.apiserver.patches.json_patch import json_patch
from tests.worlds.fake_api import FakeApi, FakeClock, connected, refusal

Object = dict[str, Any]
KEY = JobKey("ads", "ctr")
UID = "4ecda13a-0000"
MAX_GRACE_S = 600
PODS = "/api/v1/namespaces/ads/pods"
BATCH_JOBS = "/apis/batch/v1/namespaces/ads/jobs"
VOLCANO_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/ads/jobs"
JOBS = "/apis/paddlepaddle.org/v1/namespaces/ads/trainingjobs"


class WritableApi(FakeApi):
    """An API server that stores writes and enforces preconditions like the real one."""

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
        self, request: web.Request, collection: str, stored: Object, patch: Object | list[Object], *, is_status: bool
    ) -> web.Response:
        if isinstance(patch, list):
            return self._json_patch(request, collection, stored, patch)
        given, has = patch.get("metadata", {}), stored["metadata"]
        if given.get("resourceVersion", has["resourceVersion"]) != has["resourceVersion"]:
            return refusal(409, "Conflict", "the object has been modified")(request)
        if not is_status and given.get("uid", has["uid"]) != has["uid"]:
            return refusal(422, "Invalid", 'metadata.uid: Invalid value: "x": field is immutable')(request)
        return web.json_response(self.put(collection, merged(stored, patch)))

    def _json_patch(
        self, request: web.Request, collection: str, stored: Object, operations: list[Object]
    ) -> web.Response:
        try:
            changed = json_patch(stored, operations)
        except ApiError as error:
            return refusal(error.code, "Invalid", str(error))(request)
        if changed["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]:
            return refusal(409, "Conflict", "the object has been modified")(request)
        return web.json_response(self.put(collection, changed))


def merged(into: Object, patch: Object) -> Object:
    """Apply a JSON merge patch."""
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
    """The cache as the writer uses it."""

    api: FakeApi
    told: list[tuple[str, str, Object]] = field(default_factory=list)  # verb, kind and object of each answer
    learned: list[tuple[JobKey, str, Role, Object]] = field(default_factory=list)

    def job_body(self, key: JobKey) -> Object | None:
        return self.api.objects.get(JOBS, {}).get((key.namespace, key.name))

    def workload(self, key: JobKey) -> Any | None:
        path = BATCH_JOBS if key.kind is WorkloadKind.BATCH_JOB else VOLCANO_JOBS
        stored = self.api.objects.get(path, {}).get((key.namespace, key.object_name))
        return None if stored is None else ADAPTERS[key.kind].decoder.from_dict(stored)

    def has_pod(self, namespace: str, name: str) -> bool:
        return (namespace, name) in self.api.objects.get(PODS, {})

    def priority_classes(self) -> frozenset[str]:
        return frozenset({"edl-core", "edl-training"})

    def learn(self, key: JobKey, uid: str, role: Role, pod: Mapping[str, Any]) -> bool:
        self.learned.append((key, uid, role, dict(pod)))
        return False

    def flavors(self, names: Collection[str]) -> list[FlavorSpec]:
        return [FlavorSpec(node_labels={"flavor": name}) for name in sorted(names)]

    def answered(self, kind: str, body: Object) -> None:
        self.told.append(("answered", kind, body))

    def deleted(self, kind: str, key: tuple[str, str], uid: str, answer: Object) -> None:
        self.told.append(("deleted", kind, {"key": key, "uid": uid, "answer": answer}))


@dataclass
class Bench:
    api: WritableApi
    session: ApiSession
    seen: Seen
    writer: Writer
    clock: FakeClock

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
        clock = FakeClock()
        writer = Writer(session, seen, clock, key=key, default_master_image="edl:1", max_grace_s=MAX_GRACE_S)
        yield Bench(api, session, seen, writer, clock)


def create(role: Role = Role.TRAINER, index: int = 0, node: str | None = "n1") -> CreatePod:
    return CreatePod(KEY, UID, role, index, node)


def pod(name: str = "ctr-trainer-0", *, uid: str = "p1", owner: str = UID, **metadata: Any) -> Object:
    return {
        "metadata": {
            "name": name, "namespace": "ads", "uid": uid,
            "ownerReferences": [{"uid": owner, "controller": True}], **metadata
        }
    }  # fmt: skip
