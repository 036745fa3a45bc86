"""The mix of a seed: nodes, jobs of three kinds with their bounds and times of arrival, and waves of serving.

Each trainer and each pserver asks for one cpu. Serving is never so large that the minimum of a job is in its way,
however the minimums lie on the nodes. So no job may ever be stopped once it runs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from edl.model.names import WorkloadKind

CORES = 8
"""Cpus of each node."""

KINDS = (WorkloadKind.TRAINING_JOB, WorkloadKind.BATCH_JOB, WorkloadKind.VOLCANO_JOB)
_MOST_CORES_OF_SERVING = 3
_WAVES = 3


@dataclass(frozen=True, slots=True)
class Member:
    """One job of a mix.

    Attributes:
        name: unique in the mix.
        kind: what the job is.
        low, high: how many trainers it may have.
        pservers: how many pods of one cpu it needs besides; a `batch/v1` Job has none.
        wave: the number of the wave before which it arrives; 0 is the first.
    """

    name: str
    kind: WorkloadKind
    low: int
    high: int
    pservers: int
    wave: int

    @property
    def fixed(self) -> int:
        """How many pods it has besides its trainers: a TrainingJob also has a master."""
        return self.pservers + (self.kind is WorkloadKind.TRAINING_JOB)


@dataclass(frozen=True, slots=True)
class Wave:
    """How many serving pods there are for a while, and how many cpus each asks for."""

    pods: int
    cores: int


@dataclass(frozen=True, slots=True)
class Mix:
    """One mix; `nodes` is their number."""

    seed: int
    nodes: int
    members: tuple[Member, ...]
    waves: tuple[Wave, ...]

    @property
    def alone(self) -> Mix:
        """The same bounds, arrivals and waves with TrainingJobs alone."""
        members = tuple(replace(member, kind=WorkloadKind.TRAINING_JOB) for member in self.members)
        return replace(self, members=members)


def mix_of(seed: int) -> Mix:
    """The mix of a seed: four or five jobs, each kind among them, and three waves."""
    chance = random.Random(seed)  # noqa: S311 - not a secret
    kinds = [*KINDS, *chance.choices(KINDS, k=chance.randint(1, 2))]
    chance.shuffle(kinds)
    members = tuple(_member(chance, number, kind) for number, kind in enumerate(kinds))
    needed = sum(member.low + member.pservers + 1 for member in members)  # room for a master each, for `alone`
    nodes = -(-needed // CORES) + chance.randint(1, 2)
    waves = tuple(_wave(chance, nodes, needed) for _ in range(_WAVES))
    return Mix(seed, nodes, members, waves)


def _member(chance: random.Random, number: int, kind: WorkloadKind) -> Member:
    low = chance.randint(1, 3)
    pservers = 0 if kind is WorkloadKind.BATCH_JOB else chance.randint(0, 2)
    wave = 0 if number < 2 else chance.randint(0, _WAVES - 1)
    name = f"{kind.name.lower().split('_')[0]}-{number}"
    return Member(name, kind, low, low + chance.randint(2, 12), pservers, wave)


def _wave(chance: random.Random, nodes: int, needed: int) -> Wave:
    """A wave that fits beside the minimums, if each node wastes as much as it can."""
    cores = chance.randint(1, _MOST_CORES_OF_SERVING)
    most = (nodes * (CORES - cores + 1) - needed) // cores
    return Wave(chance.randint(max(1, most // 2), max(1, most)), cores)
