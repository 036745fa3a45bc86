"""Which pods a rule is about: namespaces, selectors of namespaces, and labels that the pods share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.worlds.rules.scenes import HOSTNAME, Object, blocked, node, pod, snapshot

NAMESPACES = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": team}}}
    for name, team in (("default", "web"), ("shop", "web"), ("ads", "training"))
]


def rule(**term: object) -> Object:
    whole = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME, **term}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [whole]}}


def is_kept_away(
    affinity: Object, *, other: str = "default", labels: Object | None = None, known: Sequence[Object] = NAMESPACES
) -> str:
    """Why a pod with the rule may not share the only node with a pod of app=web in a namespace; empty if it may."""
    runs = pod("old", "n0", namespace=other, labels={"app": "web", "tier": "1"})
    new = pod("new", affinity=affinity, labels=labels or {"app": "new", "tier": "1"})
    return next(iter(blocked(snapshot(node("n0"), list(known), runs, new)).values()), "")


@pytest.mark.parametrize(
    ("term", "other", "kept"),
    [
        ({}, "default", True),
        ({}, "shop", False),
        ({"namespaces": ["shop"]}, "shop", True),
        ({"namespaces": ["shop"]}, "default", False),
        ({"namespaceSelector": {}}, "ads", True),
        ({"namespaceSelector": {"matchLabels": {"team": "web"}}}, "shop", True),
        ({"namespaceSelector": {"matchLabels": {"team": "web"}}}, "ads", False),
        ({"namespaceSelector": {"matchLabels": {"team": "web"}}, "namespaces": ["ads"]}, "ads", True),
        ({"labelSelector": {}}, "default", True),
        ({"labelSelector": None}, "default", False),
        (
            {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}},
            "default",
            True,
        ),
        ({"labelSelector": {"matchExpressions": [{"key": "nix", "operator": "Exists"}]}}, "default", False),
        ({"matchLabelKeys": ["tier"]}, "default", True),
        ({"mismatchLabelKeys": ["tier"]}, "default", False),
        ({"topologyKey": "example.com/rack"}, "default", False),
    ],
)
def test_a_rule_is_about_the_pods_that_kube_scheduler_means(term: Object, other: str, *, kept: bool) -> None:
    assert bool(is_kept_away(rule(**term), other=other)) is kept


def test_a_rule_of_a_pod_that_runs_keeps_others_away() -> None:
    runs = pod("old", "n0", labels={"app": "old"}, affinity=rule())
    assert blocked(snapshot(node("n0"), runs, pod("web-0")))
    assert not blocked(snapshot(node("n0"), runs, pod("db-0")))
    assert not blocked(snapshot(node("n0"), node("n1"), runs, pod("web-0")))


def test_a_preferred_rule_keeps_nobody_away() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
    wish = {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]
        }
    }
    assert not is_kept_away(wish)


def expression(operator: str, *values: str, key: str = "team") -> Object:
    return {"namespaceSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}}


def near(**term: object) -> Object:
    return {"podAffinity": rule(**term)["podAntiAffinity"]}


NAME = "kubernetes.io/metadata.name"


@pytest.mark.parametrize(
    ("chosen", "is_chosen"),
    [
        ({"namespaceSelector": {}}, True),
        ({"namespaceSelector": {"matchLabels": {NAME: "shop"}}}, True),
        ({"namespaceSelector": {"matchLabels": {NAME: "ads"}}}, False),
        (expression("NotIn", "ads", "web", key=NAME), True),
        (expression("NotIn", "shop", key=NAME), False),
        ({"namespaceSelector": {"matchLabels": {NAME: "ads", "team": "web"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"team": "web"}}, "namespaces": ["shop"]}, True),
    ],
)
def test_a_namespace_without_its_object_is_known_by_its_name(chosen: Object, *, is_chosen: bool) -> None:
    assert bool(is_kept_away(rule(**chosen), other="shop", known=[])) is is_chosen
    assert bool(is_kept_away(near(**chosen), other="shop", known=[])) is not is_chosen


@pytest.mark.parametrize(
    "chosen",
    [
        {"namespaceSelector": {"matchLabels": {"team": "web"}}},
        {"namespaceSelector": {"matchLabels": {NAME: "shop", "team": "web"}}},
        expression("NotIn", "web"),
        expression("Exists"),
        expression("DoesNotExist"),
    ],
)
def test_nobody_ends_for_a_rule_about_a_namespace_with_unknown_labels_and_the_reason_says_so(chosen: Object) -> None:
    apart = is_kept_away(rule(**chosen), other="shop", known=[])
    assert apart.startswith("rule: it may not share a node with pods of app=web in namespaces ")
    assert apart.endswith(" (the labels of namespace shop are not known); no node is left")
    together = is_kept_away(near(**chosen), other="shop", known=[])
    assert together.endswith(
        ", and none is known to run (the labels of namespace shop are not known); no node is left"
    )


def test_a_namespace_with_unknown_labels_is_no_doubt_about_pods_with_other_labels() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "namespaceSelector": {"matchLabels": {"team": "web"}}}
    assert is_kept_away(rule(**term), other="shop", known=[]) == ""
    assert is_kept_away(near(**term), other="shop", known=[]).endswith(", and none runs; no node is left")
