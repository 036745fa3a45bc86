"""Draws the pictures of the documents as SVG: `make pictures` writes docs/images/*.svg, and a test compares them.

A picture has a title and a description for those who do not see it, and its own colours for light and dark screens.
The serving picture is drawn from the table in docs/measurements.md, so it shows what was measured and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
STYLE = """
  .ground { fill: #ffffff } .box { fill: #eef2fb; stroke: #3f51b5 } .other { fill: #f4f4f4; stroke: #757575 }
  .text { fill: #1a1a1a; font: 14px sans-serif } .small { fill: #444444; font: 12px sans-serif }
  .line { stroke: #555555; stroke-width: 1.5; fill: none } .tip { fill: #555555 }
  .first { fill: #c2571a } .second { fill: #3f51b5 } .middle { text-anchor: middle } .end { text-anchor: end }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #1e1f26 } .box { fill: #2a3150; stroke: #9fa8da } .other { fill: #33343c; stroke: #9e9e9e }
    .text { fill: #f0f0f0 } .small { fill: #c8c8c8 } .line { stroke: #b0b0b0 } .tip { fill: #b0b0b0 }
    .first { fill: #f0945a } .second { fill: #9fa8da }
  }
"""
TIP = (
    '<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="tip" d="M0,0 L10,5 L0,10 z"/></marker>'
)


@dataclass
class Picture:
    """An SVG that is put together shape by shape; lengths are pixels, y points down."""

    title: str
    description: str
    width: int
    height: int
    shapes: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, look: str = "text middle") -> None:
        """One line of text; `look` names classes of the style."""
        self.shapes.append(f'<text class="{look}" x="{x:g}" y="{y:g}">{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, lines: Sequence[str], look: str = "box") -> None:
        """A box with its heading and up to three smaller lines below it; 60 pixels high."""
        self.shapes.append(f'<rect class="{look}" x="{x:g}" y="{y:g}" width="{width:g}" height="60" rx="6"/>')
        top = y + 35 - 8 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.text(x + width / 2, top + 16 * number, line, "small middle" if number else "text middle")

    def arrow(self, points: Sequence[tuple[float, float]], words: str = "", at: tuple[float, float] = (0, 0)) -> None:
        """A line through the points with a tip at the last one, and words at a place of their own."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.shapes.append(f'<polyline class="line" points="{path}" marker-end="url(#tip)"/>')
        if words:
            self.text(*at, words, "small middle")

    def bar(self, x: float, y: float, width: float, height: float, look: str) -> None:
        """A bar of a chart, with its upper left corner at (x, y)."""
        self.shapes.append(f'<rect class="{look}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>')

    def svg(self) -> str:
        """The whole file."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
                f' width="{self.width}" height="{self.height}" role="img" aria-labelledby="title description">',
                f'<title id="title">{escape(self.title)}</title>',
                f'<desc id="description">{escape(self.description)}</desc>',
                f"<style>{STYLE}</style>",
                f"<defs>{TIP}</defs>",
                f'<rect class="ground" width="{self.width}" height="{self.height}" rx="8"/>',
                *self.shapes,
                "</svg>\n",
            ]
        )


def architecture() -> Picture:
    """Who talks to whom in a cluster with edl."""
    picture = Picture(
        "Architecture",
        "The controller watches the API server and writes pods and statuses to it. kube-scheduler binds pods and"
        " preempts trainers for serving. Trainers take leases of data from the master of their job.",
        760,
        330,
    )
    picture.box(290, 20, 180, ["kube-apiserver", "nodes, pods, jobs"], "other")
    picture.box(30, 130, 220, ["edl controller", "observe, plan, check, act", "one leader, one standby"])
    picture.box(510, 130, 220, ["kube-scheduler", "binds pods", "preempts for serving"], "other")
    picture.arrow([(290, 40), (110, 40), (110, 130)], "watch", (190, 33))
    picture.arrow([(190, 130), (190, 70), (290, 70)], "write", (235, 63))
    picture.arrow([(470, 50), (620, 50), (620, 130)], "pods without a node", (560, 43))
    picture.arrow([(540, 130), (540, 70), (470, 70)])
    picture.box(30, 240, 180, ["master of a job", "leases, journal"])
    picture.box(290, 240, 180, ["trainers", "min to max"])
    picture.box(550, 240, 180, ["serving pods", "priority 0 or more"], "other")
    picture.arrow([(290, 262), (210, 262)], "report", (250, 256))
    picture.arrow([(210, 284), (290, 284)], "lease", (250, 299))
    picture.arrow([(100, 190), (100, 240)], "roster", (126, 219))
    picture.arrow([(550, 270), (470, 270)], "preempt", (510, 263))
    return picture


def decision() -> Picture:
    """One decision as data flow."""
    picture = Picture(
        "One decision",
        "Watch events become a snapshot; the planner makes a plan from it; the guard checks every rule without the"
        " solver; the plan becomes status, events and actions, and a record that can be computed again.",
        760,
        270,
    )
    steps = (
        ("observe", "kube", "API objects to", "model values"),
        ("plan", "planner", "places, admission,", "shares, bound"),
        ("check", "planner.guard", "every rule,", "without the solver"),
        ("act", "lifecycle, kube", "writes on condition,", "deletions first"),
    )
    for number, (head, package, first, second) in enumerate(steps):
        x = 20 + 186 * number
        picture.text(x + 81, 48, head)
        picture.box(x, 60, 162, [package, first, second])
        if number:
            picture.arrow([(x - 24, 90), (x, 90)])
    for x, words in ((194, "snapshot"), (380, "plan"), (566, "checked plan")):
        picture.text(x, 140, words, "small middle")
    picture.arrow([(659, 120), (659, 180)])
    picture.box(578, 180, 162, ["record", "status, events,", "metrics, decision"])
    picture.arrow([(578, 210), (368, 210)], "edl replay", (473, 203))
    picture.box(206, 180, 162, ["the same decision", "from the record alone"])
    picture.arrow(
        [(473, 120), (473, 165), (101, 165), (101, 120)], "a rule is broken: the plan is dropped", (287, 160)
    )
    return picture


def lease() -> Picture:
    """The life of a lease: where a record of an epoch can be."""
    picture = Picture(
        "The life of a lease",
        "A record is to do, then leased to one trainer, then reported as done, then committed by a checkpoint. A"
        " lease of a lost trainer returns to the records to do; so does what was reported after the checkpoint that"
        " is restored. A record that fails three times is left out.",
        760,
        270,
    )
    for number, (name, words) in enumerate(
        (
            ("to do", "not yet given out"),
            ("leased", "to one trainer"),
            ("reported", "the trainer is done"),
            ("committed", "in a checkpoint"),
        )
    ):
        picture.box(20 + 193 * number, 105, 140, [name, words])
    for x, words in ((186, "request"), (379, "report"), (572, "commit")):
        picture.arrow([(x - 26, 135), (x + 27, 135)], words, (x, 128))
    picture.arrow([(283, 105), (283, 70), (110, 70), (110, 105)], "the trainer is lost, or the lease ends", (197, 62))
    picture.arrow(
        [(476, 105), (476, 40), (70, 40), (70, 105)], "a pserver is lost: back to the last checkpoint", (300, 32)
    )
    picture.arrow([(283, 165), (283, 200)], "failed three times", (346, 188))
    picture.box(213, 200, 140, ["quarantined", "left out, named"], "other")
    return picture


def measured() -> list[tuple[int, int]]:
    """(serving pods, trainers) at each level at rest, from the table of docs/measurements.md; pservers move."""
    rows = re.findall(
        r"(?m)^\| (\d+) \| \d+ of \d+, \S+ \| \d+ of \d+, \S+ \| (\d+) of \d+, [^|]*requested[^|]* \| \d+ \|$",
        (ROOT / "docs" / "measurements.md").read_text(),
    )
    return [(int(serving), int(trainers)) for serving, trainers in rows]


def serving() -> Picture:
    """Serving against training, level by level."""
    levels = measured()
    in_words = "; ".join(f"{pods} serving pods and {trainers} trainers" for pods, trainers in levels)
    picture = Picture(
        "Serving and training on 133 nodes",
        f"Measured at rest, one level after another, with --consolidate-after-s: {in_words}.",
        760,
        330,
    )
    picture.text(40, 34, "Serving takes capacity and returns it; training fills the rest", "text")
    picture.bar(40, 48, 12, 12, "first")
    picture.text(58, 59, "serving pods (3 cpu)", "small")
    picture.bar(210, 48, 12, 12, "second")
    picture.text(228, 59, "trainers (5 cpu)", "small")
    base, scale, wide = 280, 0.45, 680 / len(levels)
    for number, (pods, trainers) in enumerate(levels):
        x = 40 + wide * number
        for left, amount, look in ((x + 8, pods, "first"), (x + wide / 2, trainers, "second")):
            picture.bar(left, base - amount * scale, wide / 2 - 8, amount * scale, look)
            picture.text(left + wide / 4 - 4, base - amount * scale - 5, str(amount), "small middle")
        picture.text(x + wide / 2, base + 18, f"level {number + 1}", "small middle")
    picture.shapes.append(f'<polyline class="line" points="40,{base} 720,{base}"/>')
    picture.text(
        40,
        318,
        "133 nodes, six jobs, each level at rest; table 'How full' of docs/measurements.md, pservers move",
        "small",
    )
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {
    "architecture.svg": architecture,
    "decision.svg": decision,
    "lease.svg": lease,
    "serving-and-training.svg": serving,
}


def main() -> None:
    """Write every picture."""
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw().svg())


if __name__ == "__main__":
    main()
