"""Request pods over real HTTP: what is created, and that no other pod is deleted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edl.api.priorities import PRIORITY_TRAINING
from edl.model.actions import RequestNode, Result, WithdrawNodeRequest
from edl.model.node_groups import NodeGroup
from edl.model.resources import Resources, Taint
from tests.kube.writer_on_fake_api import KEY, PODS, UID, bench, create

GIB = 2**30
GROUP = NodeGroup(
    "spot",
    Resources.of({"cpu": 8000, "memory": 32 * GIB, "pods": 110}),
    (("pool", "spot"),),
    (Taint("spot", "true", "NoSchedule"),),
)
ASKED = Resources.of({"cpu": 3500, "memory": 2 * GIB, "nvidia.com/gpu": 2, "pods": 3, "hostport/TCP/80": 1})
ACTION = RequestNode(KEY, UID, 0, GROUP, ASKED)


async def test_a_request_pod_can_only_go_to_its_group_and_preempts_nobody(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        outcome = await here.apply(ACTION)
        made = here.stored(PODS, "ctr-node-0")
        assert outcome.result is Result.DONE
        assert made is not None
        metadata, spec = made["metadata"], made["spec"]
        assert metadata["labels"]["paddlepaddle.org/requests-node-for"] == "ctr"
        assert metadata["labels"]["paddlepaddle.org/node-group"] == "spot"
        assert not {"paddlepaddle.org/job", "paddle-job"} & metadata["labels"].keys()
        assert metadata["annotations"] == {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
        assert metadata["ownerReferences"][0]["uid"] == UID
        assert spec["nodeSelector"] == {"pool": "spot"}
        assert spec["tolerations"] == [{"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}]
        assert spec["priorityClassName"] == PRIORITY_TRAINING
        assert spec["containers"][0]["resources"] == {
            "requests": {"cpu": "3500m", "memory": str(2 * GIB), "nvidia.com/gpu": "2"},
            "limits": {"nvidia.com/gpu": "2"},
        }
        assert [(told, kind) for told, kind, _ in here.seen.told] == [("answered", "Pod")]


async def test_without_its_priority_class_no_request_pod_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as here:
        monkeypatch.setattr(here.seen, "priority_classes", frozenset)
        outcome = await here.apply(ACTION)
        assert (outcome.result, outcome.reason) == (Result.REFUSED, "PriorityClassMissing")
        assert here.stored(PODS, "ctr-node-0") is None


async def test_a_name_in_use_is_a_conflict(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.apply(ACTION)
        assert (await here.apply(ACTION)).result is Result.CONFLICT


async def test_a_request_pod_is_deleted_at_once_and_no_other_pod_of_its_name(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.apply(ACTION)
        made = here.stored(PODS, "ctr-node-0")
        assert made is not None
        withdrawal = WithdrawNodeRequest(KEY, UID, "ctr-node-0", "another")
        assert (await here.apply(withdrawal)).result is Result.CONFLICT
        withdrawal = replace(withdrawal, pod_uid=made["metadata"]["uid"])
        assert (await here.apply(withdrawal)).result is Result.DONE
        assert here.stored(PODS, "ctr-node-0") is None
        assert (await here.apply(withdrawal)).result is Result.UNCHANGED


async def test_a_trainer_that_may_be_evicted_says_so_to_the_autoscaler(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        await here.apply(create(index=3))
        await here.apply(replace(create(index=4), may_evict=True))
        for name, value in (("ctr-trainer-3", None), ("ctr-trainer-4", "true")):
            made = here.stored(PODS, name)
            assert made is not None
            assert made["metadata"]["annotations"].get("cluster-autoscaler.kubernetes.io/safe-to-evict") == value
