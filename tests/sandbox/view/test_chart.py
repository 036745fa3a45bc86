from __future__ import annotations

from edl.sandbox.view.chart import chart


def test_a_value_holds_until_the_next_one() -> None:
    assert chart([(0, 8), (5.5, 4), (8.5, 0)], 10, 8, width=10) == "██████▄▄▄ "


def test_a_small_value_is_still_seen_and_nothing_is_blank() -> None:
    assert chart([(0, 1), (5, 0)], 10, 100, width=4) == "▁▁  "
    assert chart([], 10, 0, width=3) == "   "
