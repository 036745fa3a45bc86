"""Answers of kube-scheduler compared with what edl would have said just before."""

from __future__ import annotations

from typing import Any

import pytest

from edl.shadow.answers import MOST_DISAGREEMENTS, SETTLES_S, Answers
from edl.shadow.document import Agreement, Predicate, PredicateRow
from tests.shadow.objects import FULL, Times, node, pod


class Scene:
    """Two nodes of 8 cores, and what happens on them."""

    def __init__(self, *nodes: Any) -> None:
        self.times, self.ended = Times(), list[tuple[str, bool]]()
        self.answers = Answers(
            self.times.now_s, self.times.monotonic_s, on_end=lambda uid, bound: self.ended.append((uid, bound))
        )
        self.answers.book.fill(nodes or (node("n1"), node("n2")), ())

    def bind(self, name: str, cpu: str, on: str, **more: Any) -> None:
        self.answers.note(None, pod(name, cpu, **more))
        self.answers.note(pod(name, cpu, **more), pod(name, cpu, on=on, **more))

    def refuse(self, name: str, cpu: str, message: str = FULL, **more: Any) -> None:
        self.answers.note(None, pod(name, cpu, **more))
        self.answers.note(pod(name, cpu, **more), pod(name, cpu, refused=message, **more))

    def later(self, seconds: float = SETTLES_S) -> Agreement:
        self.times.s += seconds
        self.answers.settle()
        return self.answers.finish()

    def row(self, predicate: Predicate) -> PredicateRow:
        return next(row for row in self.answers.finish().predicates if row.predicate is predicate)


def test_a_pod_on_a_node_that_has_room_is_agreed_with_at_once() -> None:
    scene = Scene()
    scene.bind("web", "8", "n1")
    agreement = scene.answers.finish()
    assert (agreement.bound, agreement.bound_agreed, agreement.share) == (1, 1, 1.0)
    assert scene.row(Predicate.TAINTS).bound_agreed == 1
    assert scene.ended == [("uid-web", True)]


def test_room_that_a_bound_pod_takes_is_gone_for_the_next() -> None:
    scene = Scene()
    scene.bind("one", "8", "n1")
    scene.bind("two", "1", "n1")
    assert scene.answers.finish().bound == 1, "the second is judged again, two seconds later"
    agreement = scene.later()
    assert (agreement.bound, agreement.bound_agreed) == (2, 1)
    (found,) = agreement.disagreements
    assert (found.pod, found.node, found.predicates) == ("ads/two", "n1", [Predicate.RESOURCES])
    assert "edl would not have allowed it: resources" in found.edl
    assert scene.row(Predicate.RESOURCES).bound_disagreed == 1
    assert scene.row(Predicate.SELECTOR).bound_agreed == 2


def test_a_deletion_that_arrives_a_little_late_explains_a_binding() -> None:
    scene = Scene()
    scene.bind("old", "8", "n1")
    scene.bind("new", "8", "n1")
    scene.answers.note(pod("old", "8", on="n1"), None)
    agreement = scene.later()
    assert (agreement.bound, agreement.bound_agreed, agreement.in_flight) == (2, 2, 1)


def test_a_pod_that_has_ended_uses_nothing() -> None:
    scene = Scene()
    scene.bind("done", "8", "n1")
    scene.answers.note(pod("done", "8", on="n1"), pod("done", "8", on="n1", phase="Succeeded"))
    scene.bind("next", "8", "n1")
    assert scene.answers.finish().bound_agreed == 2


@pytest.mark.parametrize(
    ("spec", "message", "predicate"),
    [
        (
            {"nodeSelector": {"disk": "ssd"}},
            "2 node(s) didn't match Pod's node affinity/selector",
            Predicate.SELECTOR,
        ),
        ({"containers": [{"resources": {"requests": {"cpu": "9"}}}]}, "2 Insufficient cpu", Predicate.RESOURCES),
        (
            {"containers": [{"resources": {"requests": {"amd.com/gpu": 1}}}]},
            "2 Insufficient amd.com/gpu",
            Predicate.RESOURCES,
        ),
    ],
)
def test_a_refusal_where_edl_finds_no_node_is_agreed_with(spec: Any, message: str, predicate: Predicate) -> None:
    scene = Scene()
    scene.refuse("web", "1", f"0/2 nodes are available: {message}.", spec=spec)
    agreement = scene.answers.finish()
    assert (agreement.refused, agreement.refused_agreed, agreement.share) == (1, 1, 1.0)
    assert scene.row(predicate).refused_agreed == 1


