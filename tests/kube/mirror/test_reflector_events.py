"""A watch delivers events twice, late and in any order, or what cannot be read; the mirror ends with the truth."""

from __future__ import annotations

from edl.kube.mirror.store import version_of
from edl.kube.translate.decoders import TRAINING_JOBS
from edl.kube.translate.objects import JobObject
from tests.kube.mirror.mirrored_pods import PATH, line, mirrored, pod
from tests.worlds.fake_api import FakeApi, eventually


async def test_a_duplicate_event_is_no_change() -> None:
    api = FakeApi()
    api.duplicate_events = True
    async with mirrored(api) as mirror:
        await mirror.shows()
        before = len(mirror.changes)
        api.put(PATH, pod("p0"))
        api.put(PATH, pod("p0", phase="Running"))
        api.put(PATH, pod("p1"))
        await mirror.shows("p0", "p1")
        assert len(mirror.changes) == before + 3


async def test_a_repeated_older_event_does_not_revert_the_object() -> None:
    api = FakeApi()
    old = api.put(PATH, pod("p0", phase="Pending"))
    async with mirrored(api) as mirror:
        await mirror.shows("p0")
        await eventually(lambda: api.count("watch") == 1)
        middle = api.put(PATH, pod("p0", phase="Running"))
        new = api.put(PATH, pod("p0", phase="Failed"))
        await eventually(lambda: version_of(mirror.store.objects["a", "p0"]) == new["metadata"]["resourceVersion"])
        api.extra_lines += [line("MODIFIED", middle), line("ADDED", pod("last"))]
        api.end_watches()
        await mirror.shows("p0", "last")
        status = mirror.store.objects["a", "p0"].status
        assert status is not None
        assert status.phase == "Failed"
    assert old["metadata"]["uid"] == new["metadata"]["uid"]


async def test_a_late_event_does_not_restore_a_deleted_object() -> None:
    api = FakeApi()
    old = api.put(PATH, pod("p0"))
    async with mirrored(api) as mirror:
        await mirror.shows("p0")
        await eventually(lambda: api.count("watch") == 1)
        api.remove(PATH, "p0", "a")
        await mirror.shows()
        late = {**old, "metadata": {**old["metadata"], "resourceVersion": "77"}}
        api.extra_lines += [line("MODIFIED", late), line("ADDED", pod("last"))]
        api.end_watches()
        await mirror.shows("last")


async def test_a_late_deletion_does_not_remove_a_new_object_of_the_same_name() -> None:
    api = FakeApi()
    old = api.put(PATH, pod("p0"))
    async with mirrored(api) as mirror:
        await mirror.shows("p0")
        new = {**pod("p0"), "metadata": {**pod("p0")["metadata"], "uid": "second", "resourceVersion": "200"}}
        api.extra_lines += [line("ADDED", new), line("DELETED", old), line("ADDED", pod("last"))]
        api.end_watches()
        await mirror.shows("p0", "last")
        assert mirror.store.objects["a", "p0"].metadata is not None
        assert mirror.store.objects["a", "p0"].metadata.uid == "second"


async def test_a_heartbeat_is_no_change_and_keeps_the_object() -> None:
    api = FakeApi()
    api.put(PATH, pod("p0"))
    async with mirrored(api) as mirror:
        await mirror.shows("p0")
        known, woken = mirror.store.objects["a", "p0"], len(mirror.changes)
        beat = api.put(PATH, pod("p0", hostIP="a field that no decision reads"))
        await eventually(lambda: version_of(known) == beat["metadata"]["resourceVersion"])
        assert mirror.store.objects["a", "p0"] is known
        assert len(mirror.changes) == woken


async def test_an_unreadable_object_is_quarantined_under_its_name_and_the_others_are_read() -> None:
    api = FakeApi()
    api.put(PATH, {**pod("bad"), "spec": {"containers": "x"}})
    api.put(PATH, pod("p0"))
    async with mirrored(api) as mirror:
        await mirror.shows("p0")
        assert [str(q) for q in mirror.store.quarantined.values()] == [
            "Pod a/bad is left out: Expected `array | null`, got `str` - at `$.spec.containers`"
        ]
        api.put(PATH, {**pod("p0"), "spec": 5})
        await eventually(lambda: ("a", "p0") in mirror.store.quarantined)
        api.put(PATH, pod("p0"))
        api.remove(PATH, "bad", "a")
        await eventually(lambda: mirror.names() == ["p0"] and not mirror.store.quarantined)


async def test_a_line_that_is_not_an_event_causes_a_new_list() -> None:
    api = FakeApi()
    api.extra_lines.append(b"<html>a proxy had an idea</html>")
    async with mirrored(api) as mirror:
        await mirror.shows()
        await eventually(lambda: api.count("list") == 2 and not mirror.reflector.problem)


async def test_a_job_keeps_its_whole_body_but_no_managed_fields() -> None:
    job = TRAINING_JOBS.from_dict({"metadata": {"name": "j", "managedFields": [1]}, "spec": {"a": [1]}})
    assert isinstance(job, JobObject)
    assert job.body == {"metadata": {"name": "j"}, "spec": {"a": [1]}}
