"""Reads workloads that do not ask to be resized as if they did: `edl shadow --as-if-elastic`.

A reader of a kind gets a copy of the object with the annotations of edl, so what the kind refuses is refused here,
too. An object that has annotation `paddlepaddle.org/elastic` with any value, `false` too, is read as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from edl.api.roles import MAX_INSTANCES
from edl.kube.translate.objects import PodObject
from edl.kube.translate.scalars import text
from edl.kube.workloads.adapter import MirroredKind
from edl.kube.workloads.annotations import ELASTIC, INDEXES, MAX, MIN
from edl.kube.workloads.batch_jobs import ITEMS
from edl.kube.workloads.batch_objects import BatchJobObject
from edl.kube.workloads.pytorch_jobs import PyTorchJobs
from edl.kube.workloads.ray_objects import RayClusterObject
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod


@dataclass(frozen=True, slots=True)
class AsIfBounds:
    """The bounds of a workload that has none.

    Attributes:
        halves: the minimum is half of the pods that it has, rounded up; else it is 1.
        doubles: the maximum is twice as many as it has; else as many as it has.
    """

    halves: bool = True
    doubles: bool = True

    def of(self, count: int) -> tuple[int, int]:
        """The minimum and the maximum, each at least 1, for a workload with a number of pods."""
        low = (count + 1) // 2 if self.halves else 1
        return low, min(MAX_INSTANCES, 2 * count if self.doubles else count)


class AsIfElastic:
    """A reader of a kind that adds the annotations; see `edl.kube.workloads.adapter.MirroredKind`.

    Args:
        reader: of the kind.
        bounds: of the workloads that have none.
    """

    def __init__(self, reader: MirroredKind, bounds: AsIfBounds) -> None:
        self._reader, self._bounds = reader, bounds
        self.kind, self.api, self.decoder = reader.kind, reader.api, reader.decoder

    def key(self, source: Any) -> JobKey:  # noqa: ANN401 - the decoded object of the kind
        """The key of an object."""
        return self._reader.key(source)

    def is_elastic(self, source: Any) -> bool:  # noqa: ANN401 - as above
        """True if the object asks to be resized, or is read as if it did."""
        return self._reader.is_elastic(self._asked(source))

    def problem(self, source: Any) -> str:  # noqa: ANN401 - as above
        """Say why edl would not resize the object even if it asked for it."""
        return self._reader.problem(self._asked(source))

    def read(self, source: Any, pods: Collection[Pod], source_of: Callable[[Pod], PodObject], now_s: float) -> Job:  # noqa: ANN401 - as above
        """Translate an object.

        Raises:
            ConfigError: a quantity of the object cannot be parsed.
        """
        return self._reader.read(self._asked(source), pods, source_of, now_s)

    def templates(self, source: Any) -> Mapping[Role, PodObject]:  # noqa: ANN401 - as above
        """The pod templates of the object, by role."""
        return self._reader.templates(source)

    def count(self, source: Any) -> int:  # noqa: ANN401 - as above
        """How many pods the controller of the kind keeps now."""
        return self._reader.count(source)

    def _asked(self, source: Any) -> Any:  # noqa: ANN401 - as above
        """Add the annotations to an object, unless it has no pods, or already says whether it wants to be resized."""
        metadata = source.metadata
        annotations = (metadata.annotations if metadata else None) or {}
        count = self._reader.count(source)
        if metadata is None or text(annotations.get(ELASTIC)) or count < 1:
            return source
        low, high = self._bounds.of(count)
        wanted = {MIN: low, MAX: high} | self._declared(source, low, high)
        asked = {ELASTIC: "true", **{name: str(value) for name, value in wanted.items()}}
        if isinstance(source, BatchJobObject) and source.spec and source.spec.completion_mode == "Indexed":
            asked[INDEXES] = ITEMS  # each index must run: the kinder of the two assumptions
        metadata = msgspec.structs.replace(metadata, annotations={**asked, **annotations})
        return msgspec.structs.replace(source, metadata=metadata)

    def _declared(self, source: Any, low: int, high: int) -> dict[str, int]:  # noqa: ANN401 - as above
        """The bounds that the object has itself; a RayCluster and an elastic PyTorchJob may have some."""
        if isinstance(self._reader, PyTorchJobs):
            return self._reader.declared_bounds(source)
        if isinstance(source, RayClusterObject) and source.spec and source.spec.worker_group_specs:
            group = source.spec.worker_group_specs[0]
            most = high if group.max_replicas is None else min(high, group.max_replicas)
            return {MIN: min(most, max(low, group.min_replicas or 0)), MAX: most}
        return {}
