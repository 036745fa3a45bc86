"""A PyTorch model among the models of other trainers: gradients are summed over gloo, and states are copied.

The process groups are built without torch's global one: they end and begin within a process, and a script may still
have a group of its own. The store of a group is in the process of rank 0, and lives as long as that process: no other
trainer has to stay for it.
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from edl.errors import ConfigError
from edl.worker.group import World
from edl.worker.model_folder import ModelFolder
from edl.worker.steps import Flags, PeerLostError, Piece, parts_of
from edl.worker_torch.step_guard import StepGuard

try:
    import torch
    from torch import distributed, nn
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

_PEER_PAUSE_S = 0.02
_LOOK_EVERY = timedelta(seconds=0.1)
_LOOPBACK = "127.0.0.1"
_MIX = 0x9E3779B97F4A7C15  # odd, so that neighbouring positions get different seeds


class TorchReplica:
    """Implements `edl.worker.steps.Replica`.

    Args:
        model: of this trainer.
        optimizer: of its parameters.
        scheduler: a learning-rate scheduler, or None.
        folder: for saved states.
        host: an address that the other trainers can reach; empty if all run on this machine.
        timeout_s: of a collective.

    Attributes:
        endpoint: of the store of this process, HOST:PORT.
        logical_ranks: into how many parts each step is divided; 0 is one for each trainer.
        guard: knows that the optimizer's steps are made here.
        parameters: of the optimizer.
        max_norm: of the gradient of a step, as this trainer wants it; 0 for no limit.
        norm: of the gradient of the last step that had a limit, before it was clipped.
    """

    def __init__(
        self,
        model: Any,  # noqa: ANN401 - torch is not installed where types are checked
        optimizer: Any,  # noqa: ANN401
        *,
        scheduler: Any,  # noqa: ANN401
        folder: ModelFolder,
        host: str,
        timeout_s: float,
    ) -> None:
        self._model, self._optimizer, self._scheduler, self._folder = model, optimizer, scheduler, folder
        self._host, self._timeout = host or _LOOPBACK, timedelta(seconds=timeout_s)
        self.logical_ranks, self.guard = 0, StepGuard(optimizer, scheduler)
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._rates = [group["lr"] for group in optimizer.param_groups]
        self._count = sum(p.numel() for p in self.parameters)
        self._own_store = distributed.TCPStore(self._host, 0, is_master=True, wait_for_workers=False)
        self.endpoint = f"{self._host}:{self._own_store.port}"
        self._world: World | None = None
        self._is_broken: Callable[[], bool] = lambda: False
        self._group: Any = None
        self._is_abandoned = False
        self.max_norm, self.norm = 0.0, torch.tensor(float("nan"))
        self._first_slot, self._has_last_part = 0, True
        self._rows = torch.zeros(0)
        self._views: list[list[Any]] = []  # of each row: the part of each parameter
        self._flags = self._rows  # the end of the first row

    def connect(self, world: World, is_broken: Callable[[], bool]) -> None:
        """See `Replica.connect`."""
        self._world, self._is_broken = world, is_broken
        parts = self.logical_ranks or world.size
        # All trainers of a world send as many rows as the one with the most parts.
        rows = max(len(parts_of(parts, rank, world.size)) for rank in range(world.size))
        self._first_slot = parts_of(parts, world.rank, world.size).start
        self._has_last_part = parts - 1 in parts_of(parts, world.rank, world.size)
        self._rows = torch.zeros(rows, self._count + len(Flags._fields) + 1)
        self._views = [self._split(row) for row in self._rows]
        self._flags = self._rows[0, self._count :]
        if world.size == 1:
            return
        with _peers_may_be_lost():
            self._group = self._beside(lambda: self._new_group(world))

    def _beside(self, build: Callable[[], Any]) -> Any:  # noqa: ANN401
        """The result of a call that may wait for a lost trainer until its timeout; it is given up before that.

        torch's store and gloo connect without looking at the master, and nothing can interrupt them. So they work in
        a thread, which ends by itself after the timeout if it was given up.
        """
        built: Future[Any] = Future()

        def run() -> None:
            try:
                built.set_result(build())
            except BaseException as error:
                built.set_exception(error)

        threading.Thread(target=run, name="edl-connect", daemon=True).start()
        while True:
            with contextlib.suppress(TimeoutError):
                return built.result(_PEER_PAUSE_S)
            if self._is_broken():
                raise PeerLostError("a trainer is gone, and the world had not begun")

    def _new_group(self, world: World) -> Any:  # noqa: ANN401
        """The connections to the other trainers of a world.

        Rank 0 connects to its own store as the others do, since a connection that was given up stays busy for long.
        """
        host, _, port = world.endpoints[0].rpartition(":")
        store = distributed.TCPStore(host, int(port), is_master=False, timeout=self._timeout)
        gloo = distributed.ProcessGroupGloo
        options = gloo._Options()  # noqa: SLF001 - the only way to choose the address of a group
        options._devices = [gloo.create_device(hostname=self._host)]  # noqa: SLF001
        options._timeout = self._timeout  # noqa: SLF001
        named = distributed.PrefixStore(f"world-{world.generation}", store)
        return gloo(named, world.rank, world.size, options)

    def disconnect(self) -> None:
        """See `Replica.disconnect`."""
        if self._is_abandoned:
            # The end of a group waits for its collectives, and nobody ends the one that a stopped process holds up.
            kept, self._group = [self._group], None
            threading.Thread(target=kept.clear, daemon=True).start()
        self._group, self._is_abandoned = None, False

    def copy_state(self, source: int) -> None:
        """See `Replica.copy_state`."""
        is_source = self._world is not None and self._world.rank == source
        data = torch.tensor(bytearray(self._state_bytes()) if is_source else [], dtype=torch.uint8)
        size = torch.tensor([len(data)])
        with _peers_may_be_lost():
            self._finish(self._group.broadcast(size, source))
            if not is_source:
                data = torch.empty(int(size), dtype=torch.uint8)
            self._finish(self._group.broadcast(data, source))
        if not is_source:
            self._load_state(io.BytesIO(data.numpy().tobytes()))

    def begin_step(self) -> None:
        """See `Replica.begin_step`."""
        self.guard.begin_step()
        self._rows.zero_()
        self._forget_gradients()

    def begin_piece(self, step: int, piece: Piece) -> None:
        """See `Replica.begin_piece`: with logical ranks, random numbers depend on the piece alone."""
        if self.logical_ranks:
            torch.manual_seed(((step + 1) * _MIX + piece.start * self.logical_ranks + piece.slot) % 2**63)

    def end_piece(self, piece: Piece) -> None:
        """See `Replica.end_piece`."""
        sums, gradients = [], []
        for view, parameter in zip(self._views[piece.slot - self._first_slot], self.parameters, strict=True):
            gradient, parameter.grad = parameter.grad, None
            if gradient is not None:
                sums.append(view)
                gradients.append(gradient)
        if sums:
            torch._foreach_add_(sums, gradients, alpha=piece.weight)

    def end_step(self, flags: Flags) -> Flags:
        """See `Replica.end_step`."""
        gradients, found, max_norm = self._sum(flags)
        for gradient, parameter in zip(gradients, self.parameters, strict=True):
            parameter.grad = gradient
        if max_norm:
            self.norm = nn.utils.clip_grad_norm_(self.parameters, max_norm)
        with self.guard.during_step():
            self._optimizer.step()
            self._forget_gradients()
            if self._scheduler is not None:
                self._scheduler.step()
        return found

    def scale_rate(self, factor: float) -> None:
        """See `Replica.scale_rate`."""
        if factor != 1.0:
            for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * factor

    def save(self, checkpoint: int) -> None:
        """See `Replica.save`."""
        self._folder.write(checkpoint, self._state_bytes())

    def committed(self, checkpoint: int) -> None:
        """See `Replica.committed`."""
        self._folder.delete_before(checkpoint)

    def save_model(self) -> None:
        """Write the weights as `model.pt`, if there is a folder.

        Every trainer does so, because any of them may be killed at that moment. All of them have the same weights.

        Raises:
            PermanentError: the file cannot be written.
        """
        file = io.BytesIO()
        torch.save(self._model.state_dict(), file)
        self._folder.write_model(file.getvalue())

    def load(self, checkpoint: int) -> None:
        """See `Replica.load`."""
        self._load_state(io.BytesIO(self._folder.read(checkpoint)))

    def _sum(self, flags: Flags) -> tuple[list[Any], Flags, float]:
        """The gradient of the step for each parameter, the flags of all trainers, and the limit of the norm.

        A trainer may learn the limit only from its loop, which it does not enter in a step without records for it. So
        all take that of the trainer with the last part of the step, which always has records.
        Each step pays for what is done here, so a trainer that is alone sends nothing to itself.
        """
        rows, tail = [self._rows], torch.tensor([*flags, self.max_norm if self._has_last_part else 0.0])
        if self._group is not None:
            if any(tail):  # the row is zero until here
                self._flags.copy_(tail)
            rows = self._of_all_trainers()
            tail = sum(part[0, self._count :] for part in rows)
        *counts, max_norm = tail.tolist()
        found = Flags(*counts)
        if not self.logical_ranks:
            return self._views[0], found, max_norm
        total = torch.zeros_like(self._rows[0])
        for rank, part in enumerate(rows):
            for index in range(len(parts_of(self.logical_ranks, rank, self._size))):
                total += part[index]
        return self._split(total), found, max_norm

    def _of_all_trainers(self) -> list[Any]:
        """The sum of all trainers' rows; with logical ranks, which need their order, the rows of each trainer."""
        with _peers_may_be_lost():
            if not self.logical_ranks:
                self._finish(self._group.allreduce([self._rows]))
                return [self._rows]
            rows = [torch.empty_like(self._rows) for _ in range(self._size)]
            self._finish(self._group.allgather([rows], [self._rows]))
            return rows

    def _finish(self, work: Any) -> None:  # noqa: ANN401
        """Wait for a collective, at most until the master knows that a trainer of the world is gone.

        A trainer that leaves is gone for the master as soon as its own part of the collective has ended. So this one
        has some time left to end, too.
        """
        was_broken = False
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

    @property
    def _size(self) -> int:
        return self._world.size if self._world is not None else 1

    def _split(self, row: Any) -> list[Any]:  # noqa: ANN401
        """The part of a row that belongs to each parameter, in its shape."""
        parts = row[: self._count].split([p.numel() for p in self.parameters])
        return [part.view_as(p) for part, p in zip(parts, self.parameters, strict=True)]

    def _forget_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def _state_bytes(self) -> bytes:
        state = {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()}
        if self._scheduler is not None:
            state["scheduler"] = self._scheduler.state_dict()
        file = io.BytesIO()
        torch.save(state, file)
        return file.getvalue()

    def _load_state(self, file: io.BytesIO) -> None:
        state = torch.load(file, weights_only=True)
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self._scheduler is not None:
            self._scheduler.load_state_dict(state["scheduler"])


@contextlib.contextmanager
def _peers_may_be_lost() -> Iterator[None]:
    """Turn the errors of gloo and of its store into `PeerLostError`."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLostError(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error
