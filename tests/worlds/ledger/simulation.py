"""A master, its journal, trainers, and a network that loses, repeats and reorders messages, all in virtual time.

Each step compares the ledger with the reference ledger of `by_position`. The trainers behave as `edl.worker`
does, so that the test can check what they hold.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from edl.errors import ConflictError
from edl.ledger.dispatch import LedgerSettings
from edl.ledger.events import DatasetSet, Event, Replied, Returned, decode_events, encode_events
from edl.ledger.intervals import IntervalSet
from edl.ledger.ledger import Ledger
from edl.ledger.request import SessionKey
from edl.ledger.snapshot import state_from_json, state_to_json
from edl.ledger.state import LedgerState
from tests.worlds.ledger.by_position import ReferenceLedger

FORGERIES = ("session", "epoch", "fence", "start", "end")
SETTINGS = LedgerSettings(ttl_s=30.0, target_s=45.0, split_s=10.0, stall_s=100_000.0, forget_s=1e9)


@dataclass(frozen=True)
class Item:
    epoch: int
    start: int
    end: int
    fence: int
    cursor: int = 0
    hand: int = 0
    error: str = ""


@dataclass(frozen=True)
class Request:
    seq: int
    done: tuple[Item, ...] = ()
    failed: tuple[Item, ...] = ()
    progress: tuple[Item, ...] = ()
    want: int = 0


@dataclass
class Held:
    """A lease as its holder knows it."""

    epoch: int
    start: int
    end: int
    fence: int
    deadline_s: float
    cursor: int

    @property
    def item(self) -> Item:
        return Item(self.epoch, self.start, self.end, self.fence, cursor=self.cursor)


@dataclass(eq=False)
class Trainer:
    key: SessionKey
    seq: int = 0
    request: Request | None = None
    sent_s: float = 0.0
    held: dict[int, Held] = field(default_factory=dict)
    failing: dict[int, str] = field(default_factory=dict)
    accepted: list[Item] = field(default_factory=list)
    ended: bool = False


class World:
    def __init__(self, total: int = 40, epochs: int = 2, *, shard_size: int | None = None, trainers: int = 3) -> None:
        self.now_s = 1000.0
        self.journal: list[bytes] = []
        self.unsynced: list[tuple[bytes, list[tuple[Trainer, int, Replied]]]] = []
        self.ledger = Ledger(settings=SETTINGS)
        self.reference = ReferenceLedger()
        self.requests: list[tuple[Trainer, Request]] = []
        self.replies: list[tuple[Trainer, int, Replied]] = []
        self.incarnation = self.generation = 0
        self.trainers = [self.new_trainer(i) for i in range(trainers)]
        self.first_replies: dict[tuple[SessionKey, int], Replied] = {}
        self.bad: set[int] = set()
        self.quarantine_expected = False
        self.faults = Counter[str]()
        self.ledger.set_dataset(DatasetSet(f"index:{total}", "", total, epochs, 0, shard_size, 1.0, 0))
        self.record()
        self.flush()

    def new_trainer(self, index: int) -> Trainer:
        self.incarnation += 1
        return Trainer(SessionKey(f"pod-{index}", self.incarnation, f"trainer-{index}"))

    # --- the master

    def record(self, replies: list[tuple[Trainer, int, Replied]] | None = None) -> None:
        events = self.ledger.take_events()
        if events or replies:
            self.unsynced.append((encode_events(events) if events else b"", replies or []))
        self.check_expiries(events)

    def check_expiries(self, events: list[Event]) -> None:
        """A lease must not expire for the master before it expires for its holder."""
        gone = {event.fence for event in events if isinstance(event, Returned) and event.why == "expired"}
        for trainer in self.trainers:
            for held in trainer.held.values():
                assert held.fence not in gone or held.deadline_s <= self.now_s, (
                    "the master took a lease back while its holder was training"
                )

    def flush(self, count: int | None = None) -> None:
        """Sync the journal: the records become durable, and their replies are sent."""
        for record, replies in self.unsynced[:count]:
            if record:
                self.journal.append(record)
                for event in decode_events(record):
                    self.reference.apply(event)
            for trainer, seq, reply in replies:
                if reply.leases or reply.truncate or "accepted" in reply.results:
                    self.first_replies.setdefault((trainer.key, seq), reply)
            self.replies += replies
        del self.unsynced[:count]

    def crash(self) -> None:
        """Restart the master: records that were not synced are lost, and so are the replies that waited for them."""
        self.faults["crash"] += 1
        self.unsynced.clear()
        state = LedgerState()
        for record in self.journal:
            for event in decode_events(record):
                state.apply(event)
        self.ledger = Ledger(state_from_json(json.loads(json.dumps(state_to_json(state)))), SETTINGS)
        self.ledger.resume(self.now_s)

    def handle(self, trainer: Trainer, request: Request) -> None:
        self.ledger.expire(self.now_s)
        self.record()
        before = places_of(self.ledger.state)
        known = self.ledger.state.session_by_process.get((trainer.key.pod_uid, trainer.key.incarnation))
        truncate_at = known is not None and any(lease.truncate_at is not None for lease in known.leases.values())
        is_new = known is None
        try:
            reply = self.ledger.sync(trainer.key, request, self.now_s)
        except ConflictError:
            assert not self.ledger.take_events(), "a refused request changed the ledger"
            return
        self.check_first(trainer, request.seq, reply)
        acts = "accepted" in reply.results or reply.leases or truncate_at or is_new
        assert acts or places_of(self.ledger.state) == before, "a stale report had an effect"
        self.record([(trainer, request.seq, reply)])

    def check_first(self, trainer: Trainer, seq: int, reply: Replied) -> None:
        """A repeated request gets the first reply, if that was synced."""
        was = self.first_replies.get((trainer.key, seq))
        if was is not None:
            assert reply == was, "a repeated seq got another reply"

    # --- the network

    def deliver(self, index: int, *, again: bool = False) -> None:
        if self.requests:
            index %= len(self.requests)
            trainer, request = self.requests[index]
            if again:
                self.faults["repeated request"] += 1
            else:
                del self.requests[index]
            self.handle(trainer, request)

    def answer(self, index: int, *, again: bool = False) -> None:
        if self.replies:
            index %= len(self.replies)
            trainer, seq, reply = self.replies[index]
            if not again:
                del self.replies[index]
            self.receive(trainer, seq, reply)

    def lose_request(self, index: int) -> None:
        if self.requests:
            self.faults["lost request"] += 1
            del self.requests[index % len(self.requests)]

    def lose_reply(self, index: int) -> None:
        if self.replies:
            self.faults["lost reply"] += 1
            del self.replies[index % len(self.replies)]

    # --- the trainers

    def ask(self, number: int, want: int) -> None:
        trainer = self.trainers[number]
        if trainer.request is None:
            trainer.seq += 1
            trainer.sent_s = self.now_s
            held = [h for h in trainer.held.values() if h.deadline_s > self.now_s]
            done = tuple(h.item for h in held if h.cursor == h.end and h.fence not in trainer.failing)
            failed = tuple(
                replace(h.item, error=trainer.failing[h.fence]) for h in held if h.fence in trainer.failing
            )
            progress = tuple(h.item for h in held if h.cursor < h.end)
            trainer.request = Request(trainer.seq, done, failed, progress, want)
        self.requests.append((trainer, trainer.request))

    def receive(self, trainer: Trainer, seq: int, reply: Replied) -> None:
        if trainer.request is None or trainer.request.seq != seq:
            return
        for item, result in zip([*trainer.request.done, *trainer.request.failed], reply.results, strict=True):
            held = trainer.held.get(item.fence)
            if held is not None and (held.epoch, held.start, held.end) == (item.epoch, item.start, item.end):
                del trainer.held[item.fence]  # else the item was forged, and the trainer still holds the lease
            if result != "stale" and not item.error:
                trainer.accepted.append(item)
        trainer.request = None
        for fence in reply.revoked:
            trainer.held.pop(fence, None)
        for held in trainer.held.values():
            held.deadline_s = max(held.deadline_s, trainer.sent_s + SETTINGS.ttl_s)
        for epoch, start, end, fence in reply.leases:
            trainer.held[fence] = Held(epoch, start, end, fence, trainer.sent_s + SETTINGS.ttl_s, start)
        for fence, end in reply.truncate:
            if fence in trainer.held:
                self.shorten(trainer, trainer.held[fence], end)
        trainer.ended = reply.status == "job_end"

    @staticmethod
    def shorten(trainer: Trainer, held: Held, end: int) -> None:
        held.end = max(end, held.cursor)
        if held.end == held.start:
            del trainer.held[held.fence]

    def work(self, number: int, count: int) -> None:
        trainer = self.trainers[number]
        for held in trainer.held.values():
            while count and held.cursor < held.end and held.deadline_s > self.now_s:
                if held.fence in trainer.failing:
                    break
                if held.cursor in self.bad:
                    trainer.failing[held.fence] = "bad record"
                    self.quarantine_expected = True
                    break
                held.cursor += 1
                count -= 1

    def give_back(self, number: int) -> None:
        trainer = self.trainers[number]
        for held in list(trainer.held.values())[-1:]:
            trainer.failing.setdefault(held.fence, "")

    def kill(self, number: int) -> None:
        self.faults["kill"] += 1
        self.trainers[number].held.clear()  # its requests are still under way
        self.trainers[number] = self.new_trainer(number)

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        self.ledger.tick(self.now_s)
        self.record()

    # --- what must hold

    def forge(self, number: int, change: str) -> None:
        """A trainer reports a lease that differs from the current one: it must be stale and have no effect."""
        state = self.ledger.state
        for lease in state.leases.values():
            owner = state.sessions[lease.session]
            item = Item(state.epoch, lease.start, lease.end, lease.fence, cursor=lease.end)
            is_owner = owner.pod_uid == self.trainers[number].key.pod_uid
            if is_owner == (change == "session"):
                continue
            trainer = self.trainers[number]
            wrong = {
                "session": item,
                "epoch": replace(item, epoch=item.epoch + 1),
                "fence": replace(item, fence=item.fence + 10_000),
                "start": replace(item, start=item.start - 1),
                "end": replace(item, end=item.end + 1),
            }[change]
            if trainer.request is None:
                self.faults["forgery"] += 1
                trainer.sent_s = self.now_s
                trainer.seq += 1
                trainer.request = Request(trainer.seq, done=(wrong,), progress=(wrong,))
                self.requests.append((trainer, trainer.request))
                self.handle(trainer, trainer.request)
                session = state.session_by_process.get((trainer.key.pod_uid, trainer.key.incarnation))
                if session is not None and session.seq == trainer.seq and session.last_reply is not None:
                    assert session.last_reply.results == ["stale"]
            return

    def save(self, number: int) -> None:
        self.flush()
        state, key = self.ledger.state, self.trainers[number].key
        if state.is_open and (state.roster is None or key.pod_uid in state.roster_uids):
            self.ledger.begin_checkpoint(key, state.serial)
            self.record()

    def commit(self, index: int) -> None:
        numbers = sorted(self.ledger.state.checkpoints)
        if numbers:
            self.ledger.commit_checkpoint(numbers[index % len(numbers)])
            self.record()

    def restore(self) -> None:
        self.flush()
        if not self.ledger.state.is_open:
            return
        self.faults["restore"] += 1
        number = self.ledger.restore(None)
        self.record()
        self.flush()
        state = self.ledger.state
        assert not state.leases, "a restore left a lease"
        kept = state.checkpoints[number].done if number else IntervalSet()
        assert [*state.committed] == [*kept]
        assert not state.reported
        assert max(state.checkpoints, default=0) <= number, "a checkpoint of what was undone is kept"
        for trainer in self.trainers:  # results after the checkpoint do not count any more
            trainer.accepted = [i for i in trainer.accepted if i.epoch < state.epoch or kept.covers(i.start, i.end)]

    def list_pods(self, numbers: set[int]) -> None:
        self.faults["roster"] += 1
        self.generation += 1
        uids = {self.trainers[n].key.pod_uid for n in numbers if n < len(self.trainers)}
        self.ledger.set_roster(self.generation, uids)
        self.record()
        leases = self.ledger.state.leases.values()
        assert {self.ledger.state.sessions[lease.session].pod_uid for lease in leases} <= uids

    def check(self) -> None:
        """Compare the ledger with the reference ledger, and the journal with the state."""
        self.flush()
        self.check_places()
        assert state_to_json(replayed(self.journal)) == state_to_json(self.ledger.state)

    def check_places(self) -> None:
        """Every position is in one place; if every record is synced, the reference ledger agrees about it."""
        state, reference = self.ledger.state, self.reference
        if not state.is_finished:
            places = [""] * state.total
            for place, ranges in places_of(state).items():
                for start, end in ranges:
                    assert not any(places[start:end]), "a position is in two places"
                    places[start:end] = [place] * (end - start)
            assert all(places), "a position is lost"
            quarantined = [p for p in range(state.total) if places[p] == "quarantined"]
            assert all(self.quarantine_expected for _ in quarantined)
            if not self.unsynced:
                assert state.epoch == reference.epoch
                assert reference.place == ["todo" if p == "quarantined" else p for p in places]

    def finish(self) -> None:
        """With one trainer and a reliable network, the job must end."""
        self.flush()
        self.requests, self.replies = [], []
        if self.ledger.state.roster is not None:
            self.list_pods({0})
        for _ in range(150):
            self.ask(0, 16)
            self.deliver(-1)
            self.flush()
            self.answer(-1)
            if self.trainers[0].ended:
                break
            self.work(0, 1000)
            self.advance(4.0)
        else:
            raise AssertionError("a live trainer makes requests, and the job does not end")
        self.check()
        self.check_accepted()

    def check_accepted(self) -> None:
        """Each accepted report counts, in a closed epoch or in the open one."""
        done = IntervalSet(sorted([*self.ledger.state.reported, *self.ledger.state.committed]))
        for trainer in self.trainers:
            for item in trainer.accepted:
                assert item.epoch < self.ledger.state.epoch or done.covers(item.start, item.end)


def places_of(state: LedgerState) -> dict[str, list[tuple[int, int]]]:
    return {
        "todo": [*state.todo, *((start, end) for start, (end, _) in state.suspects.items())],
        "leased": [(lease.start, lease.end) for lease in state.leases.values()],
        "done": [*state.reported, *state.committed],
        "quarantined": [*state.quarantined],
    }


def replayed(journal: list[bytes]) -> LedgerState:
    state = LedgerState()
    for record in journal:
        for event in decode_events(record):
            state.apply(event)
    return state


def run(seed: int, steps: int = 150) -> World:
    """One history of faults; the seed decides all of it."""
    draw = random.Random(seed)  # noqa: S311 - faults, not secrets
    world = World(draw.choice([7, 40, 200]), shard_size=draw.choice([None, 1, 5]), trainers=draw.choice([1, 2, 4]))
    if draw.random() < 0.3:
        world.bad = {draw.randrange(7)}
    steps_to_draw: list[tuple[float, Callable[[int, int], object]]] = [
        (25, lambda n, _: world.ask(n, draw.choice([0, 1, 2, 4]))),
        (20, lambda _, i: world.deliver(i, again=draw.random() < 0.2)),
        (15, lambda _n, _i: world.flush(draw.choice([None, 1]))),
        (15, lambda _, i: world.answer(i, again=draw.random() < 0.2)),
        (12, lambda n, _: world.work(n, draw.choice([1, 3, 50]))),
        (3, lambda _, i: world.lose_request(i)),
        (2, lambda _, i: world.lose_reply(i)),
        (5, lambda _n, _i: world.advance(draw.choice([0.1, 1.0, 5.0, 29.5, 31.0]))),
        (1, lambda n, _: world.give_back(n)),
        (1, lambda n, _: world.kill(n)),
        (1, lambda n, _: world.forge(n, draw.choice(FORGERIES))),
        (1, lambda n, _: world.save(n)),
        (1, lambda _, i: world.commit(i)),
        (0.3, lambda _n, _i: world.restore()),
        (0.3, lambda _n, _i: world.list_pods({draw.randrange(4), draw.randrange(4)})),
        (1, lambda _n, _i: world.crash()),
    ]
    chosen = draw.choices([step for _, step in steps_to_draw], [weight for weight, _ in steps_to_draw], k=steps)
    for number, step in enumerate(chosen):
        step(draw.randrange(len(world.trainers)), draw.randrange(100))
        if number % 10 == 0:
            world.check()
    world.finish()
    return world


def main(wanted: int) -> None:
    """Run histories until that many faults have happened: `python -m tests.worlds.ledger.simulation 100000`."""
    faults, seed = Counter[str](), 0
    while sum(faults.values()) < wanted:
        faults += run(seed).faults
        seed += 1
    print(f"{sum(faults.values())} faults in {seed} histories; no position was lost or counted twice: {dict(faults)}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
