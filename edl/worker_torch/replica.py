"""A PyTorch model among the models of other trainers: what they sum, compare and copy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from edl.errors import ConfigError, PermanentError
from edl.worker.group import World
from edl.worker.model_folder import ModelFolder
from edl.worker.step_settings import Piece, StepPlan, parts_of
from edl.worker.steps import Flags, PeerLostError
from edl.worker_torch.ballot import Ballot, bits_float, float_bits, from_row, to_row
from edl.worker_torch.buffers import LAST, SyncedBuffers
from edl.worker_torch.copying import copy_state
from edl.worker_torch.equality import COUNT, MODE, RATE, TENSOR, Equality, name_difference
from edl.worker_torch.goodput.watch import GoodputWatch
from edl.worker_torch.gradients import GradientSum
from edl.worker_torch.losses.book import LossBook, check_factors, common
from edl.worker_torch.losses.kinds import DIVIDED, UNIT, WEIGHT
from edl.worker_torch.modes import Modes
from edl.worker_torch.processes import Processes
from edl.worker_torch.seeds import piece_seed, seed_all
from edl.worker_torch.state import TrainState
from edl.worker_torch.watches.limits import LimitWatch
from edl.worker_torch.watches.step_guard import StepGuard
from edl.worker_torch.wire import Wire

try:
    import torch
    from torch import nn
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

STEP, DROP = 1, 2
"""What a script may ask of a step: that the optimizers step, and that carried gradients are dropped before."""
_log = logging.getLogger(__name__)


class TorchReplica:
    """Implements `edl.worker.steps.Replica`.

    Args:
        state: the state of this trainer.
        folder: for saved states.
        processes: of this trainer; by default this one alone.
        host: an address that the other trainers can reach; empty if all run on this machine.
        timeout_s: how long to wait for a trainer that lives, but does not take part.
        scaler: the scaler of losses in half precision, or None.
        buffers: how buffers are kept equal: `last` or `mean`.

    Attributes:
        processes: of this trainer.
        wire: to all processes of all trainers.
        twins: to those that have the same parameters: one of each trainer if the model is in shards, else all.
        guard: knows that the optimizers' steps are made here.
        losses: knows how much each batch counts.
        logical_ranks: into how many parts each step is divided; 0 is one for each trainer.
        max_norm: the largest norm of the gradient of a step, as this trainer wants it; 0 for no limit.
        norm: the norm of the gradient of the last step that had a limit, before it was clipped.
        action: what the script asks of this step.
        watch: measures noise and times, and knows the batch and the rate of a step.
        is_stepping: the optimizers make their steps now.
    """

    def __init__(
        self,
        state: TrainState,
        *,
        folder: ModelFolder,
        processes: Processes | None = None,
        host: str = "",
        timeout_s: float = 600.0,
        scaler: Any = None,
        buffers: str = LAST,
    ) -> None:
        self.state, self._folder, self._scaler = state, folder, scaler
        self.processes = processes or Processes()
        self.wire = self.twins = Wire(host, timeout_s)
        self._shards = state.shards
        if self._shards > 1:
            self.twins = Wire(host, timeout_s)
        owned, self.losses = set(state.model.parameters()), LossBook(self._shards)
        self.guard = StepGuard(
            state.optimizers,
            state.schedulers,
            scaler,
            owns=owned.__contains__,
            keeps=state.has,
            on_loss=self.losses.note,
        )
        self.logical_ranks, self.action = 0, STEP
        self.max_norm, self.norm = 0.0, torch.tensor(float("nan"))
        self.watch = GoodputWatch(scaler, is_on=self._shards < 2)
        state.extra["edl.goodput"] = self.watch.tuner
        self._sum, self._equality = GradientSum(state, self.twins), Equality(state)
        self._modes = Modes(state.model)
        self._limits = LimitWatch(state)
        self.guard.on_computed = lambda: self._limits.note(self._sum.parameters)
        self._buffers = SyncedBuffers(state, self.wire, buffers)
        self._most = len(owned), len(state.buffers)
        self._names: tuple[str, ...] = ()
        self._has_last_part, self._has_said, self._has_trained = True, False, False
        self.is_stepping = False
        self._since_s: float | None = None
        self._step_s = 0.0

    @property
    def endpoint(self) -> str:
        """The address (`host:port`) to which the other trainers connect."""
        return self.wire.endpoint

    @property
    def parameters(self) -> list[Any]:
        """The parameters that the optimizers have."""
        return self.state.parameters

    def connect(self, world: World, is_broken: Callable[[], bool]) -> None:
        """Build the connections to the other trainers of a world; see `Replica.connect`."""
        self.state.collected()  # what could not be loaded again is refused before the first step
        every = self.processes.all_of(world)
        owners = world if self._shards else every
        parts = self.logical_ranks or owners.size
        has_last = parts - 1 in parts_of(parts, owners.rank, owners.size)
        self._has_last_part = has_last and self.processes.rank == self.processes.size - 1
        self._names = every.names
        with self.processes.together():
            self.wire.connect(every, is_broken)
            if self.twins is not self.wire:
                self.twins.connect(self.processes.twins_of(world), is_broken)
        self._sum.begin_world(self.logical_ranks)
        self._buffers.parts = self.logical_ranks
        self._equality.begin_world()
        self._modes.refresh()
        self.watch.begin_world()
        self._since_s, self._step_s = None, 0.0

    def disconnect(self) -> None:
        """Close the connections to the other trainers; see `Replica.disconnect`."""
        self.wire.disconnect()
        if self.twins is not self.wire:
            self.twins.disconnect()

    def copy_state(self, world: World) -> None:
        """Copy the state to the trainers of a world that lack it: each process from one with the same parameters."""
        owners = self.processes.twins_of(world) if self._shards else self.processes.all_of(world)
        if len(owners.holders) == owners.size:
            return
        mine = self.state.collected() if owners.rank in owners.holders else None
        with self.processes.together():
            found = copy_state(self.twins, owners, mine)
        if mine is None:
            self.state.load(found, is_owned=True)

    def next_batch(self) -> int | None:
        """The global batch of the next step in records; see `Replica.next_batch`."""
        return self.watch.tuner.batch

    def goodput(self) -> dict[str, Any] | None:
        """Return the global batch, and the goodput by number of trainers; see `Replica.goodput`."""
        return self.watch.tuner.report()

    def begin_step(self, plan: StepPlan) -> None:
        """Forget every gradient, because the records of a new step follow; see `Replica.begin_step`."""
        self.guard.begin_step()
        self.watch.begin_step(plan)
        if self.watch.tuner.batch is not None:
            self.losses.global_batch = plan.batch
        self._sum.begin_step()
        self._buffers.begin_step()
        self.losses.begin_step()
        if self._equality.is_due and not self.wire.is_alone:
            self._equality.note_tensors()  # before the loop changes the buffers
            self._modes.refresh()
        self.forget_gradients()

    def begin_piece(self, step: int, piece: Piece) -> None:
        """Prepare for a piece of a step; with logical ranks, its random numbers depend on the piece alone."""
        self.losses.begin_piece(piece)
        self._limits.begin_piece(self._sum.parameters, lambda: self.guard.is_computing)
        self._buffers.begin_piece(piece.slot)
        if self.logical_ranks:
            seed_all(piece_seed(step, piece, self.logical_ranks))

    def end_piece(self, piece: Piece) -> None:
        """Add the gradient of a piece to that of the step; see `Replica.end_piece`."""
        if self.guard.refused is not None:
            raise self.guard.refused  # the loop has caught it
        found = [parameter.grad for parameter in self._sum.parameters]
        has_gradient = any(one is not None for one in found)
        if not has_gradient and not self._has_trained:
            raise _no_gradient(f"the first batch that the loop got (records {piece.start} to {piece.end})")
        self._has_trained = True
        self._limits.end_piece(self._sum.parameters)
        factor = self.losses.end_piece(piece, has_gradient=has_gradient)
        self._sum.add(piece.slot, factor if self._shards < 2 else 1.0)
        self.watch.add(found, factor, factor if self.losses.kind == WEIGHT else piece.weight)
        self._buffers.end_piece(piece.weight)

    def end_step(self, flags: Flags) -> Flags:
        """Sum gradients and flags over the trainers, and apply the step; see `Replica.end_step`.

        Raises:
            PermanentError: the trainers have different models, or no trainer has a gradient.
        """
        try:
            with self.processes.together():
                ballots = self._exchange(self._ballot(flags))
                last = next((one for one in reversed(ballots) if one.kind), ballots[-1])
                divisor = self._divisor(ballots)
                gradients = self._sum.summed(divisor, self._union(ballots, last.action))
                self._buffers.sync(_union(one.changed for one in ballots), is_last=self._has_last_part)
        except PeerLostError:
            self._buffers.restore()
            raise
        self.watch.take(ballots, gradients, divisor, is_first=self.wire.rank == 0)
        self._apply(gradients, last)
        now_s = time.monotonic()
        self._step_s = now_s - self._since_s if self._since_s is not None else 0.0
        self._since_s = now_s
        firsts = ballots[:: self.processes.size]  # one of each trainer
        flags = Flags(*(float(sum(one[place] for one in firsts)) for place in range(len(Flags._fields))))
        return flags._replace(stop=float(sum(one.stop for one in ballots)))

    def _ballot(self, flags: Flags) -> Ballot:
        norm = self.max_norm if self._has_last_part else 0.0
        must_change, leaving, stop = map(int, flags)
        return Ballot(
            must_change=must_change,
            leaving=leaving,
            stop=stop,
            settings=0 if self.wire.is_alone else self._equality.settings_digest,
            counts=0 if self.wire.is_alone else self._equality.counts_digest,
            modes=0 if self.wire.is_alone or not self.losses.kind else self._modes.digest,
            is_compared=int(self._equality.is_due and not self.wire.is_alone),
            tensors=self._equality.tensors_digest,
            cost_us=self._equality.cost_us,
            step_us=int(self._step_s * 1e6),
            kind=self.losses.kind,
            action=self.action,
            weight=self.losses.weight,
            divisor=self.losses.divisor,
            factors=self.losses.factors,
            varies=int(self.losses.varies),
            max_norm=float_bits(norm),
            present=self._sum.present,
            changed=self._buffers.changed,
            **self.watch.said(proposes=self.wire.rank == 0),
        )

    def _exchange(self, mine: Ballot) -> list[Ballot]:
        """The ballots of all trainers, once their models are known to be equal."""
        if self.wire.is_alone:
            return [mine]
        parameters, buffers = self._most
        ballots = [from_row(row, parameters) for row in self.wire.gather(to_row(mine, parameters, buffers))]
        names = self._names or tuple(f"trainer {rank}" for rank in range(len(ballots)))
        if len({one.settings for one in ballots}) > 1:
            raise name_difference(self.wire, names, self._equality.settings, RATE)
        if len({one.counts for one in ballots}) > 1:
            raise name_difference(self.wire, names, self._equality.counts, COUNT)
        if len({one.modes for one in ballots if one.kind}) > 1:  # without records the loop of a trainer is behind
            raise name_difference(self.wire, names, self._modes.named if mine.kind else None, MODE)
        if mine.is_compared:
            shards = max(1, self._shards)
            if any(one.tensors != ballots[rank % shards].tensors for rank, one in enumerate(ballots)):
                raise name_difference(self.wire, names, self._equality.tensors, TENSOR, shards)
            steps = [one.step_us for one in ballots if one.step_us]
            self._equality.plan_next(max(one.cost_us for one in ballots), min(steps, default=0))
        self._equality.end_step()
        return ballots

    def _divisor(self, ballots: list[Ballot]) -> float:
        """The divisor of the sum of the gradients."""
        kind = common({one.kind for one in ballots})
        if not self.logical_ranks:
            check_factors({one.factors for one in ballots if one.kind})
        self.losses.varies = any(one.varies for one in ballots)
        divisors = {one.divisor for one in ballots if one.kind}
        if kind == DIVIDED and len(divisors) == 1 and not self.losses.varies:
            return float(max(divisors)) or 1.0
        return sum(one.weight for one in ballots) / UNIT or 1.0

    def _union(self, ballots: list[Ballot], action: int) -> int:
        """Find the parameters that have a gradient in some trainer.

        Warns once if other trainers lack one of these.
        """
        present = _union(one.present for one in ballots)
        if action & STEP and not present and not self.state.carried:
            raise _no_gradient("a step")
        for place, one in enumerate(ballots):
            lacks = present & ~one.present
            if one.kind and lacks and not self._has_said:
                self._has_said = True
                index = (lacks & -lacks).bit_length() - 1
                name = self.state.name_of(self._sum.parameters[index])
                _log.warning(
                    "the parameter %s has a gradient in some trainers and none in that of rank %d: it counts as zero"
                    " there (said once)",
                    name,
                    place,
                )
        return present

    def _apply(self, gradients: list[Any], ballot: Ballot) -> None:
        """Make the step, as the trainer with the last records wants it: others may have had no batch to say so."""
        carried = {} if ballot.action & DROP else self.state.carried
        for gradient, parameter in zip(gradients, self._sum.parameters, strict=True):
            before = carried.get(self.state.name_of(parameter)) if carried else None
            parameter.grad = gradient if before is None else before if gradient is None else before + gradient
        with self.guard.during_step():
            if ballot.action & STEP:
                self._step(bits_float(ballot.max_norm))
                self.state.carried = {}
                self.forget_gradients()
                for scheduler in self.state.schedulers:
                    for _ in range(self.watch.schedule_steps):
                        scheduler.step()
            else:
                pairs = ((p, p.grad) for p in self._sum.parameters if p.grad is not None)
                self.state.carried = {self.state.name_of(p): grad.clone() for p, grad in pairs}
                self.forget_gradients()

    def _step(self, max_norm: float) -> None:
        if self._scaler is not None:
            for optimizer in self.state.optimizers:
                self._scaler.unscale_(optimizer)
        if max_norm:
            self.norm = nn.utils.clip_grad_norm_(self._sum.parameters, max_norm)
        self.is_stepping = True
        with self.watch.rates(self.state.optimizers):
            for optimizer in self.state.optimizers:
                if self._scaler is not None:
                    self._scaler.step(optimizer)
                else:
                    optimizer.step()
        self.is_stepping = False
        if self._scaler is not None:
            self._scaler.update()
        self.state.steps += 1

    def forget_gradients(self) -> None:
        """Set the gradient of every parameter to None."""
        for parameter in self._sum.parameters:
            parameter.grad = None

    def begin_anew(self) -> None:
        """Begin the job with the model of this process; see `Replica.begin_anew`."""
        self._folder.check_is_new()

    def save(self, checkpoint: int) -> None:
        """Save the state under the number of a checkpoint; see `Replica.save`."""
        if self._shards or self.processes.rank == 0:
            self._folder.write(checkpoint, lambda path: torch.save(self.state.collected(), path))

    def committed(self, checkpoint: int) -> None:
        """Note that training would restart from that checkpoint, and from no older one; see `Replica.committed`."""
        self._folder.delete_before(checkpoint)

    def save_model(self) -> None:
        """Write the weights as `model.pt`, if there is a folder.

        Every trainer does so, because any of them may be killed at that moment. All of them have the same weights.

        Raises:
            PermanentError: the file cannot be written.
        """
        is_first = self.processes.rank == 0
        if self._shards or is_first:
            found = self.state.whole_model(is_wanted=is_first)
            if is_first:
                self._folder.write_model(lambda path: torch.save(found, path))

    def load(self, checkpoint: int) -> None:
        """Load the state that was saved under the number of a checkpoint; see `Replica.load`."""
        found = self._folder.read(checkpoint, lambda path: torch.load(path, weights_only=True, mmap=True))
        self.state.load(found, is_owned=False)


def _union(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found


def _no_gradient(what: str) -> PermanentError:
    return PermanentError(
        f"Elastic: {what} has no gradient in any trainer, so nothing would be trained. Likely causes: loss.backward()"
        " is missing; the loop calls model.zero_grad() after it; the loop (or a loader around it) fetches a batch"
        " before it has computed the gradient of the last one, so do not prefetch from elastic.batches(); or no"
        " parameter of the optimizer requires a gradient"
    )
