"""What a trainer imports to get its share of the data, whatever happens to other trainers and to the master.

    from edl.worker import connect
    with connect() as job:
        for record in job.records():
            train(record)

Nothing but the standard library, unless the data set is one of files: then the extra that reads them, too.

A record counts as consumed when the loop asks for the next one, so that a trainer which dies while it trains on a
record leaves that record to others; what is only prefetched is never acknowledged. A thread heartbeats and fetches
work ahead. Leases are kept to by this process's own monotonic clock, counted from when a request was sent: a trainer
that was cut off stops before others get its work. A lost master is waited for.

A record that was trained on right before a crash may have changed the model although it is dispatched again: exactly
once is said of the accounts. Where that matters, tie them to checkpoints: `with job.checkpoint(step)`.
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
from edl.ledger.permutation import EpochOrder
from edl.termination_log import write_termination_log
from edl.worker.data import Reader, Source, read_all, source_of
from edl.worker.lease import Fault, Handed
from edl.worker.session import MasterSession
from edl.worker.wire import Wire

Pipeline = Callable[[Iterable[list[int]]], Iterable[Any]]
"""Reads batches of records, given by their numbers, and yields them in the same order; a `Fault` for a bad one."""
_FAREWELL_S = 5.0
_LOG = logging.getLogger(__name__)


def connect(
    master: str | None = None,
    *,
    token: str | None = None,
    ca_file: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Job:
    """The job that this trainer works for.

    Args:
        master: URL of the master; by default EDL_MASTER.
        token: of the job; by default the content of EDL_TOKEN_FILE.
        ca_file: PEM of who signed the master's certificate, where the system does not know it.
        environment: where POD_UID and POD_NAME tell who this is.

    Raises:
        ConfigError: something of it is missing or cannot be used.
    """
    url = master or environment.get("EDL_MASTER", "")
    if not url:
        raise ConfigError(
            "connect: EDL_MASTER is empty: this job has no master, or this is no pod of a job; give master="
        )
    token = token or _token(environment.get("EDL_TOKEN_FILE", ""))
    name = environment.get("POD_NAME") or environment.get("HOSTNAME") or f"pid-{os.getpid()}"
    # Never seen before, and no number: after a clock was set back, that of a later process would be the smaller one.
    who = {"pod_uid": environment.get("POD_UID") or name, "incarnation": uuid.uuid4().hex, "name": name}
    return Job(MasterSession(Wire(url, token, ca_file), who), Remote(url, token, ca_file))


class Remote:
    """Where another process of this trainer finds the records; it can be sent there, and holds no lease.

    Args:
        url, token, ca_file: as `connect` takes them.
    """

    def __init__(self, url: str, token: str, ca_file: str | None) -> None:
        self._master = url, token, ca_file
        self._source: Source | None = None

    @property
    def source(self) -> Source:
        """Where this job's records come from, looked up when it is first asked for.

        Raises:
            PermanentError: the master refuses.
            ConfigError: what reads them is not installed.
        """
        if self._source is None:
            asking = MasterSession(Wire(*self._master), {})  # never started: it asks, and holds nothing
            dataset = asking.call("GET", "/v1/status")["dataset"]
            self._source = source_of(dataset, lambda path: asking.call("GET", path))
        return self._source


class Job:
    """A trainer's connection to its master; a context that gives back what it holds when it ends.

    Args:
        session: what speaks to the master.
        remote: for processes that read for this one.
    """

    def __init__(self, session: MasterSession, remote: Remote) -> None:
        self._session, self.remote = session, remote
        self._dataset: dict[str, Any] | None = None
        self._order: tuple[int, EpochOrder | None] = (-1, None)
        self._source: Source | None = None

    def __enter__(self) -> Job:
        self._session.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed = isinstance(error, Exception)
        if isinstance(error, EdlError):  # nothing that the user's code has done: the job's condition should say it
            write_termination_log(str(error), os.environ)
        self._session.close(f"{type(error).__name__}: {error}" if failed else "")

    @property
    def epoch(self) -> int:
        """The epoch of the record that was handed out last, from 0."""
        return self._order[0] if self._order[0] >= 0 else 0

    def set_dataset(
        self,
        source: str,
        *,
        epochs: int = 1,
        seed: int = 0,
        shard_size: int | None = None,
        max_quarantined_fraction: float | None = None,
    ) -> None:
        """Say what is sharded, where the job does not say it; every trainer may, all the same.

        Raises:
            PermanentError: another data set is being trained on.
        """
        body: dict[str, Any] = {"source": source, "epochs": epochs, "seed": seed}
        if shard_size is not None:
            body["shardSize"] = shard_size
        if max_quarantined_fraction is not None:
            body["maxQuarantinedFraction"] = max_quarantined_fraction
        self._session.call("POST", "/v1/dataset", body)

    def records(self, read: Reader | None = None) -> Generator[Any, None, None]:
        """The records that this trainer is to train on, until the job has ended.

        Args:
            read: turns a record (the number of `index:N`, the line or the row of a file) into what the loop wants;
                by default it stays what it is. Where it raises, the record is reported, tried again, and left out
                when it keeps failing.

        Raises:
            PermanentError: the master refuses this trainer, the job has failed, or a file is not as it was.
            ConfigError: what reads such files is not installed.
        """
        for lease in self._session.leases():
            order, source = self._order_of(lease.epoch), self.source
            for position in lease.positions():
                try:
                    found = read_all(source, [order.record(position)], read)
                except EdlError:
                    lease.fail(Fault(""))  # no record is to blame
                    raise
                if isinstance(found, Fault):
                    lease.fail(found)
                    break
                yield found[0]
        self._check_end()

    def batches(
        self, size: int, read: Reader | None = None, *, pipeline: Pipeline | None = None
    ) -> Generator[Any, None, None]:
        """Lists of records; those of one are acknowledged when the loop asks for the next one.

        A batch is smaller where no more records are at hand: nobody waits for others with a part of a batch.

        Args:
            size: of a batch, at least 1.
            read: as `records` takes it.
            pipeline: reads batches ahead, and may do it elsewhere; what it has read is not acknowledged before the
                loop has consumed it, and not handed to the loop where the lease was lost meanwhile.

        Raises:
            As `records`; ConfigError also where the size is none.
        """
        if size < 1:
            raise ConfigError(f"batches: the size {size} is less than 1; give a batch at least one record")
        through = pipeline or (lambda numbers: (read_all(self.source, some, read) for some in numbers))
        self._session.rewind()
        while (first := self._session.take(size, waits=True)) is not None:
            ahead = deque[Handed]()
            for found in through(self._numbers(first, size, ahead)):
                handed = ahead.popleft()
                if isinstance(found, Fault):
                    self._session.fail(handed, found)
                elif self._session.show(handed):
                    self._order = (handed.epoch, self._order_of(handed.epoch))
                    yield found
                    self._session.consumed(handed)
        self._check_end()

    def _numbers(self, first: Handed, size: int, ahead: deque[Handed]) -> Iterator[list[int]]:
        """The records of one batch after the other, while there are some at hand."""
        handed: Handed | None = first
        while handed is not None:
            ahead.append(handed)
            order = self._order_of(handed.epoch)
            yield [order.record(position) for position in handed.positions]
            handed = self._session.take(size, waits=False)

    @property
    def source(self) -> Source:
        """Where this job's records come from.

        Raises:
            ConfigError: what reads them is not installed.
        """
        if self._source is None:
            self._source = source_of(self.dataset, lambda path: self._session.call("GET", path))
        return self._source

    @property
    def dataset(self) -> dict[str, Any]:
        """What is sharded, as the master's status tells it.

        Raises:
            PermanentError: nobody has said it yet.
        """
        if self._dataset is None:
            self._dataset = self.status()["dataset"]
        if self._dataset is None:
            raise PermanentError("dataset: none is given yet; give the job one, or call set_dataset()")
        return self._dataset

    def checkpoint(self, step: int) -> contextlib.AbstractContextManager[int]:
        """What was reported when the block begins is committed when it ends without an error.

        with job.checkpoint(step) as number: save(model)
        """
        return self._checkpoint(step)

    @contextlib.contextmanager
    def _checkpoint(self, step: int) -> Iterator[int]:
        self._session.flush()
        body = {"session": self._session.who, "step": step}
        number = int(self._session.call("POST", "/v1/checkpoint/begin", body)["id"])
        yield number
        self._session.call("POST", "/v1/checkpoint/commit", {"id": number})

    def should_save(self, step: int, ttl_s: float = 600.0) -> bool:
        """True for one trainer per step: it saves the model, the others go on.

        Args:
            step: the same number on every trainer.
            ttl_s: after such a time another trainer may be asked.
        """
        body = {"session": self._session.who, "step": step, "ttl_s": ttl_s}
        return bool(self._session.call("POST", "/v1/save-election", body)["elected"])

    def status(self) -> dict[str, Any]:
        """What the master holds."""
        return self._session.call("GET", "/v1/status")

    def _order_of(self, epoch: int) -> EpochOrder:
        if self._order[0] != epoch or self._order[1] is None:
            data = self.dataset
            self._order = (epoch, EpochOrder(data["total"], data["seed"], epoch, data["block"]))
        order = self._order[1]
        assert order is not None  # noqa: S101 for the type checker
        return order

    def _check_end(self) -> None:
        if self._order[0] < 0:
            _LOG.warning(
                "no record was left for this trainer: the job's data is used up; to train on it again, begin a job"
                " with a journal of its own"
            )
        try:
            status = self._session.call("GET", "/v1/status", patience_s=_FAREWELL_S)
        except TemporaryError:
            return  # the job has ended, and its master may have gone with it
        if status["state"] == "failed":
            raise PermanentError(
                f"job: {status['quarantined']} records of epoch {status['epoch']} cannot be trained on, more than the"
                " data set allows; look at the data, or raise maxQuarantinedFraction"
            )


def _token(path: str) -> str:
    if not path:
        raise ConfigError("connect: EDL_TOKEN_FILE is empty; give token=, or the file with the job's token")
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 no more imports than needed
            return file.read().strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"connect: EDL_TOKEN_FILE {path}: cannot be read: {error}; give a readable file") from error
