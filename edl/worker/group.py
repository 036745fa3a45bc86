"""A trainer's place among trainers that train in step: it asks the master for worlds, and learns when to ask again.

A thread always has one call under way at the master. With it the master sees that the process lives and how far its
model is, and the trainer learns that its world should end with the next step. The thread is no part of a step: a
world trains on while the master does not answer.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from edl.errors import EdlError, PermanentError, TemporaryError
from edl.worker.heartbeat import Heartbeat
from edl.worker.session import MasterSession

_HOLD_S = 5.0
_REPORT_EVERY_S = 0.5
_LONGEST_ERROR = 2000
_ENTER_S, _LEAVE_S, _LAST_WORLD_S = 2.0, 5.0, 10.0
_DONE_PAUSE_S, _DONE_TIMEOUT_S = 0.02, 30.0


class World(NamedTuple):
    """The trainers that train in step, as one of them sees it.

    Attributes:
        generation: grows with each world of the job.
        rank: the rank of this trainer, from 0.
        size: how many trainers it has.
        position: where the first step begins: epoch * records + position in the epoch.
        source: the rank whose state the others copy.
        must_copy: some trainer does not have that state yet.
        checkpoint: what the source loads first; 0 is a new model, None if it has the state.
        endpoints: rank -> where the others reach it.
        has_state: this trainer has a state of this job, maybe an older one.
        names: rank -> name of the trainer.
        holders: the ranks that have the state, in their order.
        key: a secret of the trainers of this world, made of the token of the job: the name under which they find each
            other. Who does not know it can neither join nor pass for one of them.
    """

    generation: int
    rank: int
    size: int
    position: int
    source: int
    must_copy: bool
    checkpoint: int | None
    endpoints: tuple[str, ...]
    has_state: bool
    names: tuple[str, ...] = ()
    holders: tuple[int, ...] = (0,)
    key: str = ""


class StepGroup:
    """This trainer's place in the group of its job.

    Args:
        session: with the master; it holds no leases.
        endpoint: where the other trainers reach this one; the master passes it on.
        min_size: how many trainers the first world should have.
        settings: how this trainer divides epochs into steps; the master rejects trainers that do it differently.

    Attributes:
        world: the last one; None before the first.
        on_broken: called in another thread with the generation of a world of which a trainer is gone.
    """

    def __init__(self, session: MasterSession, endpoint: str, min_size: int = 1, settings: str = "") -> None:
        self.world: World | None = None
        self.on_broken: Callable[[int], None] = lambda _generation: None
        self._session, self._watcher = session, session.beside()
        self._place = {"endpoint": endpoint, "min_size": min_size, "settings": settings}
        self._lock = threading.Lock()
        self._position: int | None = None
        self._goodput: dict[str, Any] | None = None
        self._must_change = self._is_broken = self._is_closing = False
        self._error: EdlError | None = None
        self._thread = threading.Thread(target=self._watch, name="edl-group", daemon=True)
        self._heartbeat: Heartbeat | None = None

    @property
    def must_change(self) -> bool:
        """True if the trainers should end their world after the next step, because others join or were lost."""
        return self._must_change

    @property
    def is_broken(self) -> bool:
        """True if a trainer of the current world is gone, so that its collectives fail."""
        return self._is_broken

    def enter(self, position: int | None, is_leaving: Callable[[], bool] = lambda: False) -> World | None:
        """Ask for the next world, and wait for it.

        A trainer with a state leaves after a step, not between two worlds: if all trainers leave, but not after one
        step, the last one has the only state, and saves it only after a step. It waits 10 s for that world.

        Args:
            position: how far the model of this trainer is; None without a state.
            is_leaving: True if the trainer should leave.

        Returns:
            The world; None if the job has ended, or the trainer leaves.

        Raises:
            EdlError: the master rejects this trainer.
        """
        self._position = position
        if not self._thread.is_alive():
            self._thread.start()
        if self._heartbeat is None:
            self._heartbeat = self._session.heartbeat()
        left_s = float("inf") if position is not None else 0.0
        while True:
            if self._error is not None:
                raise self._error
            if is_leaving():
                left_s = min(left_s, time.monotonic() + _LAST_WORLD_S)
                if time.monotonic() >= left_s:
                    self.leave()
                    return None
            try:
                answer = self._call(self._session, "enter", limit_s=_ENTER_S, **self._place)
            except TemporaryError:
                continue
            if answer["status"] == "job_end":
                if answer["error"]:
                    raise PermanentError(f"job: it has failed, and no trainer goes on with it: {answer['error']}")
                return None
            if answer["status"] == "run":
                break
        world = _world(answer, self._session)
        with self._lock:
            self.world, self._must_change, self._is_broken = world, False, False
            if not world.has_state:
                self._position = None
        return world

    def report(self, position: int, *, now: bool = False) -> None:
        """Report how far this trainer's model is.

        Args:
            position: after its last step.
            now: tell the master before returning; otherwise the thread does that soon.
        """
        self._position = position
        if now:
            self._done()

    def tell(self, goodput: dict[str, Any] | None) -> None:
        """Set the goodput that the next report to the master carries; only the first trainer of a world calls this.

        Args:
            goodput: see `Replica.goodput`; None for nothing. A master that does not know it never gets it, since only
                jobs that choose their batch say it, and the variables for that come with such a master.
        """
        self._goodput = goodput

    def wait_until_done(self, position: int) -> bool:
        """Wait until every trainer of the world has reported the step that ends at a position; False after 30 s."""
        until_s = time.monotonic() + _DONE_TIMEOUT_S
        while self._done() < position:
            if time.monotonic() > until_s:
                return False
            time.sleep(_DONE_PAUSE_S)
        return True

    def _done(self) -> int:
        """Report the position of this trainer to the master; returns the position up to which steps count as done."""
        return int(self._call(self._session, "watch", knows=True, wait_s=0.0)["done"])

    def stop(self, position: int, error: str = "") -> None:
        """End the training of the job with the step that ends at a position.

        Args:
            position: the position of the model.
            error: why the job has failed; empty if it has succeeded early.

        Raises:
            PermanentError: the master rejects this trainer.
        """
        body = {"generation": self._generation, "position": position, "error": error[:_LONGEST_ERROR]}
        self._session.call("POST", "/v1/group/stop", {"session": self._session.identity, **body})

    def leave(self) -> None:
        """Leave after the last step of the world; returns once no trainer of it needs this process."""
        self._stop_watching()
        with contextlib.suppress(TemporaryError):  # the master is away, and notices later
            self._call(self._session, "leave", wait_s=_LEAVE_S, limit_s=_ENTER_S)

    def close(self) -> None:
        """Stop watching; the master notices that this trainer has gone."""
        self._stop_watching()

    def _stop_watching(self) -> None:
        self._is_closing = True
        self._watcher.cancel_calls()
        if self._thread.is_alive():
            self._thread.join(_HOLD_S)
        if self._heartbeat is not None:
            self._heartbeat.stop()

    def _watch(self) -> None:
        """Watch the world until this group is closed: report, and learn if it should end. The body of the thread."""
        knows = False
        try:
            while not self._is_closing:
                with self._lock:
                    generation = self._generation
                told, self._goodput = self._goodput, None
                some: dict[str, Any] = {"goodput": told} if told is not None else {}
                answer = self._call(self._watcher, "watch", knows=knows, wait_s=_REPORT_EVERY_S, **some)
                with self._lock:
                    if generation == self._generation:
                        knows = self._must_change = bool(answer["must_change"])
                        self._is_broken = bool(answer["is_broken"])
                    else:
                        knows = False
                    broken = generation if knows and self._is_broken else 0
                if broken:
                    self.on_broken(broken)
        except EdlError as error:
            if not self._is_closing:
                self._error = error
                self._must_change = True
        finally:
            self._watcher.close()

    @property
    def _generation(self) -> int:
        return self.world.generation if self.world is not None else 0

    def _call(
        self,
        session: MasterSession,
        verb: str,
        *,
        limit_s: float | None = None,
        **fields: Any,  # noqa: ANN401 - fields of a body
    ) -> dict[str, Any]:
        body = {
            "session": session.identity,
            "generation": self._generation,
            "position": self._position,
            "wait_s": _HOLD_S,
            **fields,
        }
        return session.call("POST", f"/v1/group/{verb}", body, limit_s=limit_s)


def _world(answer: dict[str, Any], session: MasterSession) -> World:
    positions = [member["position"] for member in answer["members"]]
    checkpoint, start, rank = answer["checkpoint"], answer["position"], answer["rank"]
    holders = tuple(rank for rank, position in enumerate(positions) if position == start)
    return World(
        generation=answer["generation"],
        rank=rank,
        size=len(positions),
        position=start,
        source=holders[0] if checkpoint is None else 0,
        must_copy=any(position != start for position in positions),
        checkpoint=checkpoint,
        endpoints=tuple(member["endpoint"] for member in answer["members"]),
        has_state=positions[rank] is not None,
        names=tuple(member["name"] for member in answer["members"]),
        holders=holders if checkpoint is None else (0,),
        key=session.secret(f"world {answer['generation']}"),
    )
