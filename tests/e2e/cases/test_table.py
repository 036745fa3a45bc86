"""The table of a case, and which figures miss their calibration."""

from __future__ import annotations

from tests.e2e.cases.table import difference, misses, rows, text

SIMULATED = {"utilisation": 0.9, "pending_mean_s": 4.0, "serving_shortfall_pod_s": 3000.0}
SEEN = {"utilisation": 0.82, "pending_mean_s": 4.5, "serving_shortfall_pod_s": 2750.0}


def test_a_figure_that_differs_by_more_than_a_tenth_is_a_miss() -> None:
    assert misses(SIMULATED, SEEN) == ["pending_mean_s"]
    assert misses(SIMULATED, {"utilisation": 0.9}) == []


def test_the_difference_is_that_of_the_control_plane_to_the_simulator() -> None:
    assert difference(4.0, 4.5) == "+12.5%"
    assert (difference(None, 1.0), difference(0.0, 1.0)) == ("", "")


def test_the_table_has_all_sources_beside_what_was_published() -> None:
    found = {"simulated": SIMULATED, "control plane": SEEN, "as seen": {"pending_mean_s": 4.5}}
    head, *lines = rows("edl2017-case2", found)
    assert len({len(line) for line in (head, *lines)}) == 1
    pending = next(line for line in lines if line[0] == "pending_mean_s")
    assert pending[1:] == ["4", "4.5", "+12.5%", "4.5", "+0.0%", "1.5", "49.1"]
    shown = text([head, *lines]).splitlines()
    assert len({len(line.rstrip()) <= len(shown[0]) for line in shown}) == 1
    assert shown[1].startswith("utilisation ")
