"""What trainers in step and their master tell each other about worlds: settings, requests and answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The time limits of a group, in seconds.

    Attributes:
        reconnect_s: a trainer whose connection broke is lost if it does not come back within this time; at once if
            its peers lost it, too.
        unwatched_s: a trainer that does not watch for this long, and whose process is not seen alive, is lost.
        regroup_s: once a trainer waits for the next world, the others of its world must follow within this time.
        first_s: the first world waits this long for its full number of trainers.
    """

    reconnect_s: float = 0.3
    unwatched_s: float = 5.0
    regroup_s: float = 45.0
    first_s: float = 60.0


class EnterRequest(NamedTuple):
    """The request of a trainer to join the next world.

    Attributes:
        generation: the generation of its last world; 0 if it has had none.
        position: how far its model is; None if it has no state of this job.
        endpoint: where the others of its world reach it; the group only passes it on.
        min_size: how many trainers the first world should have.
        settings: how it divides the epoch into steps; the same text for every trainer.
    """

    generation: int
    position: int | None
    endpoint: str
    min_size: int
    settings: str = ""


class WorldMember(NamedTuple):
    """A trainer of a world."""

    name: str
    endpoint: str
    position: int | None


class FormedWorld(NamedTuple):
    """A world, as one of its trainers gets it.

    Attributes:
        rank: the rank of the trainer.
        position: where the first step begins, counted through all epochs.
        checkpoint: what rank 0 loads first; 0 is a new model, None if a trainer has the state.
        members: rank -> trainer.
    """

    generation: int
    rank: int
    position: int
    checkpoint: int | None
    members: tuple[WorldMember, ...]


class Speed(NamedTuple):
    """The useful progress of a number of trainers.

    Attributes:
        trainers: at least 1.
        per_s: records of the smallest batch to which the progress of a second is equal.
        is_measured: False if the job has not had so many trainers yet.
        batch: the records of a step that make this progress.
        efficiency: what one of them advances the training compared with a record of the smallest batch, in (0, 1].
    """

    trainers: int
    per_s: float
    is_measured: bool
    batch: int
    efficiency: float


class Goodput(NamedTuple):
    """What the trainers of a job that chooses its global batch have reported last.

    Attributes:
        batch: records of a step.
        noise_scale: of the gradients, in records; None until it is known.
        speeds: by number of trainers.
    """

    batch: int
    noise_scale: float | None
    speeds: tuple[Speed, ...]

    @property
    def shown(self) -> dict[str, object]:
        """The goodput in the form of the master's status."""
        return {**self._asdict(), "speeds": [speed._asdict() for speed in self.speeds]}


class Loss(NamedTuple):
    """A trainer for which the others do not wait any more, and why."""

    name: str
    generation: int
    reason: str
