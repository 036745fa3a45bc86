"""A trainer's connection to its job: the trainer's share of the data, also while other trainers or the master fail.

    from edl.worker import connect
    with connect() as job:
        for record in job.records():
            train(record)

A record counts as consumed when the loop asks for the next one. If a trainer ends while it trains on a record, other
trainers get that record. A record that is only prefetched is never acknowledged. A thread sends heartbeats and
fetches leases ahead. The loop times its leases by this process's own monotonic clock, from when a request was sent:
a trainer without a network stops before other trainers get its work. If the master does not answer, the loop waits.

"Exactly once" is a statement about the ledger. A trainer that ends right after a training step may have changed the
model although other trainers get the record again. If that matters, tie the ledger to checkpoints of the model:
`with job.checkpoint(step)`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

from edl.errors import ConfigError, EdlError, PermanentError, TemporaryError
from edl.termination_log import write_termination_log
from edl.worker.connection import MasterConnection, read_token
from edl.worker.data import Reader, Source, good_records, read_records
from edl.worker.endings import Endings
from edl.worker.group import StepGroup, World
from edl.worker.lease import BadRecord, PositionBatch
from edl.worker.leaving import LeavingSignal
from edl.worker.records import Records, Remote
from edl.worker.session import MasterSession
from edl.worker.siblings import SharedGroup, Siblings
from edl.worker.step_settings import Division, Piece, StepSettings, batch_range
from edl.worker.steps import Replica, StepLoop

Pipeline = Callable[[Iterable[list[int]]], Iterable[Any]]
"""Reads batches of record numbers and yields the batches in the same order; a `BadRecord` replaces a bad batch."""
_LAST_CALL_S = 5.0
_log = logging.getLogger(__name__)


def connect(
    master: str | None = None,
    *,
    token: str | None = None,
    ca_file: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Job:
    """Connect this trainer to its job.

    Args:
        master: the URL of the master; by default EDL_MASTER.
        token: the token of the job; by default the content of the file EDL_TOKEN_FILE.
        ca_file: PEM file of the authority that signed the master's certificate; None uses the system's authorities.
        environment: POD_UID and POD_NAME identify this process.

    Raises:
        ConfigError: a value is missing, or cannot be used.
    """
    url = master or environment.get("EDL_MASTER", "")
    if not url:
        raise ConfigError(
            "connect: EDL_MASTER is empty: this job has no master, or this process does not run in a pod of a job;"
            " pass master=URL"
        )
    token = token or read_token(environment.get("EDL_TOKEN_FILE", ""))
    name = environment.get("POD_NAME") or environment.get("HOSTNAME") or f"pid-{os.getpid()}"
    # A random text: if the clock is set back, the timestamp of a later process is smaller than an earlier one.
    identity = {"pod_uid": environment.get("POD_UID") or name, "incarnation": uuid.uuid4().hex, "name": name}
    session = MasterSession(MasterConnection(url, token, ca_file), identity)
    return Job(session, Remote(url, token, ca_file), environment)


class Job:
    """A trainer's connection to its job: a context that gives back what it holds when the block ends.

    `edl.model.jobs.Job`, the planner's view of a job, is another class.

    Args:
        session: with the master.
        remote: the records, for other processes of this trainer.
        environment: the variables that edl has set for this pod.

    Attributes:
        is_closed: the block has ended.
        endings: how its loop in step ends.
    """

    def __init__(self, session: MasterSession, remote: Remote, environment: Mapping[str, str] = os.environ) -> None:
        self._session, self.remote, self._environment = session, remote, environment
        self._leaving = LeavingSignal()
        self._group: StepGroup | SharedGroup | None = None
        self._loop: StepLoop | None = None
        self._records = Records(session)
        self.endings = Endings((remote.place, session.identity["pod_uid"]))
        self.is_closed = False

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_closed:  # by an error that has left another block of the same job
            return
        late = self.endings.close(self._loop, error)
        if late is not None:
            self.__exit__(type(late), late, None)
            raise late
        self.is_closed, failed = True, isinstance(error, Exception)
        if self._group is not None:
            self._group.close()
        if isinstance(error, EdlError):  # not an error of the user's code: the condition of the job should show it
            write_termination_log(str(error), os.environ)
        self._session.close(f"{type(error).__name__}: {error}" if failed else "")
        self.endings.check_end(self._loop, error, is_leaving=self._leaving.is_set())

    @property
    def epoch(self) -> int:
        """The epoch of the last record that the loop got, from 0."""
        return max(0, self._records.epoch)

    def set_dataset(
        self,
        source: str,
        *,
        epochs: int = 1,
        seed: int = 0,
        shard_size: int | None = None,
        max_quarantined_fraction: float | None = None,
    ) -> None:
        """Set the data set, if the job's spec does not. Every trainer may call it, with the same values.

        Args:
            source: index:N, lines:GLOB, parquet:GLOB, tar:GLOB, or mix:RECORDS;WEIGHT SOURCE;WEIGHT SOURCE.
            epochs: how often to train on each record, at least 1.
            seed: decides the order of the records.
            shard_size: the most records of one lease; None for no limit.
            max_quarantined_fraction: in [0, 1]; the job fails if more of an epoch cannot be trained on.

        Raises:
            PermanentError: the job has another data set.
        """
        body: dict[str, Any] = {"source": source, "epochs": epochs, "seed": seed}
        if shard_size is not None:
            body["shardSize"] = shard_size
        if max_quarantined_fraction is not None:
            body["maxQuarantinedFraction"] = max_quarantined_fraction
        self._session.call("POST", "/v1/dataset", body)

    def records(self, read: Reader | None = None) -> Generator[Any, None, None]:
        """The records that this trainer trains on, until the job has ended.

        Args:
            read: turns a record (the number of `index:N`, a line or a row) into what the loop needs; by default the
                record is unchanged. If it raises an error, the record is tried again, and is quarantined after
                three failures.

        Raises:
            PermanentError: the master rejects this trainer, the job has failed, or a file has changed.
            ConfigError: a package that reads such files is not installed.
        """
        self._session.start()
        for lease in self._session.leases():
            order, source = self._records.reach(lease.epoch), self.source
            for position in lease.positions():
                try:
                    found = read_records(source, [order.record(position)], read)
                except EdlError:
                    lease.give_back()  # no record is to blame
                    raise
                if isinstance(found, BadRecord):
                    lease.fail(found)
                    break
                yield found[0]
        self._check_result()

    def batches(
        self, size: int, read: Reader | None = None, *, pipeline: Pipeline | None = None
    ) -> Generator[Any, None, None]:
        """Lists of records; a list is acknowledged as a whole when the loop asks for the next one.

        A batch is smaller if fewer records are available: a trainer does not wait with an incomplete batch.

        Args:
            size: the most records of a batch, at least 1.
            read: as `records` takes it.
            pipeline: reads batches ahead, maybe in other processes. A batch that it has read is acknowledged only
                after the loop has consumed it, and is dropped if its lease was lost in the meantime.

        Raises:
            PermanentError: see `records`.
            ConfigError: see `records`; or the size is less than 1.
        """
        if size < 1:
            raise ConfigError(f"batches: the size {size} is less than 1; give at least 1")
        through = pipeline or (lambda numbers: (read_records(self.source, some, read) for some in numbers))
        self._session.start()
        self._session.rewind()
        while (first := self._session.take(size, waits=True)) is not None:
            ahead = deque[PositionBatch]()
            for found in through(self._numbers(first, size, ahead)):
                batch = ahead.popleft()
                if isinstance(found, BadRecord):
                    self._session.fail(batch, found)
                elif self._session.deliver(batch):
                    self._records.reach(batch.epoch)
                    yield found
                    self._session.consumed(batch)
        self._check_result()

    def _numbers(self, first: PositionBatch, size: int, ahead: deque[PositionBatch]) -> Iterator[list[int]]:
        """The record numbers of one batch after the other, while positions are available."""
        batch: PositionBatch | None = first
        while batch is not None:
            ahead.append(batch)
            order = self._records.order_of(batch.epoch)
            yield [order.record(position) for position in batch.positions]
            batch = self._session.take(size, waits=False)

    @property
    def source(self) -> Source:
        """The records of the job; a `ConfigError` if a package that reads the data set is not installed."""
        return self._records.source

    @property
    def dataset(self) -> dict[str, Any]:
        """The data set: the field `dataset` of the master's status.

        Raises:
            PermanentError: the job has no data set yet.
        """
        return self._records.dataset

    def checkpoint(self, step: int) -> contextlib.AbstractContextManager[int]:
        """A block that saves the model: `with job.checkpoint(step) as number: save(model)`.

        Everything that is consumed when the block begins is committed when the block ends without an error.

        Args:
            step: the step of the training.
        """
        return self._checkpoint(step)

    @contextlib.contextmanager
    def _checkpoint(self, step: int) -> Iterator[int]:
        self._session.flush()
        body = {"session": self._session.identity, "step": step}
        yield (number := int(self._session.call("POST", "/v1/checkpoint/begin", body)["id"]))
        self._session.call("POST", "/v1/checkpoint/commit", {"id": number})

    def should_save(self, step: int, ttl_s: float = 600.0) -> bool:
        """Return True for one trainer per step: this trainer saves the model, and the others continue.

        Args:
            step: the same number on every trainer.
            ttl_s: another trainer may be elected after this many seconds.
        """
        body = {"session": self._session.identity, "step": step, "ttl_s": ttl_s}
        return bool(self._session.call("POST", "/v1/save-election", body)["elected"])

    def leaving(self) -> bool:
        """True once this trainer got SIGTERM: save what only this trainer has, and end the loop.

        The first call lets the process survive SIGTERM, so call it before every step. Kubernetes ends the process
        after the grace period of its pod, 30 s by default.
        """
        self._leaving.install()
        return self._leaving.is_set()

    def leave(self) -> None:
        """Leave the job as if this process had got SIGTERM."""
        self._leaving.set()

    def world(self) -> World | None:
        """The trainers with which this one trains in step; None if it is in no world."""
        return self._group.world if self._group is not None else None

    def steps(
        self,
        replica: Replica,
        endpoint: str,
        *,
        global_batch: int | tuple[int, int] | None = None,
        micro_batch: int | None = None,
        logical_ranks: int | None = None,
        save_every: int | None = 0,
        rate_rule: str = "",
        siblings: Siblings | None = None,
        is_sharded: bool = False,
    ) -> StepLoop:
        """The loop of a trainer that trains in step with the others; `edl.worker_torch.elastic` uses it for PyTorch.

        Args:
            replica: the model of this trainer.
            endpoint: where the replicas of other trainers reach it.
            global_batch: records of a step, or the fewest and the most of which the job chooses; by default
                EDL_GLOBAL_BATCH and EDL_GLOBAL_BATCH_MAX, from globalBatch and maxGlobalBatch of spec.elasticity.
            micro_batch: the most records of which a gradient is computed at once.
            logical_ranks: into how many parts each step is divided, whatever the number of trainers; by default
                EDL_LOGICAL_RANKS, which spec.elasticity.deterministic sets to the most trainers.
            save_every: save the model after so many steps of an epoch; None at the end of each epoch.
            rate_rule: how the learning rate follows the records of a step; one of `RATE_RULES`.
            siblings: the processes that are this trainer together; None for this one alone.
            is_sharded: each of them has a part of the model, so all of them need as many pieces.

        Raises:
            ConfigError: a value is missing, or the values contradict each other.
            PermanentError: the job has no data set, or this process has trained it.
        """
        self._leaving.install()
        by_spec = self._number("EDL_GLOBAL_BATCH"), self._number("EDL_GLOBAL_BATCH_MAX")
        least, most = batch_range(global_batch, by_spec)
        logical_ranks = (self._number("EDL_LOGICAL_RANKS") or 0) if logical_ranks is None else logical_ranks
        total, epochs = self.dataset["total"], self.dataset["epochs"]
        self.endings.check_begin(self._loop, epochs, self.status)
        division = Division(siblings.rank, siblings.size, is_sharded) if siblings is not None else Division()
        sizes = least, micro_batch, logical_ranks, save_every, most
        settings = StepSettings(total, epochs, *sizes, rate_rule, division)
        place = endpoint, self._number("TRAINERS") or 1, settings.agreement
        alone = StepGroup(self._session, *place) if siblings is None or siblings.rank == 0 else None
        shared = SharedGroup(siblings, alone, self._leaving.is_set) if siblings is not None else None
        group = self._group = shared or alone
        assert group is not None  # noqa: S101 - for the type checker
        is_leaving = shared.is_leaving if shared is not None else self._leaving.is_set
        self._loop = StepLoop(group, replica, settings, is_leaving, self._save)
        return self._loop

    def piece(self, piece: Piece, read: Reader | None = None) -> list[Any]:
        """Read the records of a piece (the part of a step that one trainer computes at once).

        Args:
            piece: the piece that the loop of `steps` has yielded.
            read: as `records` takes it.

        Raises:
            PermanentError: a record cannot be read.
        """
        numbers = list(self._records.reach(piece.epoch).records(piece.start, piece.end))
        return list(good_records(read_records(self.source, numbers, read)))

    def numbers_ahead(self, piece: Piece) -> list[int]:
        """The numbers of the records of a piece that may be next (or of the next epoch), to read them ahead."""
        return list(self._records.order_of(piece.epoch).records(piece.start, piece.end))

    def reached(self, piece: Piece) -> None:
        """Note that the loop now gets the records of a piece that were read ahead."""
        self._records.reach(piece.epoch)

    def _save(self, position: int, save: Callable[[int], None]) -> int:
        """Save the model at a position; returns the number of the checkpoint."""
        body = {"session": self._session.identity, "step": position}

        def begin() -> int:
            return int(self._session.call("POST", "/v1/checkpoint/begin", body)["id"])

        def commit(number: int) -> None:
            self._session.call("POST", "/v1/checkpoint/commit", {"id": number})

        if isinstance(self._group, SharedGroup):
            return self._group.save(begin, save, commit)
        number = begin()
        save(number)
        commit(number)
        return number

    def _number(self, name: str) -> int | None:
        """The value of a variable that holds a whole number; None if it is not set."""
        value = self._environment.get(name, "")
        if value and not value.isdecimal():
            raise ConfigError(f"{name}={value!r} is not a whole number; set it to one, or unset it")
        return int(value) if value else None

    def status(self) -> dict[str, Any]:
        """The body of the master's `GET /v1/status`."""
        return self._session.call("GET", "/v1/status")

    def _check_result(self) -> None:
        """Raise an error if the ended job has failed, and warn if this trainer got no record of it."""
        if self._records.epoch < 0:
            _log.warning(
                "this trainer got no record, because the job has used all of its data; train again by a new job"
            )
        try:
            status = self._session.call("GET", "/v1/status", limit_s=_LAST_CALL_S)
        except TemporaryError:
            return  # the job has ended, and its master may be gone too
        if status["state"] == "failed":
            raise PermanentError(
                f"job: {status['quarantined']} records of epoch {status['epoch']} cannot be trained on, which is more"
                " than maxQuarantinedFraction allows; check the data, or raise maxQuarantinedFraction"
            )
