"""`spec.topology`: the levels of a cluster, how strictly a job keeps to a domain of each, and slices of trainers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from edl.api.base import Part, Rule, Values, keyed_list, unique_by
from edl.api.roles import MAX_INSTANCES
from edl.model.topology import Level, Slices, Topology, TopologyMode

MOST_LEVELS = 8
LABEL_KEY = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"


class LevelSpec(Part):
    """One level of a topology, such as the racks."""

    key: Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_KEY)]
    """Node label; nodes with the same values of it and of the labels of all wider levels are one domain."""
    mode: Annotated[TopologyMode, Field(strict=False)] = TopologyMode.PREFERRED
    """Required: all trainers and pservers in one domain. Preferred: in as few domains as cost no trainer."""


class SliceSpec(Part):
    """Trainers that are of use together alone, such as those of one NVLink domain."""

    size: Annotated[int, Field(ge=2, le=MAX_INSTANCES)]
    """Number of trainers of a slice; the number of trainers is a multiple of it."""
    key: Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_KEY)] | None = None
    """Label of the level; each slice is in one domain of it. By default the narrowest level."""


def _check_one_way(topology: TopologySpec) -> Iterator[Values]:
    if (topology.key is None) == (not topology.levels):
        yield {}


def _check_mode(topology: TopologySpec) -> Iterator[Values]:
    if topology.key is None and topology.levels and topology.mode is not TopologyMode.PREFERRED:
        yield {}


def _check_required(topology: TopologySpec) -> Iterator[Values]:
    required = [level.key for level in topology.levels if level.mode is TopologyMode.REQUIRED]
    if len(required) > 1:
        yield {"keys": f" ({' and '.join(required)})"}


def _check_slice_key(topology: TopologySpec) -> Iterator[Values]:
    wanted = topology.slice.key if topology.slice else None
    if wanted is not None and wanted not in [level.key for level in topology.all_levels]:
        yield {"key": wanted}


class TopologySpec(Part):
    """Which nodes are near each other, and how strictly the trainers stay on such nodes."""

    key: Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_KEY)] | None = None
    """Node label of the only level; nodes with the same value of it are one domain, such as a rack."""
    mode: Annotated[TopologyMode, Field(strict=False)] = TopologyMode.PREFERRED
    """Required: all trainers and pservers in one domain. Preferred: as many in one domain as cost no trainer."""
    levels: Annotated[list[LevelSpec], AfterValidator(unique_by("key"))] = keyed_list("key", limit=MOST_LEVELS)
    """Instead of key and mode: several levels, the widest first; at most one is Required."""
    slice: SliceSpec | None = None
    """Trainers come and go in slices, each of which is in one domain; by default one by one."""

    rules = (
        Rule(
            cel="has(self.key) != (has(self.levels) && size(self.levels) > 0)",
            message="exactly one of key and levels must be set; key is the short form of one level",
            check=_check_one_way,
        ),
        Rule(
            cel="has(self.key) || !has(self.levels) || size(self.levels) == 0 || !has(self.mode) || "
            "self.mode == 'Preferred'",
            message="mode belongs to key, and levels are set; set the mode of one of the levels",
            check=_check_mode,
        ),
        Rule(
            cel="!has(self.levels) || "
            "self.levels.filter(level, has(level.mode) && level.mode == 'Required').size() <= 1",
            message="more than one level is Required{keys}; keep the narrowest, from which the wider ones follow",
            check=_check_required,
        ),
        Rule(
            cel="!has(self.slice) || !has(self.slice.key) || (has(self.key) && self.slice.key == self.key) || "
            "(has(self.levels) && self.levels.exists(level, level.key == self.slice.key))",
            message="slice.key {key} is the label of no level; name one of them, or leave it out for the narrowest",
            check=_check_slice_key,
        ),
    )

    @property
    def all_levels(self) -> list[LevelSpec]:
        """The levels in either way of writing them, the widest first."""
        return self.levels or ([LevelSpec(key=self.key, mode=self.mode)] if self.key is not None else [])

    @property
    def model(self) -> Topology:
        """The topology as the planner knows it; the rules must hold."""
        levels = tuple(Level(level.key, level.mode) for level in self.all_levels)
        slices = None
        if self.slice is not None:
            keys = [level.key for level in levels]
            slices = Slices(self.slice.size, keys.index(self.slice.key or keys[-1]) + 1)
        return Topology(levels, slices)
