"""Bugs in what a controller leaves out at rest, and in what a new leader must not leave out."""

from __future__ import annotations

from typing import Any

from edl.kube.translate.pods import KnownPod
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import ScalePlan
from tests.planted import Right, bug, targets

KEPT = "controller/test_kept_plan.py"
BOOK = "kube/translate/books/test_pod_book.py"
CACHE = "kube/mirror/test_cache.py"
SLICES = "kube/mirror/test_cache_slices.py"


@bug(
    "a kept plan outlives the waits that it was made for",
    at=targets.NEXT_TIMER,
    caught_by=f"{KEPT}::test_a_timer_ends_when_the_wait_is_over",
)
def no_timers(_: Right) -> Right:
    return lambda _self, view, *_: view.observed_at_s + 60.0


@bug(
    "a plan is kept although the cluster has changed",
    at=targets.PLAN_FOR,
    caught_by=f"{KEPT}::test_a_change_needs_a_new_decision",
)
def kept_after_a_change(_: Right) -> Right:
    return lambda self, _view: self._plan


@bug(
    "a decision is made anew in every plan of a quiet cluster",
    at=targets.PLAN_FOR,
    caught_by="controller/loop/test_loop_quiet.py::test_a_quiet_cluster_is_decided_about_once_a_minute_and_a_change_at_once",
)
def never_kept(_: Right) -> Right:
    return lambda _self, _view: None


@bug(
    "a plan that the deadline cut short is kept",
    at=targets.KEEP_PLAN,
    caught_by=f"{KEPT}::test_a_plan_that_could_be_better_is_not_kept",
)
def short_plan_kept(_: Right) -> Right:
    def wrong(self: Any, view: ClusterSnapshot, plan: ScalePlan) -> None:
        self._view, self._plan, self._due_s = view, plan, float("inf")

    return wrong


@bug(
    "a pod that has changed stays in its former job",
    at=targets.TAKE_OUT_POD,
    caught_by=f"{BOOK}::test_changes_add_up_to_the_whole_cluster",
)
def pod_in_two_places(_: Right) -> Right:
    def wrong(self: Any, key: tuple[str, str], known: KnownPod) -> None:
        del self, key, known

    return wrong


@bug(
    "a node keeps free what the pods of a DaemonSet have taken",
    at=targets.NODES_OF_BOOK,
    caught_by=f"{BOOK}::test_changes_add_up_to_the_whole_cluster",
)
def reserved_for_ever(right: Right) -> Right:
    return lambda self, daemons, pods, _touched, now_s: right(self, daemons, pods, (), now_s)


@bug(
    "a value that has changed is shown as it was",
    at=targets.PLACE_VALUE,
    caught_by=f"{BOOK}::test_changes_add_up_to_the_whole_cluster",
)
def old_value_shown(right: Right) -> Right:
    def wrong(self: Any, key: Any) -> None:
        if key not in self._keys or key not in self._values:
            right(self, key)

    return wrong


@bug(
    "a list of thousands of pods is translated in one go",
    at=targets.TRANSLATE_SOME,
    caught_by=f"{SLICES}::test_many_pods_are_translated_while_the_event_loop_goes_on",
)
def all_pods_at_once(right: Right) -> Right:
    return lambda self, now_s, _at_most: right(self, now_s, 1_000_000)


@bug(
    "a new leader decides on what its watches have shown",
    at=targets.LIST_ANEW,
    caught_by=f"{CACHE}::test_a_new_leader_decides_on_lists_that_began_after_it_took_over",
)
def no_new_lists(_: Right) -> Right:
    return lambda _self: None
