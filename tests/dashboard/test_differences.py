"""Only what changed is sent, and applying it gives the new view."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edl.dashboard.differences import differences
from edl.dashboard.view import View

SECTIONS = st.dictionaries(st.sampled_from("abcd"), st.fixed_dictionaries({"n": st.integers(0, 2)}))
VIEWS = st.builds(View, SECTIONS, SECTIONS, st.fixed_dictionaries({"nodes": st.integers(0, 2)}))


def applied(view: View, message: dict[str, Any]) -> View:
    """What the page does with a message."""

    def section(old: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in old.items() if key not in change.get("gone", ())}
        return {**kept, **change.get("set", {})}

    return View(
        section(view.nodes, message.get("nodes", {})),
        section(view.jobs, message.get("jobs", {})),
        message.get("cluster", view.cluster),
    )


@given(VIEWS, VIEWS)
def test_a_page_that_applies_the_difference_shows_the_new_view(before: View, after: View) -> None:
    message = differences(before, after)
    assert applied(before, message or {}) == after
    assert (message is None) == (before == after)


def test_one_changed_node_of_a_thousand_is_the_only_one_that_is_sent() -> None:
    nodes = {f"n{i}": {"free": 1} for i in range(1000)}
    message = differences(View(nodes), View(nodes | {"n7": {"free": 0}}))
    assert message == {"nodes": {"set": {"n7": {"free": 0}}}}
