from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from aiohttp import web

from edl.kube.mirror.reflector import ReflectorPace, Resource
from edl.kube.mirror.store import version_of
from tests.kube.mirror.mirrored_pods import PATH, mirrored, pod
from tests.worlds.fake_api import FakeApi, eventually, refusal, reset


async def test_lists_in_pages_then_follows_the_watch() -> None:
    api = FakeApi()
    for i in range(7):
        api.put(PATH, pod(f"p{i}"))
    async with mirrored(api, ReflectorPace(page_items=3)) as mirror:
        await mirror.shows(*(f"p{i}" for i in range(7)))
        assert [q.get("limit") for _, _, q in api.requests if "watch" not in q] == ["3", "3", "3"]
        api.put(PATH, pod("new"))
        api.remove(PATH, "p0", "a")
        api.put(PATH, pod("p1", phase="Running"))
        await mirror.shows("new", *(f"p{i}" for i in range(1, 7)))
        changed = mirror.store.objects["a", "p1"].status
        assert changed is not None
        assert changed.phase == "Running"


async def test_a_watch_resumes_from_the_last_version() -> None:
    api = FakeApi()
    first = api.put(PATH, pod("p0"))
    async with mirrored(api) as mirror:
        await mirror.shows("p0")
        await eventually(lambda: api.count("watch") == 1)
        later = api.put(PATH, pod("p1"))
        await mirror.shows("p0", "p1")
        api.end_watches()
        await eventually(lambda: api.count("watch") == 2)
        watches = [q["resourceVersion"] for _, _, q in api.requests if "watch" in q]
    assert watches == [first["metadata"]["resourceVersion"], later["metadata"]["resourceVersion"]]
    assert api.count("list") == 1


async def test_a_watch_that_was_cut_off_resumes_if_the_history_went_on() -> None:
    api = FakeApi()
    api.put(PATH, pod("p0"))
    async with mirrored(api) as mirror:
        await mirror.shows("p0")
        await eventually(lambda: api.count("watch") == 1)
        api.faults += [reset, reset]
        api.put(PATH, pod("p1"))
        await mirror.shows("p0", "p1")
        api.end_watches()
        await eventually(lambda: api.count("watch") >= 3 and not api.faults)
        api.put(PATH, pod("p2"))
        await mirror.shows("p0", "p1", "p2")
    assert {q["limit"] for _, _, q in api.requests[1:] if "watch" not in q} == {"1"}


async def test_after_a_restore_of_etcd_it_lists_again_though_the_watch_could_resume() -> None:
    """The watch would show nothing before the new history has passed the version from which it resumes."""
    api = FakeApi()
    api.put(PATH, pod("kept"))
    async with mirrored(api) as mirror:
        await mirror.shows("kept")
        await eventually(lambda: api.count("watch") == 1)
        for number in range(9):
            api.put(PATH, pod("lost", phase=str(number)))
        await mirror.shows("kept", "lost")
        api.history.clear()
        del api.objects[PATH]["a", "lost"]
        api.revision -= 9
        api.faults += [reset, reset]  # the client sends a request once more by itself
        api.end_watches()
        api.put(PATH, pod("new"))
        await mirror.shows("kept", "new")
        api.put(PATH, pod("kept", phase="Running"))
        await eventually(lambda: version_of(mirror.store.objects["a", "kept"]) == str(api.revision))


async def test_a_bookmark_updates_the_version_to_resume_from() -> None:
    api = FakeApi()
    api.put(PATH, pod("p0"))
    api.extra_lines.append(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"150"}}}')
    async with mirrored(api) as mirror:
        await mirror.shows("p0")
        await eventually(lambda: not api.extra_lines)
        api.end_watches()
        await eventually(lambda: api.count("watch") == 2)
    assert [q["resourceVersion"] for _, _, q in api.requests if "watch" in q][1] == "150"


async def test_after_a_410_it_lists_again_and_removes_deleted_objects() -> None:
    api = FakeApi()
    for name in ("stays", "goes"):
        api.put(PATH, pod(name))
    async with mirrored(api) as mirror:
        await mirror.shows("stays", "goes")
        api.remove(PATH, "goes", "a", silently=True)
        api.put(PATH, pod("comes"))
        api.compact()
        api.end_watches()
        await mirror.shows("stays", "comes")


