"""Draws the panels of the dashboards from what Prometheus saw of the scene, into docs/images (`make panels`).

It is not Grafana that draws. matplotlib does, with queries, legends, units, places and annotations of the dashboards.
"""

from __future__ import annotations

import math
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from edl.install.dashboards import dashboards
from tests.prometheus.scene import chosen, played
from tests.prometheus.server import Prometheus

IMAGES = Path(__file__).parents[2] / "docs" / "images"
FILES = {"scaling-decisions.json": "panels-scaling.png", "job.json": "panels-job.png"}
_COLUMNS = 24
_STEP_S = 1.0
_WIDTH_IN, _ROW_IN, _DPI = 13.0, 1.9, 80
_MOST_LEGENDS = 8
_SIZE_PT = 7

Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What Prometheus answered for one panel.

    Attributes:
        lines: legend -> (seconds since the scene began, value).
    """

    lines: dict[str, Points]

    @property
    def latest(self) -> dict[str, float]:
        """Legend -> the last value."""
        return {legend: points[-1][1] for legend, points in self.lines.items()}


def named(legend: str, labels: dict[str, str]) -> str:
    """A legend with the labels of a series in place of `{{label}}`."""
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), legend)


def formatted(value: float, unit: str) -> str:
    """A value as a stat panel shows it."""
    if unit == "percentunit":
        return f"{100 * value:.0f} %"
    return f"{value:.3g} s" if unit == "s" else f"{value:g}"


def ask(server: Prometheus, panel: dict[str, Any], since_s: float) -> Seen:
    """Run the queries of a panel over the whole scene."""
    lines: dict[str, Points] = {}
    for target in panel["targets"]:
        for series in server.series(chosen(panel["title"], target["expr"]), since_s):
            points = [(time_s - since_s, float(value)) for time_s, value in series["values"]]
            finite = [(time_s, value) for time_s, value in points if math.isfinite(value)]
            if finite:
                lines[named(target["legendFormat"], series["metric"])] = finite
    return Seen(lines)


def with_gaps(points: Points) -> Points:
    """The points, with a break wherever the series had no value."""
    found: Points = []
    for time_s, value in points:
        if found and time_s - found[-1][0] > _STEP_S * 1.5:
            found.append((time_s, math.nan))
        found.append((time_s, value))
    return found


def resizes(server: Prometheus, board: dict[str, Any], since_s: float) -> set[float]:
    """Where the annotations of a dashboard are, in seconds since the scene began."""
    (annotation,) = board["annotations"]["list"]
    values = server.values(chosen("Resizes", annotation["expr"]), since_s)
    return {at_s for value in values if (at_s := float(value) / 1000 - since_s) >= 0}


def draw(board: dict[str, Any], seen: dict[int, Seen], marks: set[float]) -> Figure:
    """The panels of a dashboard at their places.

    Args:
        board: the dashboard.
        seen: id of a panel -> what it shows.
        marks: times of annotations.
    """
    panels = [panel for panel in board["panels"] if panel["id"] in seen]
    rows = sorted({panel["gridPos"]["y"] for panel in panels})
    figure = Figure(figsize=(_WIDTH_IN, _ROW_IN * len(rows)))
    row, left, below, above = 1 / len(rows), 0.03, 0.22, 0.12
    for panel in panels:
        place = panel["gridPos"]
        x, width = place["x"] / _COLUMNS, place["w"] / _COLUMNS
        bottom = 1 - (rows.index(place["y"]) + 1 - below) * row
        axes = figure.add_axes((x + left, bottom, width - left - 0.01, row * (1 - below - above)))
        axes.set_title(panel["title"], fontsize=_SIZE_PT + 1, loc="left")
        if panel["type"] == "stat":
            _draw_stat(axes, panel, seen[panel["id"]])
        else:
            _draw_lines(axes, panel, seen[panel["id"]], marks)
    return figure


def _draw_stat(axes: Axes, panel: dict[str, Any], seen: Seen) -> None:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    several = len(seen.lines) > 1
    words = [
        f"{legend}: {formatted(v, unit)}" if several else formatted(v, unit) for legend, v in seen.latest.items()
    ]
    axes.axis("off")
    axes.text(0.5, 0.5, "\n".join(words), fontsize=_SIZE_PT + 1 if several else 20, ha="center", va="center")


def _draw_lines(axes: Axes, panel: dict[str, Any], seen: Seen, marks: set[float]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    scale = 100 if defaults["unit"] == "percentunit" else 1
    unit = {"percentunit": " [%]", "s": " [s]"}.get(defaults["unit"], "")
    if defaults["custom"]["stacking"]["mode"] == "normal":
        times = sorted({time_s for points in seen.lines.values() for time_s, _ in points})
        heights = [[dict(points).get(time_s, 0.0) * scale for time_s in times] for points in seen.lines.values()]
        axes.stackplot(times, heights, labels=list(seen.lines), alpha=0.6)
    else:
        for legend, points in seen.lines.items():
            whole = with_gaps(points)
            axes.plot([t for t, _ in whole], [v * scale for _, v in whole], label=legend, linewidth=1)
    for at_s in marks:
        axes.axvline(at_s, color="tab:orange", linewidth=0.5, linestyle="--")
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=_SIZE_PT)
    axes.set_xlabel(f"seconds of the scene{unit and ', value'}{unit}", fontsize=_SIZE_PT - 1)
    if not seen.lines:
        axes.text(0.5, 0.5, "no value in the scene", fontsize=_SIZE_PT, ha="center", transform=axes.transAxes)
    elif len(seen.lines) <= _MOST_LEGENDS:
        axes.legend(fontsize=_SIZE_PT - 1, loc="upper left")


def write_all(server: Prometheus, since_s: float, folder: Path) -> list[Path]:
    """Draw every dashboard; returns the files."""
    written = []
    for file, board in dashboards().items():
        seen = {panel["id"]: ask(server, panel, since_s) for panel in board["panels"] if panel.get("targets")}
        path = folder / FILES[file]
        draw(board, seen, resizes(server, board, since_s)).savefig(path, dpi=_DPI, metadata={"Software": None})
        written.append(path)
    return written


def main() -> int:
    """Play the scene, draw, and name the files."""
    with tempfile.TemporaryDirectory() as folder, played(Path(folder)) as scene:
        for path in write_all(scene.server, scene.began_s, IMAGES):
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
