from __future__ import annotations

from edl.sandbox.scheduler.scores import Packing, best_node
from tests.sandbox.scheduler.builders import make_node, make_pod, view, views


def test_the_emptier_node_is_better_and_the_fuller_one_when_packing() -> None:
    nodes = views([make_node("a"), make_node("b")], make_pod("other", "1", node="a"))
    assert best_node(view("p"), nodes).name == "b"
    assert best_node(view("p"), nodes, Packing.MOST).name == "a"


def test_equal_nodes_are_taken_in_order() -> None:
    assert best_node(view("p"), views([make_node("b"), make_node("a")])).name == "a"


def test_preferred_affinity_outweighs_a_fuller_node() -> None:
    preferred = [
        {
            "weight": 100,
            "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
        }
    ]
    pod = view("p", affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})
    nodes = views([make_node("a"), make_node("b")], make_pod("other", "2", node="a"))
    assert best_node(pod, nodes).name == "a"


def test_a_soft_taint_is_avoided() -> None:
    soft = [{"key": "k", "value": "", "effect": "PreferNoSchedule"}]
    nodes = views([make_node("a", taints=soft), make_node("b")], make_pod("other", "2", node="b"))
    assert best_node(view("p"), nodes).name == "b"
    assert best_node(view("p", tolerations=[{"operator": "Exists"}]), nodes).name == "a"
