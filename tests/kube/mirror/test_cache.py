"""The whole cluster in memory: complete, up to date, and shown only after edl's own writes."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from edl.errors import NotSyncedError
from edl.kube.mirror.mirrored import Mirrored
from edl.kube.mirror.read_once import look
from edl.kube.translate.books.pod_book import STILL_COUNTED_S
from edl.kube.translate.decoders import PODS as PODS_DECODER
from edl.kube.translate.decoders import Quarantined
from edl.model.names import JobKey
from edl.model.resources import POD_OBJECTS
from tests.kube.mirror.mirrored_cluster import (
    CLASSES,
    JOBS,
    NODES,
    OURS,
    PODS,
    QUEUES,
    QUOTAS,
    World,
    job,
    pod,
    world,
)
from tests.worlds.fake_api import FakeApi, connected, eventually, refusal

KEY = ("ads", "ctr-trainer-0")


async def test_a_snapshot_waits_until_everything_is_listed() -> None:
    api = FakeApi()
    api.put(NODES, {"metadata": {"name": "n1"}})
    gc.unfreeze()  # what other tests, or pytest, have frozen
    async with world(api) as w:
        with pytest.raises(NotSyncedError, match="is still listing"):
            w.cache.snapshot(0.0)
        await w.settled()
        await eventually(lambda: gc.get_freeze_count() > 0)
        listed = gc.get_freeze_count()
        assert [n.name for n in w.cache.snapshot(7.0).nodes] == ["n1"]
        assert w.cache.snapshot(7.0).observed_at_s == 7.0
        assert gc.get_freeze_count() > listed, "the values of the first snapshot remain for long, too"


async def test_there_is_no_snapshot_while_a_collection_cannot_be_watched() -> None:
    api = FakeApi()
    api.faults += [refusal(403, "Forbidden", "nodes is forbidden")] * 100
    async with world(api) as w:
        await eventually(lambda: w.clock.slept)
        with pytest.raises(NotSyncedError, match="forbidden"):
            w.cache.snapshot(0.0)
        w.api.faults.clear()
        await w.settled()
        w.cache.snapshot(0.0)


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (403, "Forbidden")])
async def test_a_cluster_without_readable_queues_has_snapshots(code: int, reason: str) -> None:
    api = FakeApi()
    api.broken[QUEUES] = refusal(code, reason, "no queues here")
    async with world(api) as w:
        await eventually(lambda: w.cache.is_synced and not w.cache.unready())
        assert w.cache.snapshot(0.0).queues == ()
        assert w.cache.queues_problem() == f"queues cannot be read ({code}): no quota is counted"
        assert w.cache.left_out() == []  # a cluster may do without queues
        async with connected(api) as session:
            found, left_out = await look(session, w.clock)
        assert (found.queues, left_out) == ((), [w.cache.queues_problem()])
        del api.broken[QUEUES]
        w.api.put(QUEUES, {"metadata": {"name": "blue"}, "spec": {"nominalQuota": {"cpu": 1}}})
        await eventually(lambda: [q.name for q in w.cache.snapshot(0.0).queues] == ["blue"])


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (403, "Forbidden")])
async def test_known_queues_stay_and_are_reported_once_they_can_no_longer_be_read(code: int, reason: str) -> None:
    api = FakeApi()
    api.put(QUEUES, {"metadata": {"name": "blue"}, "spec": {"nominalQuota": {"cpu": 1}}})
    async with world(api) as w:
        await eventually(lambda: w.cache.is_synced and not w.cache.unready())
        assert (w.cache.queues_problem(), w.cache.left_out()) == ("", [])
        api.broken[QUEUES] = refusal(code, reason, "no queues here")
        api.end_watches()
        await eventually(w.cache.queues_problem)
        assert w.cache.queues_problem() == f"queues cannot be read ({code}): the last known quotas count"
        assert w.cache.left_out() == [w.cache.queues_problem()]
        assert [queue.name for queue in w.cache.snapshot(0.0).queues] == ["blue"]
        del api.broken[QUEUES]
        await eventually(lambda: not w.cache.queues_problem())
        assert w.cache.left_out() == []


async def test_a_failed_first_list_of_queues_holds_the_decision_back() -> None:
    """Without the quotas of queues that exist, jobs would grow beyond them."""
    api = FakeApi()
    api.put(QUEUES, {"metadata": {"name": "blue"}, "spec": {"nominalQuota": {"cpu": 1}}})
    api.broken[QUEUES] = refusal(500, "InternalError", "etcd has no leader")
    async with world(api) as w:
        await eventually(lambda: w.cache.is_synced and "etcd has no leader" in w.cache.unready()[0])
        with pytest.raises(NotSyncedError, match="etcd has no leader"):
            w.cache.snapshot(0.0)
        del api.broken[QUEUES]
        await eventually(lambda: not w.cache.unready())
        assert [queue.name for queue in w.cache.snapshot(0.0).queues] == ["blue"]


async def test_finished_pods_of_jobs_are_kept_and_finished_foreign_pods_are_not() -> None:
    async with world() as w:
        await w.settled()
        w.api.put(JOBS, job())
        for name, labels in (("ctr-trainer-0", OURS), ("web", {})):
            w.api.put(PODS, pod(name, labels=labels))
        await eventually(lambda: w.own() == ["ctr-trainer-0"] and w.foreign() == ["web"])
        for name, labels in (("ctr-trainer-0", OURS), ("web", {})):
            w.api.put(PODS, {**pod(name, labels=labels), "status": {"phase": "Failed"}})
        await eventually(lambda: w.foreign() == [])
        assert w.own() == ["ctr-trainer-0"]


def is_moved(here: Mapping[Any, Any], there: Mapping[Any, Any]) -> bool:
    """True if that pod is here alone."""
    return list(here) == [KEY] and not there


async def test_a_pod_that_gains_or_loses_the_job_label_changes_its_watch_and_stays_with_its_job() -> None:
    async with world() as w:
        await w.settled()
        own, others = (reflector.store.objects for reflector in w.cache._watched.pods)
        w.api.put(JOBS, job())
        for labels, here, there in (({}, others, own), (OURS, own, others), ({}, others, own)):
            w.api.put(PODS, pod("ctr-trainer-0", labels=labels))
            await eventually(partial(is_moved, here, there))
            assert (w.own(), w.foreign()) == ([KEY[1]], [])


async def test_a_pod_in_both_watches_counts_once_by_its_last_arrival() -> None:
    async with world() as w:
        await w.settled()
        w.api.put(JOBS, job())
        w.api.put(PODS, pod("ctr-trainer-0", labels=OURS))
        await eventually(lambda: w.own() == ["ctr-trainer-0"])
        own, others = (reflector.store for reflector in w.cache._watched.pods)
        for store, version, labels in ((others, "900", {}), (own, "901", OURS), (others, "902", {})):
            moved = PODS_DECODER.from_dict(pod("ctr-trainer-0", labels=labels, uid="u", resourceVersion=version))
            assert not isinstance(moved, Quarantined)
            store.add(moved)
            assert [p.metadata.resource_version for p in w.cache.pods() if p.metadata] == [version]


async def test_jobs_are_watched_in_the_given_namespaces_only() -> None:
    api = FakeApi()
    for namespace in ("ads", "other"):
        stored = {**job(), "metadata": {"name": "ctr", "namespace": namespace}}
        api.put(f"/apis/paddlepaddle.org/v1/namespaces/{namespace}/trainingjobs", stored)
    async with world(api, mirrored=Mirrored(["ads"])) as w:
        await w.settled()
        assert [j.key for j in w.cache.snapshot(0.0).jobs] == [("ads", "ctr")]
        assert w.cache.job_body(JobKey("ads", "ctr")) is not None
        assert w.cache.job_body(JobKey("other", "ctr")) is None


async def test_waiting_ends_after_a_change_and_the_debounce_time() -> None:
    async with world() as w:
        await w.settled()
        while await w.cache.wait_for_change(0.0, debounce_s=0.0):
            pass
        w.clock.slept.clear()
        w.api.put(NODES, {"metadata": {"name": "n1"}})
        await eventually(lambda: w.cache._watched.nodes.store.objects)
        assert await w.cache.wait_for_change(5.0, debounce_s=0.5) is True
        assert w.clock.slept[-1] == 0.5
        assert await w.cache.wait_for_change(5.0) is False


async def test_the_namespaces_of_urgent_changes_are_noted_once_and_others_are_not() -> None:
    async with world() as w:
        await w.settled()
        w.cache.urgent_changes()
        w.api.put(JOBS, job())
        await eventually(lambda: w.cache.urgent_changes() == {"ads"})
        w.api.put(PODS, pod("ctr-trainer-7", labels=OURS))
        w.api.put(JOBS, {**job(), "status": {"phase": "Running"}})
        await eventually(lambda: ("ads", "ctr-trainer-7") in w.cache._watched.pods[0].store.objects)
        await eventually(lambda: stored_status(w) == {"phase": "Running"})
        assert w.cache.urgent_changes() == frozenset()
        w.api.put(NODES, {"metadata": {"name": "n9"}})
        await eventually(lambda: w.cache.urgent_changes() == {""})


async def test_unreadable_objects_are_reported_by_name() -> None:
    api = FakeApi()
    api.put(NODES, {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "lots"}}})
    api.put(NODES, {"metadata": {"name": "n2"}, "status": 5})
    async with world(api) as w:
        await w.settled()
        assert w.cache.snapshot(0.0).nodes == ()
        assert sorted(line.split(" is ")[0] for line in w.cache.left_out()) == ["Node n1", "Node n2"]
        assert w.cache.snapshot(0.0).unread_nodes == ("n1", "n2"), "undecodable or not translatable"


async def test_the_time_since_the_last_contact_is_measured() -> None:
    async with world() as w:
        assert w.cache.silence_s() == float("inf")
        await w.settled()
        w.clock.time_s += 12
        assert w.cache.silence_s() == 12


async def test_priority_classes_and_the_resource_log_line_are_available() -> None:
    api = FakeApi()
    api.put(CLASSES, {"metadata": {"name": "edl-core"}, "value": -1})
    api.put(NODES, {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "2", "memory": "1M"}}})
    api.put(PODS, pod("web"))
    async with world(api) as w:
        await w.settled()
        assert w.cache.priority_classes() == {"edl-core"}
        missing = w.cache.snapshot(0.0).missing_priority_classes
        assert missing == ("edl-best-effort", "edl-best-effort-surplus", "edl-surplus", "edl-training")
        assert w.cache.resource_log_line().startswith(
            "{NodeCount:1 GPURequest:0 GPULimit:0 GPUTotal:0 CPURequestMilli:1000 "
        )


@pytest.mark.parametrize(("changed", "wakes"), [("dataset", False), ("throughput", False), ("phase", True)])
async def test_a_change_of_progress_alone_is_stored_and_is_no_change_to_wait_for(changed: str, wakes: bool) -> None:
    async with world() as here:
        await here.settled()
        first = {"phase": "Running", "dataset": {"epoch": 0, "done": 1}}
        here.api.put(JOBS, {**job(), "status": first})
        await eventually(lambda: stored_status(here) == first)  # else the wait may end for the first lists
        assert await here.cache.wait_for_change(60.0)
        later = {"phase": "Running", "dataset": {"epoch": 0, "done": 1}, changed: {"epoch": 0, "done": 2}}
        here.api.put(JOBS, {**job(), "status": later})
        await eventually(lambda: stored_status(here) == later)
        assert await here.cache.wait_for_change(0.01) is wakes


def stored_status(here: World) -> Any:
    return (here.cache.job_body(JobKey("ads", "ctr")) or {}).get("status")


async def test_a_new_leader_decides_on_lists_that_began_after_it_took_over() -> None:
    api = FakeApi()
    api.put(JOBS, job())
    for name in ("ctr-trainer-0", "ctr-trainer-1"):
        api.put(PODS, pod(name, labels=OURS))
    async with world(api) as w:
        await w.settled()
        assert w.own() == ["ctr-trainer-0", "ctr-trainer-1"]
        w.api.remove(PODS, "ctr-trainer-1", "ads", silently=True)
        assert w.own() == ["ctr-trainer-0", "ctr-trainer-1"], "the watch has not shown the deletion"
        w.cache.list_anew()
        with pytest.raises(NotSyncedError, match="again before it decides"):
            w.cache.snapshot(0.0)
        await eventually(lambda: not w.cache.unready())
        assert w.own() == ["ctr-trainer-0"]


async def test_a_snapshot_of_an_unchanged_cluster_is_the_last_one_at_another_time() -> None:
    api = FakeApi()
    api.put(NODES, {"metadata": {"name": "n1"}})
    api.put(PODS, pod("web"))
    async with world(api) as w:
        await w.settled()
        first = w.cache.snapshot(1.0)
        second = w.cache.snapshot(2.0)
        assert second.observed_at_s == 2.0
        assert second.pods is first.pods
        w.api.put(NODES, {"metadata": {"name": "n2"}})
        await eventually(lambda: len(w.cache.snapshot(3.0).nodes) == 2)
        assert w.cache.snapshot(3.0).pods[0] is first.pods[0]


async def test_an_object_that_becomes_unreadable_leaves_the_snapshot() -> None:
    api = FakeApi()
    api.put(PODS, pod("web"))
    async with world(api) as w:
        await w.settled()
        assert w.foreign() == ["web"]
        w.api.put(PODS, {**pod("web"), "status": 5})
        await eventually(lambda: w.foreign() == [])
        w.api.put(PODS, pod("web"))
        await eventually(lambda: w.foreign() == ["web"])


async def test_pods_that_are_just_gone_count_as_such_for_their_time_although_nothing_else_changes() -> None:
    """A quota may count a pod for some seconds after its end; then what it counts are pods that nobody lists."""
    api = FakeApi()
    hard, used = {"count/pods": "6"}, {"count/pods": "3"}
    api.put(
        QUOTAS,
        {"metadata": {"name": "objects", "namespace": "ads"}, "spec": {"hard": hard}, "status": {"used": used}},
    )
    api.put(JOBS, job())
    for index in range(3):
        api.put(PODS, pod(f"ctr-trainer-{index}", labels=OURS))
    async with world(api) as w:
        await w.settled()

        def unlisted(now_s: float) -> int:
            (quota,) = w.cache.snapshot(now_s).resource_quotas
            return dict(quota.others)[POD_OBJECTS]

        assert unlisted(1000.0) == 0
        for index in range(3):
            api.remove(PODS, f"ctr-trainer-{index}", "ads")
        await eventually(lambda: not w.own(1001.0))
        assert unlisted(1001.0 + STILL_COUNTED_S - 0.5) == 0
        assert unlisted(1001.0 + STILL_COUNTED_S) == 3
        assert w.cache.snapshot(2000.0).resource_quotas is w.cache.snapshot(3000.0).resource_quotas
