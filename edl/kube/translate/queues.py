"""Queue objects become `Queue` values; one that is not valid is reported, and keeps its last valid limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from edl.api.queues import QUEUE_KIND, parse_queue
from edl.errors import ConfigError
from edl.kube.translate.decoders import Decoder, Quarantined
from edl.kube.translate.objects import ObjectMetadata
from edl.kube.translate.shapes import parse_amounts
from edl.model.queues import Amounts, Queue, Reclaim


class QueueObject(msgspec.Struct):
    """A Queue: its metadata decoded, and its spec raw. Its status is not read: edl computes it."""

    metadata: ObjectMetadata | None = None
    spec: Any = None


QUEUES = Decoder(QUEUE_KIND, QueueObject)


class QueueReader:
    """Translates the queues again and again; one that becomes invalid keeps its last valid limits."""

    def __init__(self) -> None:
        self._valid: dict[str, Queue] = {}

    def read(
        self, sources: Iterable[QueueObject], unread: Iterable[Quarantined], left_out: list[Quarantined]
    ) -> tuple[Queue, ...]:
        """Translate the queues, sorted by name; one that is not valid never lifts a limit.

        Args:
            sources: every Queue that can be decoded.
            unread: the others; somebody reports them already.
            left_out: gets each other queue that is not valid.
        """
        found = [self._invalid(one, None) for one in unread if one.name]
        for source in sources:
            metadata = source.metadata or ObjectMetadata()
            try:
                found.append(_read(metadata, source.spec))
            except ConfigError as error:
                bad = Quarantined(QUEUE_KIND, "", metadata.name or "", metadata.uid or "", str(error))
                found.append(self._invalid(bad, metadata.generation))
                left_out.append(replace(bad, problem=f"{error}; {_consequence(found[-1])}"))
        self._valid = {queue.name: queue for queue in found if not queue.is_unknown}
        return tuple(sorted(found, key=lambda queue: queue.name))

    def _invalid(self, bad: Quarantined, generation: int | None) -> Queue:
        known = self._valid.get(bad.name)
        if known is None or known.uid != bad.uid:
            known = Queue(bad.name, (), uid=bad.uid)
        return replace(known, problem=bad.problem, generation=generation or known.generation)


def _consequence(queue: Queue) -> str:
    """Say which limits of an invalid Queue apply until somebody repairs it."""
    return "its jobs get no more than they have" if queue.is_unknown else "its last valid limits count"


def _read(metadata: ObjectMetadata, body: object) -> Queue:
    """Translate one queue.

    Raises:
        ConfigError: it breaks a rule.
    """
    spec = parse_queue({"metadata": {"name": metadata.name}, "spec": body})
    return Queue(
        metadata.name or "",
        _amounts(spec.nominal_quota),
        float(spec.weight),
        _amounts(spec.borrowing_limit),
        Reclaim(spec.reclaim),
        spec.cohort,
        metadata.uid or "",
        metadata.generation or 1,
        best_effort=spec.best_effort == "Allowed",
    )


def _amounts(quantities: dict[str, int | str]) -> Amounts:
    return tuple(sorted(parse_amounts(quantities).items()))