async def test_after_a_410_its_objects_are_out_of_date_until_the_list_is_complete() -> None:
    api, gate = FakeApi(), asyncio.Event()
    api.put(PATH, pod("goes"))
    async with mirrored(api) as mirror:
        await mirror.shows("goes")
        await eventually(lambda: api.count("watch") == 1)
        api.remove(PATH, "goes", "a", silently=True)
        api.compact()
        lists = api.count("list")
        api.delayed[PATH] = gate
        api.end_watches()
        await eventually(lambda: api.count("list") > lists)
        assert "Expired" in mirror.reflector.problem or "410" in mirror.reflector.problem
        gate.set()
        await mirror.shows()
        await eventually(lambda: not mirror.reflector.problem)


@pytest.mark.parametrize("bookmark", [b"[]", b"7", b'{"metadata":[]}'])
async def test_a_bookmark_that_is_none_ends_no_mirror(bookmark: bytes) -> None:
    api = FakeApi()
    api.put(PATH, pod("p0"))
    api.extra_lines.append(b'{"type":"BOOKMARK","object":' + bookmark + b"}")
    async with mirrored(api) as mirror:
        await mirror.shows("p0")
        await eventually(lambda: not api.extra_lines)
        api.put(PATH, pod("p1"))
        await eventually(lambda: mirror.task.done() or "p1" in mirror.names())
        assert not mirror.task.done()


async def test_after_a_410_between_pages_it_lists_again_without_pages() -> None:
    api = FakeApi()
    for i in range(5):
        api.put(PATH, pod(f"p{i}"))
    api.faults += [None, refusal(410, "Expired")]
    async with mirrored(api, ReflectorPace(page_items=2)) as mirror:
        await mirror.shows(*(f"p{i}" for i in range(5)))
    assert [q.get("limit") for _, _, q in api.requests if "watch" not in q] == ["2", "2", None]


async def test_repeated_410_responses_cause_no_tight_loop() -> None:
    api = FakeApi()
    api.faults += [refusal(410, "Expired") for _ in range(5)]
    async with mirrored(api) as mirror:
        await mirror.shows()
        assert len(mirror.clock.slept) >= 3


async def test_repeated_410_events_of_a_watch_cause_no_tight_loop() -> None:
    api = FakeApi()
    async with mirrored(api) as mirror:
        api.compacted = 10**9
        await eventually(lambda: len(mirror.clock.slept) >= 5 or api.count("list") > 50)
        lists = api.count("list")
        assert sum(mirror.clock.slept[:5]) >= 0.25 + 0.5 + 1 + 2 + 4
    assert lists <= 2 + len(mirror.clock.slept)


async def test_a_long_silent_watch_resets_the_failures_before_it() -> None:
    api = FakeApi()

    async def a_second_later(request: web.Request) -> web.StreamResponse:
        mirror.clock.time_s += 1
        return await api._watch(request, dict(request.query))

    api.faults += [*[reset] * 12, None, a_second_later]  # None is the list
    async with mirrored(api) as mirror:
        await mirror.shows()
        await eventually(lambda: api.count("watch") and mirror.reflector.last_contact_s == mirror.clock.time_s)
        assert mirror.clock.slept[-1] > 1
        mirror.clock.time_s += 50
        before = len(mirror.clock.slept)
        api.extra_lines.append(b"cut off in the mid")
        api.put(PATH, pod("p0"))
        await mirror.shows("p0")
        assert mirror.clock.slept[before] <= 0.5, "the pause of a first failure"


async def test_a_watch_that_is_silent_too_long_is_opened_again() -> None:
    api = FakeApi()
    api.mute = True
    async with mirrored(api, ReflectorPace(silence_s=0.05)) as mirror:
        await eventually(lambda: api.count("watch") >= 1)
        api.put(PATH, pod("p0"))
        await eventually(lambda: "did not answer in time" in mirror.reflector.problem)
        api.mute = False
        await mirror.shows("p0")
        await eventually(lambda: not mirror.reflector.problem)


async def test_the_server_ends_a_watch_before_the_read_timeout() -> None:
    api = FakeApi()
    async with mirrored(api) as mirror:
        await mirror.shows()
        await eventually(lambda: api.count("watch") == 1)
    (watch,) = (q for _, _, q in api.requests if "watch" in q)
    assert 40 <= int(watch["timeoutSeconds"]) <= 60 < ReflectorPace().silence_s <= 70
    assert watch["allowWatchBookmarks"] == "true"


