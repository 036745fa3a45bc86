"""Each version of a pod is read once, and a new version is read anew."""

from __future__ import annotations

from edl.sandbox.scheduler.view import PodViews
from tests.sandbox.scheduler.builders import make_pod


def test_a_version_is_read_once_and_the_next_one_anew() -> None:
    read = PodViews()
    pod = make_pod("a", "1")
    pod["metadata"]["resourceVersion"] = "1"
    first = read(pod)
    assert first is not None
    assert read(pod) is first
    changed = make_pod("a", "2")
    changed["metadata"] |= {"uid": pod["metadata"]["uid"], "resourceVersion": "2"}
    second = read(changed)
    assert second is not None
    assert second.request["cpu"] == 2 * first.request["cpu"]


def test_an_amount_that_nobody_can_read_makes_no_view() -> None:
    pod = make_pod("a", "much")
    assert PodViews()(pod) is None


def test_a_pod_that_is_gone_is_forgotten() -> None:
    read = PodViews()
    pod = make_pod("a", "1")
    pod["metadata"]["resourceVersion"] = "1"
    first = read(pod)
    read.keep(set())
    assert read(pod) is not first
