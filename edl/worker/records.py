"""The records of a job as a trainer reads them: which one is at a position of an epoch, and what it holds."""

from __future__ import annotations

from typing import Any

from edl.errors import PermanentError
from edl.ledger.permutation import EpochOrder
from edl.worker.connection import MasterConnection
from edl.worker.data import Source, source_of
from edl.worker.session import MasterSession


class Remote:
    """The records of a job for another process of the same trainer. It can be pickled, and holds no lease.

    Args:
        url: the URL of the master.
        token: the token of the job.
        ca_file: as `connect` takes it.
    """

    def __init__(self, url: str, token: str, ca_file: str | None) -> None:
        self._master = self.place = url, token, ca_file
        self._source: Source | None = None

    @property
    def source(self) -> Source:
        """The records of the job; the first use asks the master for the data set.

        Raises:
            PermanentError: the master refused the request.
            ConfigError: a package that reads the data set is not installed.
        """
        if self._source is None:
            session = MasterSession(MasterConnection(*self._master), {})  # never started, so it holds no lease
            dataset = session.call("GET", "/v1/status")["dataset"]
            self._source = source_of(dataset, lambda path: session.call("GET", path))
        return self._source


class Records:
    """The data set of a job, and the epoch in which the loop of this trainer is.

    Args:
        session: with the master, which is asked for the data set once.

    Attributes:
        epoch: the epoch of the last record that the loop got; -1 before the first one.
    """

    def __init__(self, session: MasterSession) -> None:
        self._session = session
        self._dataset: dict[str, Any] | None = None
        self._source: Source | None = None
        self.epoch = -1
        self._orders: dict[int, EpochOrder] = {}  # of the epoch of the loop, and of one that is read ahead

    @property
    def source(self) -> Source:
        """What reads a record by its number.

        Raises:
            ConfigError: a package that reads the data set is not installed.
        """
        if self._source is None:
            self._source = source_of(self.dataset, lambda path: self._session.call("GET", path))
        return self._source

    @property
    def dataset(self) -> dict[str, Any]:
        """The field `dataset` of the master's status.

        Raises:
            PermanentError: the job has no data set yet.
        """
        if self._dataset is None:
            self._dataset = self._session.call("GET", "/v1/status")["dataset"]
        if self._dataset is None:
            raise PermanentError("dataset: the job has none yet; set spec.dataset, or call set_dataset()")
        return self._dataset

    def reach(self, epoch: int) -> EpochOrder:
        """The loop gets records of an epoch; returns their order."""
        self.epoch = epoch
        return self.order_of(epoch)

    def order_of(self, epoch: int) -> EpochOrder:
        """The order of an epoch, maybe of one that the loop has not reached."""
        if epoch not in self._orders:
            data, kept = self.dataset, self._orders.get(self.epoch)
            self._orders = {self.epoch: kept} if kept is not None else {}
            self._orders[epoch] = EpochOrder(data["total"], data["seed"], epoch, data["block"])
        return self._orders[epoch]
