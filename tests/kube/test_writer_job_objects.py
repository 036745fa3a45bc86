"""The objects of a job beside its pods: Service, Secret, PodGroup, the claim of its journal, and events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from edl.kube.master_key import make_token
from edl.model.actions import (
    EmitEvent,
    EnsureClaim,
    EnsurePodGroup,
    EnsureSecret,
    EnsureService,
    EventKind,
    ProbePod,
    Result,
)
from edl.model.names import Role
from tests.kube.writer_on_fake_api import KEY, PODS, UID, bench, create, pod
from tests.worlds.fake_api import refusal


async def test_the_service_is_created_once_and_recognised(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        assert (await here.apply(EnsureService(KEY, UID))).result is Result.DONE
        service = here.stored("/api/v1/namespaces/ads/services", "ctr")
        assert service is not None
        assert service["spec"]["clusterIP"] == "None"
        assert (await here.apply(EnsureService(KEY, UID))).result is Result.UNCHANGED
        assert here.stored("/api/v1/namespaces/ads/services", "ctr") == service


async def test_what_somebody_deleted_is_created_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        actions = (EnsureService(KEY, UID), EnsureSecret(KEY, UID), EnsurePodGroup(KEY, UID))
        for action in actions:
            await here.apply(action)
        paths = [path for path in here.api.objects if path.endswith(("/services", "/secrets", "/podgroups"))]
        assert len(paths) == 3
        for path in paths:
            (name,) = [name for _, name in here.api.objects[path]]
            here.api.remove(path, name, "ads")
        for action in actions:
            assert (await here.apply(action)).result is Result.DONE
        assert all(here.api.objects[path] for path in paths)


async def test_a_pod_group_follows_a_lower_minimum_and_another_queue(tmp_path: Path) -> None:
    groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ads/podgroups"
    async with bench(tmp_path, queue="red") as here:
        await here.apply(EnsurePodGroup(KEY, UID))
        group = here.stored(groups, "ctr")
        assert group is not None
        before = {**group["spec"], "minMember": 9, "queue": "blue", "minTaskMember": {"trainer": 1}}
        here.api.put(groups, {**group, "spec": before})
        assert (await here.apply(EnsurePodGroup(KEY, UID))).result is Result.DONE
        patched = here.stored(groups, "ctr")
        assert patched is not None
        assert patched["spec"] == {**group["spec"], "minTaskMember": {"trainer": 1}}, "the rest of it is kept"
        assert (patched["spec"]["minMember"], patched["spec"]["queue"]) == (2, "red")


async def test_a_probe_creates_nothing_and_teaches_what_admission_adds(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.faults.append(lambda _: web.json_response({"metadata": {"name": "x"}, "spec": {}}))
        assert (await here.apply(ProbePod(KEY, UID, Role.TRAINER, 0))).is_ok
        assert here.stored(PODS, "ctr-trainer-0") is None
        assert [(key, role) for key, _, role, _ in here.seen.learned] == [(KEY, Role.TRAINER)]
        assert here.api.requests[-1][2] == {"dryRun": "All"}
        assert not here.seen.told


@pytest.mark.parametrize(
    ("code", "message", "result"),
    [
        (403, "exceeded quota: none", Result.REFUSED),
        (400, 'admission webhook "x" does not support dry run', Result.UNCHANGED),
        (503, "later", Result.FAILED),
    ],
)
async def test_a_probe_is_refused_as_the_pod_would_be(
    tmp_path: Path, code: int, message: str, result: Result
) -> None:
    async with bench(tmp_path) as here:
        here.api.faults.append(refusal(code, "Forbidden", message))
        assert (await here.apply(ProbePod(KEY, UID, Role.TRAINER, 0))).result is result


async def test_a_service_of_another_owner_is_refused(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        here.api.put("/api/v1/namespaces/ads/services", pod("ctr", owner="another"))
        assert (await here.apply(EnsureService(KEY, UID))).reason == "NameTaken"


async def test_the_pod_group_counts_the_minimum_set_and_is_recognised(tmp_path: Path) -> None:
    groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ads/podgroups"
    async with bench(tmp_path) as here:
        assert (await here.apply(EnsurePodGroup(KEY, UID))).result is Result.DONE
        group = here.stored(groups, "ctr")
        assert group is not None
        assert group["spec"]["minMember"] == 2, "the master and one trainer"
        assert group["spec"]["minResources"]["pods"] == "2"
        assert group["spec"]["minResources"]["cpu"].endswith("m")
        assert group["spec"]["priorityClassName"] == "edl-training"
        assert group["spec"]["queue"] == "default"
        assert (await here.apply(EnsurePodGroup(KEY, UID))).result is Result.UNCHANGED


@pytest.mark.parametrize(("spec", "result"), [({}, Result.DONE), ({"schedulerName": "volcano"}, Result.REFUSED)])
async def test_without_volcano_a_missing_pod_group_matters_only_to_its_scheduler(
    tmp_path: Path, spec: dict[str, str], result: Result
) -> None:
    async with bench(tmp_path, gang=True, **spec) as here:
        for fault in (refusal(403, "Forbidden"), refusal(404, "NotFound")):
            here.api.faults.append(fault)
            outcome = await here.apply(EnsurePodGroup(KEY, UID))
            assert outcome.result in {result, Result.UNCHANGED}
            assert outcome.is_ok is (result is Result.DONE)


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
async def test_the_journal_is_on_a_claim_if_the_spec_requests_it_or_a_default_class_exists(
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


async def test_an_existing_claim_is_used_after_the_default_class_is_deleted(tmp_path: Path) -> None:
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
        event = EmitEvent(KEY, UID, EventKind.NORMAL, "ScaledUp", "2 -> 4: there is capacity")
        for _ in range(3):
            assert (await here.apply(event)).result is Result.DONE
        await here.apply(EmitEvent(KEY, UID, EventKind.NORMAL, "ScaledUp", "4 -> 5: there is capacity"))
        stored = list(here.api.objects[EVENTS].values())
        assert [e["count"] for e in stored] == [3, 1]
        assert stored[0]["involvedObject"] == {
            "apiVersion": "paddlepaddle.org/v1",
            "kind": "TrainingJob",
            "namespace": "ads",
            "name": "ctr",
            "uid": UID,
        }
