from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edl.sandbox.scheduler.filters import shortages
from edl.sandbox.scheduler.preemption import Preemption, find_preemption, may_preempt, refusal_note
from edl.sandbox.scheduler.view import pod_view
from tests.sandbox.scheduler.builders import make_node, make_pod, view, views


def names(found: Preemption | None) -> list[str]:
    assert found is not None
    return [one.key[1] for one in found.victims]


def test_only_lower_priority_makes_room() -> None:
    nodes = views([make_node("n")], make_pod("equal", "4", node="n", priority=5))
    assert find_preemption(view("p", "1", priority=5), nodes) is None
    assert names(find_preemption(view("p", "1", priority=6), nodes)) == ["equal"]


def test_no_more_pods_go_than_must_and_the_least_important_first() -> None:
    pods = [
        make_pod("old", "1", node="n", priority=-100, created=1),
        make_pod("young", "1", node="n", priority=-100, created=2),
        make_pod("core", "1", node="n", priority=-1),
        make_pod("training", "1", node="n", priority=-5),
    ]
    found = find_preemption(view("p", "2"), views([make_node("n")], *pods))
    assert sorted(names(found)) == ["old", "young"]


def test_the_node_with_the_least_important_victims_is_chosen() -> None:
    pods = [make_pod("core", "4", node="a", priority=-1), make_pod("surplus", "4", node="b", priority=-100)]
    found = find_preemption(view("p", "4"), views([make_node("a"), make_node("b")], *pods))
    assert found is not None
    assert found.node == "b"


def test_a_node_that_cannot_take_the_pod_is_not_emptied() -> None:
    nodes = views([make_node("n", unschedulable=True)], make_pod("low", "4", node="n", priority=-1))
    assert find_preemption(view("p", "1"), nodes) is None
    assert find_preemption(view("p", "5"), views([make_node("n")], make_pod("low", node="n", priority=-1))) is None


def test_preemption_policy_never_is_respected() -> None:
    nodes = views([make_node("n")])
    never = view("p", "5", preemptionPolicy="Never")
    assert not may_preempt(never, nodes)
    assert "not eligible due to preemptionPolicy=Never" in refusal_note(never, nodes)


def test_a_pod_waits_for_the_victims_of_its_earlier_preemption() -> None:
    leaving = make_pod("low", "4", node="n", priority=-1)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pod = make_pod("p", "4")
    pod["status"] = {"nominatedNodeName": "n"}
    assert not may_preempt(pod_view(pod), views([make_node("n")], leaving))
    assert may_preempt(pod_view(pod), views([make_node("n")]))


def test_the_note_tells_whether_preemption_could_help() -> None:
    nodes = views([make_node("n")], make_pod("equal", "4", node="n"))
    assert refusal_note(view("p", "1"), nodes).endswith("1 No preemption victims found for incoming pod.")
    assert refusal_note(view("p", "5"), nodes).endswith("1 Preemption is not helpful for scheduling.")


@given(
    pods=st.lists(st.tuples(st.integers(1, 4), st.integers(-3, 3), st.integers(0, 2)), max_size=12),
    wanted=st.integers(1, 5),
)
def test_after_a_preemption_the_pod_fits_and_each_victim_was_needed(
    pods: list[tuple[int, int, int]], wanted: int
) -> None:
    made = [
        make_pod(f"p{place}", str(cpu), node=f"n{node}", priority=priority, created=place)
        for place, (cpu, priority, node) in enumerate(pods)
    ]
    nodes = views([make_node(f"n{place}", "6") for place in range(3)], *made)
    pod = view("new", str(wanted))
    found = find_preemption(pod, nodes)
    if found is None:
        return
    node = next(one for one in nodes if one.name == found.node)
    kept = [one for one in node.pods if one not in found.victims]
    assert shortages(pod, node.with_pods(kept)) == []
    assert all(victim.priority < pod.priority for victim in found.victims)
    for victim in found.victims:
        assert shortages(pod, node.with_pods([*kept, victim]))
