"""Shows a sandbox while it runs: a picture that changes in place on a terminal, else a line at each change."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from edl.kube.client.session import ApiSession
from edl.sandbox.controllers.loop import COLLECTIONS
from edl.sandbox.informer import Informer, Wakeup
from edl.sandbox.view.picture import JobLine, NodeLine, Picture, cores, take_picture, text_of

Object = dict[str, Any]
_COLOURS = ("cyan", "magenta", "yellow", "blue", "green", "red")
_BAR = 40
_DECISIONS = 6
_REFRESH_S = 0.5
_LONGEST_S = 2.0


class View:
    """The view of one sandbox; call `run`, and `say` to print a line.

    Args:
        session: its API server.
        is_live: redraw in place; by default if stdout is a terminal.
    """

    def __init__(self, session: ApiSession, *, is_live: bool | None = None) -> None:
        self._wakeup = Wakeup()
        watched = ("Node", "Pod", "TrainingJob", "Deployment")
        self._informers = {kind: Informer(session, kind, COLLECTIONS[kind], self._wakeup.set) for kind in watched}
        selector = "involvedObject.kind=TrainingJob"
        self._events = Informer(session, "Event", "/api/v1/events", self._wakeup.set, field_selector=selector)
        self._console = Console(highlight=False, soft_wrap=True)
        self._is_live = sys.stdout.isatty() if is_live is None else is_live
        self._since_s = time.monotonic()
        self._shown: set[tuple[str, int]] = set()
        self._decisions: deque[str] = deque(maxlen=_DECISIONS)
        self._line = ""

    def __getitem__(self, kind: str) -> Informer:
        return self._informers[kind]

    @property
    def seconds(self) -> float:
        """Seconds since the view was made."""
        return time.monotonic() - self._since_s

    def picture(self) -> Picture:
        """Return the present picture of the sandbox."""
        return take_picture(*(self._informers[kind] for kind in ("Node", "Pod", "TrainingJob", "Deployment")))

    def say(self, text: str) -> None:
        """Print a line with the time."""
        self._console.print(Text(f"{self.seconds:6.1f} s  {text}"))

    async def run(self) -> None:
        """Show the sandbox forever."""
        async with asyncio.TaskGroup() as group:
            for informer in (*self._informers.values(), self._events):
                group.create_task(informer.run())
            await asyncio.gather(*(one.wait_until_synced() for one in (*self._informers.values(), self._events)))
            await (self._redraw() if self._is_live else self._print_changes())

    async def _redraw(self) -> None:
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                self._decisions.extend(f"{self.seconds:6.1f} s  {text}" for text in self._news())
                live.update(render(self.picture(), self._decisions), refresh=True)
                await self._wakeup.wait(_LONGEST_S)
                await asyncio.sleep(_REFRESH_S)

    async def _print_changes(self) -> None:
        while True:
            for text in self._news():
                self.say(f"  {text}")
            line = text_of(self.picture())
            if line != self._line:
                self._line = line
                self.say(line)
            await self._wakeup.wait(_LONGEST_S)
            await asyncio.sleep(_REFRESH_S)

    def _news(self) -> list[str]:
        """The events of jobs that were not shown yet, the oldest first."""
        found = []
        for event in sorted(self._events, key=lambda one: str(one.get("lastTimestamp") or "")):
            key = (str(event["metadata"]["uid"]), int(event.get("count") or 1))
            if key not in self._shown:
                self._shown.add(key)
                found.append(f"{event['involvedObject']['name']}: {event['reason']}: {event['message']}")
        return found


def render(picture: Picture, decisions: Iterable[str]) -> RenderableType:
    """The picture and the last decisions, for a terminal."""
    owners = sorted({block.owner for node in picture.nodes for block in node.blocks})
    colours = {owner: _COLOURS[place % len(_COLOURS)] for place, owner in enumerate(owners)}
    nodes = Table.grid(padding=(0, 2))
    for node in picture.nodes:
        nodes.add_row(node.name, bar(node, colours), f"{cores(node.used)} of {cores(node.cpu)} cpu")
    jobs = Table(box=None, pad_edge=False)
    for title in ("job", "phase", "trainers", "data", "why"):
        jobs.add_column(title, no_wrap=title != "why")
    for job in picture.jobs:
        jobs.add_row(Text(job.name, colours.get(job.name, "")), *job_cells(job))
    for one in picture.serving:
        jobs.add_row(Text(one.name, colours.get(one.name, "")), "serving", f"{one.ready} of {one.wanted}", "", "")
    parts: list[RenderableType] = [nodes, Text()]
    if picture.jobs or picture.serving:
        parts += [jobs, Text()]
    return Group(*parts, *(Text(text, overflow="ellipsis", no_wrap=True) for text in decisions))


def bar(node: NodeLine, colours: dict[str, str]) -> Text:
    """Draw a node as a bar: each pod takes its share of the width, in the colour of its owner."""
    text = Text()
    width = 0
    used = 0
    for block in node.blocks:
        used += block.cpu
        end = min(_BAR, round(_BAR * used / node.cpu)) if node.cpu else 0
        letter = block.role[:1].upper()
        text.append((letter + "█" * (end - width))[: end - width], colours[block.owner])
        width = max(width, end)
    text.append("·" * (_BAR - width), "dim")
    return text


def job_cells(job: JobLine) -> tuple[str, str, str, str]:
    """The cells of a job's row: phase, trainers, progress and explanation."""
    progress = "" if job.done is None else f"{job.done:.0%}"
    return job.phase, f"{job.running} of {job.least}..{job.most}", progress, job.explanation
