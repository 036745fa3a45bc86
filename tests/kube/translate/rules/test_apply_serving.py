"""Serving pods with rules between pods: nobody ends for a pod that cannot use what that frees."""

from __future__ import annotations

from edl.model.resources import without_rules
from tests.worlds.rules.scenes import (
    apart,
    blocked,
    job,
    members,
    nodes,
    plan,
    pod,
    snapshot,
    victims,
)

WEB = apart(app="web")
TRAINERS = ("n0",) * 3 + ("n1",) * 4 + ("n2",) * 4 + ("n3",) * 4


def webs(*places: str) -> list[dict[str, object]]:
    return [pod(f"web-{number}", on, affinity=WEB) for number, on in enumerate(places)]


def test_nobody_ends_for_a_pod_whose_like_run_on_every_node() -> None:
    scene = (nodes(4), webs("n0", "n1", "n2", "n3", "", ""), job("train", 2), members("train", *TRAINERS))
    why = "rule: one pod of app=web a node; all 4 nodes that accept it have one"
    assert blocked(snapshot(*scene)) == {"web-4": why, "web-5": why}
    found = plan(*scene)
    assert victims(found) == []
    assert (found.serving.waiting, found.serving.placed, found.serving.short) == (2, 0, 2)


def test_trainers_end_where_none_of_its_like_runs() -> None:
    scene = (nodes(4), webs("n0", "n1", "n2", "", ""), job("train", 2), members("train", *TRAINERS, *["n3"] * 4))
    assert list(blocked(snapshot(*scene))) == ["web-4"]
    found = plan(*scene)
    ended = victims(found)
    assert len(ended) == 4
    assert set(ended) <= {f"train-trainer-{index}" for index in range(11, 19)}


def test_a_shape_without_its_rules_is_that_of_its_like_that_runs() -> None:
    found = snapshot(nodes(4), webs("n0", ""))
    (runs,) = (one for one in found.pods if one.node)
    (waits,) = found.waiting_serving
    assert waits.shape != runs.shape
    assert without_rules(waits.shape) == runs.shape


def test_a_pod_that_terminates_keeps_its_like_away_until_it_is_gone_and_nobody_ends_for_that() -> None:
    """As kube-scheduler counts it; once it is gone, its room is free, too."""
    goes = pod("web-0", "n0", affinity=apart(app="web"), metadata={"deletionTimestamp": "2026-01-05T10:00:10Z"})
    others = [pod(f"web-{n}", f"n{n}", affinity=apart(app="web")) for n in (1, 2, 3)]
    waits = pod("web-9", affinity=apart(app="web"))
    trainers = members("train", *(f"n{n}" for n in range(4) for _ in range(3)))
    scene = (nodes(4), job("train"), trainers, waits)
    assert not victims(plan(*scene, goes, others))
    assert "one pod of app=web a node" in blocked(snapshot(*scene, goes, others))["web-9"]
    assert plan(*scene, others).serving.placed == 1