@pytest.mark.parametrize("fault", [reset, refusal(500), refusal(503), refusal(403, "Forbidden"), refusal(404)])
async def test_after_any_error_it_retries_and_shows_the_problem_until_then(
    fault: Callable[[web.Request], web.Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = FakeApi()
    api.put(PATH, pod("p0"))
    api.faults += [fault] * 3
    problems: list[str] = []
    async with mirrored(api) as mirror:
        original = mirror.clock.sleep

        async def sleep(duration_s: float) -> None:
            problems.append(mirror.reflector.problem)
            await original(duration_s)

        monkeypatch.setattr(mirror.clock, "sleep", sleep)
        await mirror.shows("p0")
        await eventually(lambda: not mirror.reflector.problem)
    assert problems
    assert all(PATH in problem for problem in problems)


async def test_pauses_grow_to_thirty_seconds_with_jitter() -> None:
    api = FakeApi()
    api.faults += [refusal(500)] * 12
    async with mirrored(api) as mirror:
        await mirror.shows()
        slept = mirror.clock.slept[:12]
    assert slept[0] <= 0.5
    assert all(later <= 2 * 0.5 * 2**i for i, later in enumerate(slept))
    assert 15 <= max(slept) <= 30
    assert len(set(slept)) == len(slept)


async def test_it_waits_as_long_as_a_429_requests() -> None:
    api = FakeApi()
    api.faults.append(refusal(429, "TooManyRequests", **{"Retry-After": "20"}))
    async with mirrored(api) as mirror:
        await mirror.shows()
        assert 20 <= mirror.clock.slept[0] <= 22


async def test_request_list_does_not_wait_for_the_watch_to_end() -> None:
    api = FakeApi()
    api.put(PATH, pod("p0"))
    async with mirrored(api) as mirror:
        await mirror.shows("p0")
        await eventually(lambda: api.count("watch") == 1)
        api.remove(PATH, "p0", "a", silently=True)
        mirror.reflector.request_list()
        await mirror.shows()
        await eventually(lambda: mirror.reflector.lists_done == 2)


async def test_request_list_works_while_a_watch_is_being_opened() -> None:
    api, gate = FakeApi(), asyncio.Event()
    api.put(PATH, pod("p0"))

    async def late(_: web.Request) -> web.Response:
        await gate.wait()
        return web.Response(status=503)

    api.faults.extend([None, late])
    async with mirrored(api) as mirror:
        await eventually(lambda: api.count("watch") == 1)
        api.remove(PATH, "p0", "a", silently=True)
        mirror.reflector.request_list()
        await mirror.shows()
        gate.set()


async def test_request_list_works_during_a_list() -> None:
    api, gate = FakeApi(), asyncio.Event()
    api.put(PATH, pod("p0"))

    async def early(_: web.Request) -> web.Response:
        await gate.wait()
        old = {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": [pod("p0")]}
        return web.json_response(old)

    api.faults.append(early)
    async with mirrored(api) as mirror:
        await eventually(lambda: api.count("list") == 1)
        api.remove(PATH, "p0", "a", silently=True)
        mirror.reflector.request_list()
        gate.set()
        await mirror.shows()


async def test_it_lists_again_after_the_relist_time() -> None:
    api = FakeApi()
    api.put(PATH, pod("p0"))
    async with mirrored(api, ReflectorPace(relist_s=100)) as mirror:
        await mirror.shows("p0")
        await eventually(lambda: api.count("watch") == 1)
        api.remove(PATH, "p0", "a", silently=True)
        mirror.clock.time_s += 101
        api.end_watches()
        await mirror.shows()


async def test_watches_that_end_at_once_cause_no_tight_loop() -> None:
    api = FakeApi()
    async with mirrored(api) as mirror:
        await mirror.shows()
        for _ in range(5):
            watches = api.count("watch")
            api.end_watches()
            await eventually(partial(_has_watched_more_than, api, watches))
        assert len(mirror.clock.slept) >= 4
        assert mirror.reflector.problem == ""


async def test_selectors_are_sent_with_the_list_and_the_watch() -> None:
    api = FakeApi()
    resource = Resource(PATH, label_selector="!x", field_selector="status.phase!=Failed")
    async with mirrored(api, resource=resource) as mirror:
        await mirror.shows()
        await eventually(lambda: api.count("watch") == 1)
    assert all(
        q["labelSelector"] == "!x" and q["fieldSelector"] == "status.phase!=Failed" for _, _, q in api.requests
    )


def _has_watched_more_than(api: FakeApi, watches: int) -> bool:
    return api.count("watch") > watches
