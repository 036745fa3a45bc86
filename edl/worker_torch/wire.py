"""The connections among the trainers of a world, over gloo.

The process groups are built without torch's global one: they end and begin within a process, and a script may still
have a group of its own. The store of a group is in the process of rank 0, and lives as long as that process: no other
trainer has to stay for it. Nothing here waits for a trainer of which the master knows that it is gone.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar

from edl.errors import ConfigError
from edl.worker.group import World
from edl.worker.steps import PeerLostError

try:
    import torch
    from torch import distributed
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_PEER_PAUSE_S = 0.02
_LOOK_EVERY = timedelta(seconds=0.1)
_SAY_AFTER_S = 20.0
_LOOPBACK = "127.0.0.1"
_T = TypeVar("_T")
SegmentSum = Callable[[list[list[Any]]], Any]
"""Adds up one segment of a vector: it gets, for each rank, the segments that this rank has sent."""
_log = logging.getLogger(__name__)


class Wire:
    """The connections of this trainer to the others of its world.

    Args:
        host: an address that the other trainers can reach; empty if all run on this machine.
        timeout_s: how long to wait for a trainer that lives, but does not take part.

    Attributes:
        endpoint: the endpoint of the store of this process, HOST:PORT.
    """

    def __init__(self, host: str, timeout_s: float) -> None:
        self._host, self._timeout_s = host or _LOOPBACK, timeout_s
        self._own_store = distributed.TCPStore(self._host, 0, is_master=True, wait_for_workers=False)
        self.endpoint = f"{self._host}:{self._own_store.port}"
        self._world: World | None = None
        self._is_broken: Callable[[], bool] = lambda: False
        self._group: Any = None
        self._is_abandoned = False

    @property
    def size(self) -> int:
        """The number of trainers in the world."""
        return self._world.size if self._world is not None else 1

    @property
    def rank(self) -> int:
        """The rank of this trainer in its world."""
        return self._world.rank if self._world is not None else 0

    @property
    def is_alone(self) -> bool:
        """True if this trainer is the only one of its world."""
        return self._group is None

    def connect(self, world: World, is_broken: Callable[[], bool]) -> None:
        """Build the connections of a world.

        Raises:
            PeerLostError: a trainer is gone.
        """
        self._world, self._is_broken = world, is_broken
        if world.size > 1:
            self._group = self.beside(lambda: self._new_group(world), "the world had not begun")

    def disconnect(self) -> None:
        """Close the connections; collectives that the other trainers have under way fail."""
        if self._is_abandoned:
            # The end of a group waits for its collectives, and nobody ends the one that a stopped process holds up.
            kept, self._group = [self._group], None
            threading.Thread(target=kept.clear, daemon=True).start()
        self._group, self._is_abandoned = None, False

    def gather(self, row: Any) -> list[Any]:
        """Gather a tensor from each trainer, in the order of ranks; all have one shape.

        Raises:
            PeerLostError: a trainer is gone.
        """
        if self._group is None:
            return [row]
        rows = [torch.empty_like(row) for _ in range(self.size)]
        self._run(lambda: self._group.allgather([rows], [row]))
        return rows

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Gather bytes from each trainer, in the order of ranks; their lengths may differ.

        Raises:
            PeerLostError: a trainer is gone.
        """
        sizes = [int(size) for size in self.gather(torch.tensor([len(data)]))]
        row = torch.frombuffer(bytearray(data.ljust(max(1, *sizes, 1), b"\0")), dtype=torch.uint8)
        return [its.numpy().tobytes()[:size] for its, size in zip(self.gather(row), sizes, strict=True)]

    def sum(self, rows: list[Any]) -> None:
        """Replace each tensor by its sum over all trainers.

        Raises:
            PeerLostError: a trainer is gone.
        """
        if self._group is not None:
            with _peers_may_be_lost():
                for work in [self._group.allreduce([row]) for row in rows]:
                    self._finish(work)

    def sum_in_order(self, rows: list[Any], whole: Any, counts: list[int], add: SegmentSum) -> Any:
        """Sum vectors of all trainers in an order that the caller decides; each trainer sums a segment of them.

        Args:
            rows: the rows of this trainer; as long as the result, which `width_of` makes a little longer.
            whole: memory for the result.
            counts: rank -> how many rows that trainer has.
            add: gets the segments of the rows of each rank, and returns their sum.

        Raises:
            PeerLostError: a trainer is gone.
        """
        width = len(whole) // self.size
        cuts = [row[at : at + width] for at in range(0, len(whole), width) for row in rows]
        sent, received = torch.cat(cuts) if cuts else whole.new_empty(0), whole.new_empty(width * sum(counts))
        into, out = [width * count for count in counts], [width * len(rows)] * self.size
        self._run(lambda: self._group.alltoall_base(received, sent, into, out))
        segments = iter(received.split(width))
        mine = add([[next(segments) for _ in range(count)] for count in counts])
        self._run(lambda: self._group._allgather_base(whole, mine))  # noqa: SLF001 - torch has no other name for it
        return whole

    def width_of(self, count: int) -> int:
        """Round a length up to a multiple of the number of trainers."""
        return -(-count // self.size) * self.size

    def broadcast(self, row: Any, source: int) -> None:
        """Overwrite a tensor by that of the trainer of a given rank.

        Raises:
            PeerLostError: a trainer is gone.
        """
        if self._group is not None:
            self._run(lambda: self._group.broadcast(row, source))

    def send(self, row: Any, rank: int, tag: int) -> Any:
        """Begin to send a tensor on the CPU to a rank; wait for the handle within `beside`."""
        return self._group.send([row], rank, tag)

    def receive(self, row: Any, rank: int, tag: int) -> Any:
        """Begin to receive a tensor on the CPU; wait for the handle within `beside`."""
        return self._group.recv([row], rank, tag)

    def beside(self, call: Callable[[], _T], what: str) -> _T:
        """Run a call that may block until gloo's timeout if a trainer is lost; it is abandoned once that is known.

        torch's store, and gloo's messages between two ranks, wait without looking at the master, and nothing can
        interrupt them. So they work in a thread, which ends by itself after the timeout if it was abandoned.

        Args:
            call: to make.
            what: is said if a trainer is lost.

        Raises:
            PeerLostError: a trainer is gone.
        """
        done: Future[_T] = Future()

        def run() -> None:
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=run, name="edl-wire", daemon=True).start()
        with _peers_may_be_lost():
            while True:
                with contextlib.suppress(TimeoutError):
                    return done.result(_PEER_PAUSE_S)
                if self._is_broken():
                    self._is_abandoned = True
                    raise PeerLostError(f"a trainer is gone, and {what}")

    def _new_group(self, world: World) -> Any:
        """Build the process group of a world.

        Rank 0 connects to its own store as the others do, since an abandoned connection stays busy for long.
        """
        timeout = timedelta(seconds=self._timeout_s)
        host, _, port = world.endpoints[0].rpartition(":")
        store = distributed.TCPStore(host, int(port), is_master=False, timeout=timeout)
        gloo = distributed.ProcessGroupGloo
        options = gloo._Options()  # noqa: SLF001 - the only way to choose the address of a group
        options._devices = [gloo.create_device(hostname=self._host)]  # noqa: SLF001
        options._timeout = timeout  # noqa: SLF001
        named = distributed.PrefixStore(f"world-{world.generation}-{world.key}", store)  # others cannot guess it
        return gloo(named, world.rank, world.size, options)

    def _run(self, begin: Callable[[], Any]) -> None:
        with _peers_may_be_lost():
            self._finish(begin())

    def _finish(self, work: Any) -> None:
        """Wait for a collective, at most until the master knows that a trainer of the world is gone.

        A trainer that leaves is gone for the master as soon as its own part of the collective has ended. So this one
        has some time left to end, too.
        """
        was_broken, since_s, said_s = False, time.monotonic(), _SAY_AFTER_S
        while True:
            try:
                work.wait(_LOOK_EVERY)
                return
            except RuntimeError:
                if work.is_completed():
                    work.wait()  # it has ended between the two calls, or it has failed
                    return
            if was_broken:
                self._is_abandoned = True
                raise PeerLostError("a trainer is gone, and its connections are still open")
            was_broken = self._is_broken()
            if time.monotonic() - since_s > said_s:
                self._say_who_waits(said_s)
                said_s *= 2

    def _say_who_waits(self, seconds: float) -> None:
        """Log now and then which trainers the others wait for: one that evaluates or hangs holds up all."""
        _log.warning(
            "this trainer (rank %d of %d) has waited %.0f s for another one to finish its part of a step; after"
            " timeout_s=%.0f it goes on without it. If the loop does more than train, such as an evaluation in one"
            " trainer, call elastic.evaluate() in a hook of on_step_end, or give a longer timeout_s",
            self.rank,
            self.size,
            seconds,
            self._timeout_s,
        )


@contextlib.contextmanager
def _peers_may_be_lost() -> Iterator[None]:
    """Turn the errors of gloo and of its store into `PeerLostError`."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLostError(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error
