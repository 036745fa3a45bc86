"""Keeps what a plan has read for the next plan; without it the next plan reads everything."""

from __future__ import annotations

from collections.abc import Mapping

from edl.planner.reading.pods_of_jobs import PodsOfJobs
from edl.planner.reading.pods_of_others import PodsOfOthers


class KeptReading:
    """The arrays of the pods that were read last. What is read does not depend on it.

    One thread at a time may use it.

    Attributes:
        others: the pods of no job.
        jobs: the pods of each job.
    """

    def __init__(self) -> None:
        self.others, self.jobs = PodsOfOthers(), PodsOfJobs()
        self._nodes: list[str] = []

    def begin(self, index: Mapping[str, int]) -> None:
        """Begin with a snapshot; if its nodes are not those of the last one, in the same order, nothing is kept.

        Args:
            index: the number of each node.
        """
        nodes = list(index)
        has_other_nodes = nodes != self._nodes
        self._nodes = nodes
        self.jobs.begin(forget=has_other_nodes)
        if has_other_nodes:
            self.others.forget()
