"""Trainers that train in step with a group, in virtual time: they join, leave, are killed, and the master restarts.

A model is the list of the steps that it was trained on. A collective either reaches everybody, or fails for some of
the trainers after others have applied the step, as it does when a process is killed in the middle.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field

from edl.ledger.audit import Audit
from edl.ledger.events import DatasetSet, Event, decode_events, encode_events
from edl.ledger.group import Group
from edl.ledger.group_values import EnterRequest, FormedWorld, GroupSettings
from edl.ledger.ledger import Ledger
from edl.ledger.request import SessionKey
from edl.ledger.snapshot import state_from_json, state_to_json
from edl.ledger.state import LedgerState

SETTINGS = GroupSettings()


@dataclass(eq=False)
class StepTrainer:
    """A trainer: its model is the list of ranges that it was trained on; None without a state."""

    key: SessionKey
    model: list[tuple[int, int]] | None = None
    position: int = 0
    world: FormedWorld | None = None
    generation: int = 0
    waits: bool = True
    must_copy: bool = False
    is_leaving: bool = False
    has_ended: bool = False

    @property
    def claimed(self) -> int | None:
        return None if self.model is None else self.position


@dataclass
class StepWorld:
    """A master and its trainers.

    Args:
        seed: of every choice.
        total: positions of an epoch.
        batch: positions of a step.
    """

    seed: int
    total: int = 50
    epochs: int = 2
    batch: int = 7
    now_s: float = 1000.0
    journal: list[Event] = field(default_factory=list)
    trainers: list[StepTrainer] = field(default_factory=list)
    saved: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - not a secret
        self.ledger = Ledger()
        self.ledger.set_dataset(DatasetSet(f"index:{self.total}", "", self.total, self.epochs, 0, None, 1.0, 0))
        self.group = Group(self.ledger, SETTINGS, self.now_s)
        self.started = 0
        self.record()

    @property
    def end(self) -> int:
        return self.total * self.epochs

    def record(self) -> None:
        self.journal += decode_events(encode_events(self.ledger.take_events()))

    def start(self) -> StepTrainer:
        self.started += 1
        trainer = StepTrainer(SessionKey(f"pod-{self.started}", 1, f"t{self.started}"))
        self.trainers.append(trainer)
        return trainer

    def restart_master(self) -> None:
        self.faults["restart"] += 1
        self.ledger.take_events()
        state = LedgerState()
        for event in self.journal:
            state.apply(event)
        self.ledger = Ledger(state_from_json(json.loads(json.dumps(state_to_json(state)))))
        self.ledger.resume(self.now_s)
        self.group = Group(self.ledger, SETTINGS, self.now_s)

    def call(self, trainer: StepTrainer) -> None:
        """One call of a trainer: it watches, and asks for a world if it waits for one."""
        self.group.watch(trainer.key, trainer.generation, trainer.claimed, self.now_s)
        if trainer.waits:
            request = EnterRequest(trainer.generation, trainer.claimed, f"at-{trainer.key.name}", 1)
            world = self.group.enter(trainer.key, request, self.now_s)
            self.record()
            lost = self.random.random() < 0.1
            if world is not None and not lost:
                trainer.waits, trainer.world, trainer.generation = False, world, world.generation
                trainer.must_copy = any(member.position != world.position for member in world.members)
                if world.members[world.rank].position is None:
                    trainer.model = None
            elif lost:
                self.faults["lost answer"] += 1
            trainer.has_ended = self.ledger.state.is_finished
        self.record()

    def peers(self, trainer: StepTrainer) -> list[StepTrainer] | None:
        """The trainers of its world by rank, if all of them are there."""
        assert trainer.world is not None
        names = [member.name for member in trainer.world.members]
        found = {other.key.name: other for other in self.trainers}
        peers = [found.get(name) for name in names]
        here = [p for p in peers if p is not None and not p.waits and p.generation == trainer.generation]
        return here if len(here) == len(names) else None

    def step(self, trainer: StepTrainer) -> None:
        """A step of a world: of all of its trainers, of some of them, or a failure for all."""
        if trainer.waits or trainer.has_ended or trainer.world is None:
            return
        peers = self.peers(trainer)
        if peers is None:  # somebody has left or failed: the collective fails
            trainer.waits = True
            return
        world = trainer.world
        if any(peer.must_copy for peer in peers):
            self.copy_state(world, peers)
            return
        start = trainer.position
        assert all(peer.position == start for peer in peers), "the trainers of a world differ"
        if start == self.end:
            for peer in peers:
                peer.waits = True
            return
        epoch_end = (start // self.total + 1) * self.total
        end = min(start + self.batch, epoch_end)
        is_broken = self.random.random() < 0.05
        applied = self.random.sample(peers, self.random.randrange(len(peers))) if is_broken else peers
        must_change = any(peer.is_leaving or self.group.must_change(peer.key, peer.generation) for peer in peers)
        for peer in applied:
            assert peer.model is not None
            peer.model, peer.position = [*peer.model, (start, end)], end
        for peer in peers:
            peer.waits = is_broken or must_change
        self.faults["broken step"] += is_broken
        if not is_broken:
            self.leave([peer for peer in peers if peer.is_leaving])
            if self.random.random() < 0.1:
                self.save(peers[0])

    def copy_state(self, world: FormedWorld, peers: list[StepTrainer]) -> None:
        """The trainers of a new world copy the model of the source; it may be killed while they do."""
        positions = [member.position for member in world.members]
        if world.checkpoint is not None:
            model = self.saved.get(world.checkpoint, [])
            source = 0
        else:
            source = positions.index(world.position)
            kept = peers[source].model
            assert kept is not None
            assert peers[source].position == world.position
            model = kept
        reached = self.random.randrange(len(peers) + 1) if self.random.random() < 0.1 else len(peers)
        self.faults["broken copy"] += reached < len(peers)
        for rank, peer in enumerate(peers):
            if rank < reached or rank == source:
                peer.model, peer.position = list(model), world.position
            peer.must_copy = False
            peer.waits = reached < len(peers)

    def save(self, trainer: StepTrainer) -> None:
        """Save the model of a trainer, once its steps are counted."""
        if trainer not in self.trainers or self.ledger.position != trainer.position:
            return
        number = self.ledger.begin_checkpoint(trainer.key, trainer.position)
        assert trainer.model is not None
        self.saved[number] = list(trainer.model)
        if self.random.random() < 0.8:
            self.ledger.commit_checkpoint(number)
        self.record()

    def leave(self, leaving: list[StepTrainer]) -> None:
        for trainer in leaving:
            self.faults["leave"] += 1
            self.group.leave(trainer.key, trainer.generation, trainer.claimed, self.now_s)
            self.trainers.remove(trainer)
            self.record()

    def kill(self, trainer: StepTrainer) -> None:
        self.faults["kill"] += 1
        self.trainers.remove(trainer)
        self.group.unwatch(trainer.key, self.now_s, dropped=True)

    def drop(self, trainer: StepTrainer) -> None:
        """The connection of a trainer breaks, and it does not notice for a while."""
        self.faults["drop"] += 1
        self.group.unwatch(trainer.key, self.now_s, dropped=True)
        self.advance(0.4)

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        self.ledger.tick(self.now_s)
        self.group.tick(self.now_s)
        self.record()

    def random_step(self) -> None:
        """One random thing happens."""
        choice, trainers = self.random.random(), self.trainers
        if not trainers or (choice < 0.03 and len(trainers) < 5):
            self.start()
            return
        trainer = self.random.choice(trainers)
        if choice < 0.035:
            self.kill(trainer)
        elif choice < 0.04:
            trainer.is_leaving = True
        elif choice < 0.042:
            self.drop(trainer)
        elif choice < 0.045:
            self.restart_master()
        elif choice < 0.1:
            self.advance(self.random.choice([0.1, 0.5, 1.0]))
        elif choice < 0.6:
            self.call(trainer)
        else:
            self.step(trainer)
        self.check()

    def check(self) -> None:
        """No counted step is missing in a model that belongs to the last world."""
        world = self.ledger.state.world
        for trainer in self.trainers:
            if world is not None and trainer.model is not None and trainer.generation == world.generation:
                assert is_partition(trainer.model, trainer.position), "a model lacks a step, or has one twice"

    def run(self, steps: int = 100_000) -> list[tuple[int, int]]:
        """Train to the end; returns the steps of a model that has reached it."""
        for _ in range(steps):
            self.random_step()
            if self.ledger.state.is_finished:
                done = [t for t in self.trainers if t.model is not None and t.position == self.end]
                world = self.ledger.state.world
                assert world is not None
                for trainer in done:
                    if trainer.generation == world.generation:
                        assert trainer.model is not None
                        return trainer.model
                return []
        raise AssertionError("the job does not end")

    def audit(self) -> list[str]:
        """The broken rules of the journal; the trainers of each epoch have done what is done, and no more."""
        audit, state = Audit(LedgerState()), LedgerState()
        for event in self.journal:
            audit.follow(event)
            state.apply(event)
        wrong = [epoch for epoch in audit.finish(state) if epoch.done_by.total() != epoch.done]
        return [*audit.problems, *(f"epoch {epoch.epoch}: {epoch.done} are not {epoch.done_by}" for epoch in wrong)]


def is_partition(model: list[tuple[int, int]], position: int) -> bool:
    """True if the steps of a model are [0, position), each position once."""
    places = [0, *(end for _, end in model)]
    return [start for start, _ in model] == places[:-1] and places[-1] == position
