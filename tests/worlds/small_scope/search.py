"""Visits every state of a scene once, breadth first, so that the trace of a broken rule is as short as possible.

A trace is the names of the steps from the first state on; it replays, because no two steps of a state have the same
name.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from tests.worlds.small_scope.cluster import Table
from tests.worlds.small_scope.space import Space


@dataclass
class Figures:
    """What a search found.

    Attributes:
        states, steps: how many it visited and tried.
        depth: the steps to the farthest state.
        at_rest: states in which nothing happens any more.
        turns, plans: how many turns the real controller took, and how many plans the planner made.
        seconds: CPU time.
        is_whole: every state was visited.
        broken, trace: the first broken rule, and the steps that lead to it; empty if there is none.
    """

    scene: str
    states: int = 0
    steps: int = 0
    depth: int = 0
    at_rest: int = 0
    turns: int = 0
    plans: int = 0
    seconds: float = 0.0
    is_whole: bool = False
    broken: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()


@dataclass
class Search:
    """A search through a space.

    Attributes:
        most: so many states are visited at most.
    """

    space: Space
    most: int
    _number: dict[int, int] = field(default_factory=dict)
    _parents: array[int] = field(default_factory=lambda: array("I"))
    _names: array[int] = field(default_factory=lambda: array("H"))
    _edges: tuple[array[int], array[int], array[int]] = field(
        default_factory=lambda: (array("I"), array("I"), array("H"))
    )
    _labels: Table = field(default_factory=Table)

    def run(self) -> Figures:
        """Visit the states until a rule is broken or `most` are visited."""
        began_s = time.process_time()
        figures = Figures(self.space.scene.name)
        plans = self.space.automaton.desk.plans
        made = plans.made
        self._visit(figures)
        if figures.is_whole and not figures.broken:
            self._look_for_circles(figures)
        figures.states, figures.seconds = len(self._number), time.process_time() - began_s
        figures.turns = self.space.automaton.turns
        figures.plans = plans.made - made
        return figures

    def _visit(self, figures: Figures) -> None:
        layer = [self.space.first]
        self._add(self.space.first, 0, "")
        while layer:
            later: list[int] = []
            for state in layer:
                if len(self._number) >= self.most:
                    return
                if self._expand(state, later, figures):
                    return
            layer = later
            figures.depth += bool(later)
        figures.is_whole = True

    def _expand(self, state: int, later: list[int], figures: Figures) -> bool:
        """Visit what follows a state; True if a rule is broken."""
        number, is_at_rest = self._number[state], True
        sources, targets, labels = self._edges
        for step in self.space.steps(state):
            figures.steps += 1
            is_at_rest &= not step.is_free or step.state == state
            found = self._number.get(step.state)
            if found is None:
                found = self._add(step.state, number, step.name)
                later.append(step.state)
            if step.broken:
                figures.broken, figures.trace = step.broken, (*self._trace(number), step.name)
                return True
            if step.is_free and step.state != state:
                sources.append(number)
                targets.append(found)
                labels.append(self._labels.number(step.name))
        if is_at_rest:
            figures.at_rest += 1
            if broken := self.space.rest(state):
                figures.broken, figures.trace = tuple(f"at rest, {rule}" for rule in broken), self._trace(number)
        return bool(figures.broken)

    def _add(self, state: int, parent: int, name: str) -> int:
        number = self._number[state] = len(self._number)
        self._parents.append(parent)
        self._names.append(self._labels.number(name))
        return number

    def _trace(self, number: int) -> tuple[str, ...]:
        names = []
        while number:
            names.append(self._labels.values[self._names[number]])
            number = self._parents[number]
        return tuple(reversed(names))

    def _look_for_circles(self, figures: Figures) -> None:
        """A circle is a fault unless a step that could leave it is possible in each of its states."""
        sources, targets, labels = (np.asarray(edge) for edge in self._edges)
        if not len(sources):
            return
        shape = (len(self._number),) * 2
        graph = coo_array((np.ones(len(sources), np.int8), (sources, targets)), shape=shape)
        _, component = connected_components(graph, directed=True, connection="strong")
        sizes = np.bincount(component)
        inside = (component[sources] == component[targets]) & (sizes[component[sources]] > 1)
        for circle in np.unique(component[sources[inside]]):
            mine = component[sources] == circle
            leaving = set(labels[mine & ~inside].tolist()) - set(labels[mine & inside].tolist())
            size = int(sizes[circle])
            if not any(len(np.unique(sources[mine & (labels == label)])) == size for label in leaving):
                first = int(np.flatnonzero(component == circle)[0])
                names = sorted({self._labels.values[label] for label in labels[mine & inside]})
                figures.broken = (f"never at rest: {size} states follow each other in circles by {', '.join(names)}",)
                figures.trace = self._trace(first)
                return


def replay(space: Space, trace: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Take the steps of a trace one after the other; yields the name of each and the rules that it breaks.

    Raises:
        ValueError: a step is not possible where the trace has it.
    """
    state = space.first
    for name in trace:
        possible = list(space.steps(state))
        step = next((step for step in possible if step.name == name), None)
        if step is None:
            names = ", ".join(step.name for step in possible)
            raise ValueError(f"step {name!r} is not possible here; possible are: {names}")
        yield name, step.broken
        if step.broken:
            return
        state = step.state
    if all(not step.is_free or step.state == state for step in space.steps(state)):
        yield "(at rest)", tuple(space.rest(state))
