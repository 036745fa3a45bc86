"""What Prometheus saw of the scene: every panel, every metric, every rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edl.install.alerts import ALERTS
from edl.install.dashboards import dashboards
from edl.install.recording_rules import RECORDING_RULES
from edl.install.reference import CONTROLLER_METRICS, MASTER_METRICS
from tests.prometheus.draw import ask, draw, resizes, write_all
from tests.prometheus.expected import (
    EMPTY,
    MAY_BE_TRUE,
    MOVED_ELSEWHERE,
    STEADY,
    TRUE_IN_THE_SCENE,
    panel_titles,
    table,
)
from tests.prometheus.scene import WAIT_S, Scene, chosen, panels, played

PAGE = Path(__file__).parents[2] / "docs" / "prometheus.md"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The scene after its last act, while its processes still run."""
    with played(tmp_path_factory.mktemp("scene")) as scene:
        yield scene


def test_every_panel_shows_what_happened(scene: Scene) -> None:
    values = {
        title: [scene.server.values(query, scene.began_s) for query in queries] for title, queries in panels().items()
    }
    empty = {title for title, queries in values.items() if not all(queries)}
    moved = {title for title, queries in values.items() if any(len(set(query)) > 1 for query in queries)}
    assert empty <= EMPTY.keys()
    assert values.keys() - moved - empty <= STEADY.keys()


def test_the_first_shrink_of_a_job_is_seen_by_a_rate(scene: Scene) -> None:
    first = 'max(increase(edl_resizes_total{job="ctr",direction="down"}[15s]) > 0 and edl_resizes_total == 1)'
    assert scene.server.values(first, scene.began_s)


def test_each_resize_of_a_job_is_an_annotation_at_its_time(scene: Scene) -> None:
    (annotation,) = dashboards()["job.json"]["annotations"]["list"]
    times = {float(v) / 1000 for v in scene.server.values(chosen("Resizes", annotation["expr"]), scene.began_s)}
    assert len(times) > 1
    assert all(scene.began_s - WAIT_S < time_s <= scene.server.now_s() for time_s in times)


def test_every_metric_moves_here_or_in_the_test_that_the_page_names(scene: Scene) -> None:
    still = {
        metric.name
        for metric in (*CONTROLLER_METRICS, *MASTER_METRICS)
        if not any(move(scene.server.series(name, scene.began_s)) for name in metric.series)
    }
    assert sorted(still - MOVED_ELSEWHERE.keys()) == []


def move(series: list[dict[str, Any]]) -> bool:
    """True if the value of one changed after Prometheus first saw it, or one began later than another."""
    changed = any(len({value for _, value in one["values"]}) > 1 for one in series)
    return changed or len({one["values"][0][0] for one in series}) > 1


def test_each_dashboard_is_drawn_with_every_panel(scene: Scene, tmp_path: Path) -> None:
    for path in write_all(scene.server, scene.began_s, tmp_path):
        assert path.read_bytes().startswith(b"\x89PNG")
    board = dashboards()["job.json"]
    shown = {p["id"]: ask(scene.server, p, scene.began_s) for p in board["panels"] if p.get("targets")}
    figure = draw(board, shown, resizes(scene.server, board, scene.began_s))
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        panel["title"] for panel in board["panels"] if panel["id"] in shown
    ]
    trainers = next(axes for axes in figure.axes if axes.get_title(loc="left") == "Trainers")
    legend = trainers.get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == {"live", "planned", "min-instance", "max-instance"}


def test_prometheus_evaluates_every_rule(scene: Scene) -> None:
    rules: list[dict[str, Any]] = [r for group in scene.server.ask("rules")["groups"] for r in group["rules"]]
    assert {rule["name"] for rule in rules} == {*(a.name for a in ALERTS), *(r.name for r in RECORDING_RULES)}
    assert {rule["health"] for rule in rules} == {"ok"}, [rule.get("lastError") for rule in rules]
    for rule in RECORDING_RULES:
        assert scene.server.query(rule.name), f"{rule.name} records nothing"


def test_alerts_are_true_under_what_happened_and_no_others(scene: Scene) -> None:
    scene.world.controller.kill()
    scene.saw('ALERTS{alertname="EdlNobodyLeads"}')
    true = {alert.name for alert in ALERTS if scene.server.values(alert.expr, scene.began_s)}
    assert true >= TRUE_IN_THE_SCENE.keys()
    assert true <= TRUE_IN_THE_SCENE.keys() | MAY_BE_TRUE.keys()


def test_the_documents_show_what_the_scene_expects() -> None:
    assert table() in PAGE.read_text()
    assert panel_titles() == set(panels())
