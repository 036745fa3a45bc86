"""Objects that make a workload of another kind, such as a RayJob its RayCluster, and that decide how long it lasts.

Such an object has no pods of its own, and edl resizes only what it makes. A workload whose maker has ended, or that
edl cannot see, is left alone: nobody knows whether it still runs anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from edl.kube.translate.objects import ObjectMetadata, OwnerReference
from edl.kube.translate.workload_reader import WorkloadObject
from edl.model.jobs import Job

_MAKERS = {("ray.io/v1", "RayJob")}
"""(apiVersion, kind) of the objects that make workloads which edl resizes."""


class MakerReader(ABC):
    """Reads the objects of a kind that makes workloads."""

    @abstractmethod
    def ending(self, source: Any) -> str:  # noqa: ANN401 - the decoded object of the kind
        """Return why the workload runs nothing any more, and the remedy; empty while it is needed."""


class Makers:
    """Compares what the makers of workloads say with the last snapshot."""

    def __init__(self) -> None:
        self._endings: dict[str, str] = {}
        self._changed: frozenset[str] = frozenset()

    def read(self, workloads: Iterable[WorkloadObject]) -> list[WorkloadObject]:
        """Read the makers among the workloads of a snapshot.

        Returns:
            The others.
        """
        before, self._endings = self._endings, {}
        others = []
        for reader, source in workloads:
            if not isinstance(reader, MakerReader):
                others.append((reader, source))
            elif (metadata := source.metadata) is not None and metadata.uid:
                self._endings[metadata.uid] = reader.ending(source)
        uids = {*before, *self._endings}
        self._changed = frozenset(uid for uid in uids if before.get(uid) != self._endings.get(uid))
        return others

    def has_changed(self, metadata: ObjectMetadata) -> bool:
        """True if the maker of the workload says something else than in the snapshot before."""
        maker = maker_of(metadata)
        return maker is not None and maker.uid in self._changed

    def apply(self, job: Job, metadata: ObjectMetadata) -> Job:
        """Return the job, ended or ending if its maker says so.

        Args:
            job: as its adapter read it.
            metadata: of its object.
        """
        maker = maker_of(metadata)
        if maker is None or job.deleting:
            return job
        ending = self._endings.get(maker.uid or "")
        if ending:
            return replace(job, finishing=True, problem=ending)
        if ending is None and not job.problem:
            return replace(job, problem=_unseen(maker))
        return job


def maker_of(metadata: ObjectMetadata) -> OwnerReference | None:
    """Return the maker that controls a workload; None if there is none of a kind that edl reads."""
    owners = (one for one in metadata.owner_references or () if one.controller)
    return next((one for one in owners if (one.api_version, one.kind) in _MAKERS), None)


def _unseen(maker: OwnerReference) -> str:
    return (
        f"{maker.kind} {maker.name}, which made it, is not among the objects that edl reads, so edl does not know"
        f" whether it still runs; give edl the right to list {maker.kind}s (deploy/kuberay), or add it to the files"
    )