def test_taints_ports_and_nodes_that_are_not_ready_keep_pods_away() -> None:
    tainted = node("n1", spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]})
    unready = node("n2", status={"allocatable": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": "False"}]})
    scene = Scene(tainted, unready)
    scene.refuse("web", "1", "0/2 nodes are available: 1 node(s) had untolerated taint {gpu: }, 1 node(s) not ready.")
    assert scene.row(Predicate.TAINTS).refused_agreed == 1
    ports = {
        "containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}],
        "tolerations": [{"operator": "Exists"}],
    }
    scene.bind("first", "0", "n1", spec=ports)
    refused = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    scene.refuse("second", "0", refused, spec=ports)
    assert scene.row(Predicate.PORTS).refused_agreed == 1
    assert scene.later().disagreements == []


def test_a_refusal_for_a_rule_that_nobody_has_is_a_disagreement_about_that_rule() -> None:
    scene = Scene()
    scene.refuse("web", "1", "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.")
    agreement = scene.later()
    (found,) = agreement.disagreements
    assert (found.node, found.predicates, found.edl) == ("n1", [Predicate.BETWEEN_PODS], "it fits on this node")
    row = scene.row(Predicate.BETWEEN_PODS)
    assert (row.judged, row.refused_disagreed) == (True, 1)
    assert agreement.share == 0.0


def test_bindings_that_arrive_after_a_refusal_explain_it() -> None:
    scene = Scene(node("n1"))
    scene.refuse("late", "1")
    scene.bind("early", "8", "n1")
    agreement = scene.later()
    assert (agreement.refused_agreed, agreement.in_flight, agreement.disagreements) == (1, 1, [])


def test_a_refused_pod_that_is_bound_at_once_was_refused_before_room_came() -> None:
    scene = Scene(node("n1"))
    scene.refuse("web", "1")
    scene.answers.note(pod("web", refused=FULL), pod("web", on="n1"))
    agreement = scene.later()
    assert (agreement.bound, agreement.refused, agreement.in_flight, agreement.share) == (1, 1, 1, 1.0)


def test_the_same_refusal_counts_once_and_a_new_message_again() -> None:
    scene = Scene(node("n1"))
    scene.bind("full", "8", "n1")
    scene.refuse("web", "1")
    scene.answers.note(pod("web", refused=FULL), pod("web", refused=FULL, phase="Pending"))
    assert scene.answers.finish().refused == 1
    scene.answers.note(pod("web", refused=FULL), pod("web", refused=FULL.replace("1 In", "2 In")))
    assert scene.answers.finish().refused == 2


def test_pods_of_daemonsets_and_of_other_schedulers_are_counted_apart() -> None:
    scene = Scene()
    owner = {"kind": "DaemonSet", "name": "logs", "uid": "u", "controller": True, "apiVersion": "apps/v1"}
    scene.bind("logs", "1", "n1", owner=owner)
    scene.bind("gang", "1", "n1", spec={"schedulerName": "volcano"})
    agreement = scene.answers.finish()
    assert (agreement.bound, agreement.daemon_pods, agreement.other_schedulers) == (0, 1, 1)
    scene.bind("rest", "7", "n1")
    assert scene.later().bound_agreed == 0, "they use the node all the same"


def test_a_pod_that_comes_with_a_node_was_not_scheduled() -> None:
    scene = Scene()
    scene.answers.note(None, pod("static", "9", on="n1"))
    assert scene.later().bound == 0


def test_a_node_that_comes_and_goes_is_followed() -> None:
    scene = Scene(node("n1"))
    scene.answers.note(None, node("n3"))
    scene.bind("web", "8", "n3")
    assert scene.answers.finish().bound_agreed == 1
    scene.answers.note(node("n3"), None)
    scene.bind("more", "0", "n3")
    assert scene.later().disagreements[0].predicates == [Predicate.OTHER]


def test_only_the_first_disagreements_are_kept_and_the_others_counted() -> None:
    scene = Scene()
    for number in range(MOST_DISAGREEMENTS + 2):
        scene.refuse(f"web-{number}", "1")
    agreement = scene.later()
    assert (len(agreement.disagreements), agreement.left_off) == (MOST_DISAGREEMENTS, 2)


def test_a_later_run_goes_on_counting() -> None:
    scene = Scene()
    scene.bind("web", "1", "n1")
    kept = Agreement.model_validate_json(scene.answers.finish().model_dump_json())
    again = Answers(scene.times.now_s, scene.times.monotonic_s, kept)
    again.book.fill((node("n1"),), (pod("web", on="n1"),))
    again.note(pod("more"), pod("more", on="n1"))
    assert again.finish().bound_agreed == 2
    assert next(r for r in again.finish().predicates if r.predicate is Predicate.PORTS).bound_agreed == 2


def test_what_is_left_at_the_end_is_judged_at_once() -> None:
    scene = Scene()
    scene.refuse("web", "1")
    scene.answers.settle(all_of_them=True)
    assert scene.answers.finish().refused == 1


def test_a_shape_that_fitted_nowhere_is_looked_for_again_once_room_is_made() -> None:
    scene = Scene(node("n1"))
    scene.bind("full", "8", "n1")
    scene.refuse("first", "1")
    assert scene.later().refused_agreed == 1
    scene.answers.note(pod("full", "8", on="n1"), None)
    scene.refuse("second", "1")
    assert scene.later().disagreements[0].since_change_s == 0.0
    scene.bind("other", "8", "n1")
    scene.refuse("third", "1")
    assert scene.later().refused_agreed == 2


def test_a_pod_that_is_resized_uses_what_it_requests_now() -> None:
    scene = Scene(node("n1"))
    scene.bind("web", "8", "n1")
    scene.answers.note(pod("web", "8", on="n1"), pod("web", "2", on="n1"))
    scene.bind("more", "6", "n1")
    assert scene.answers.finish().bound_agreed == 2
