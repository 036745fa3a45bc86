"""Decision records: JSON files that hold everything a decision was made from, so that it can be replayed later.

A record is written if a decision changed. The newest records are kept, and before them the first one of each hour: a
tenant whose jobs come and go fast cannot push out all that is older. A full disk loses records and never stops the
controller.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from edl.errors import ConfigError
from edl.model.cluster import ClusterSnapshot
from edl.model.limits import Limits
from edl.model.plan import Certificate, ScaleDecision, ScalePlan
from edl.observability.stored_names import encode_with_stored_names, with_code_names

RECORD_VERSION = 1
RECORDS_KEPT = 1000
HOURS_KEPT = 720
RECORDS = "decision-*.json"


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision and everything that it was made from.

    Attributes:
        policy: name of the policy, as in `--policy`; empty for the default.
        limits: what the operator allowed.
        snapshot: the cluster as the planner got it.
        plan: the decision; `plan.given` are the columns that it started from. If the same decision is made again,
            only `plan.seconds` differs.
        ahead_of_plan: the plan has nothing but the jobs that freed capacity for serving pods ahead of the next plan.
    """

    policy: str
    limits: Limits
    snapshot: ClusterSnapshot
    plan: ScalePlan
    version: int = RECORD_VERSION
    ahead_of_plan: bool = False


def plan_of_early_evictions(decisions: Sequence[ScaleDecision]) -> ScalePlan:
    """Put the evictions ahead of the next plan into the form of a recorded plan; its certificate is empty."""
    return ScalePlan(tuple(decisions), Certificate("", 0.0, 0.0))


def encode_record(record: DecisionRecord) -> bytes:
    """The record as JSON, with the stored field names (see `stored_names`)."""
    return encode_with_stored_names(record)


def decode_record(raw: bytes) -> DecisionRecord:
    """Read a record that `encode_record` wrote, also one of an older edl.

    Raises:
        ConfigError: the bytes are not a record, or a record of another version.
    """
    try:
        record = msgspec.json.decode(with_code_names(raw), type=DecisionRecord)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ConfigError(f"not a decision record: {error}; give a file that --record wrote") from error
    if record.version != RECORD_VERSION:
        raise ConfigError(
            f"the record has version {record.version} and this edl reads version {RECORD_VERSION}; use the edl that"
            " wrote it"
        )
    return record


class RecordFolder:
    """Keeps records in a folder: one file for each record, named by time."""

    def __init__(self, folder: Path, *, keep: int = RECORDS_KEPT, hours: int = HOURS_KEPT) -> None:
        """Use this folder; create it if it does not exist.

        Args:
            folder: where the files are.
            keep: so many of the newest records are kept.
            hours: of older records, keep the first one of each hour, for so many hours that have records.

        Raises:
            ConfigError: the folder cannot be written to.
        """
        self._folder, self._keep, self._hours = folder, keep, hours
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise ConfigError(
                f"--record {folder}: cannot write to this folder: {error.strerror or error}; choose a writable folder"
            ) from error

    def write(self, record: DecisionRecord) -> Path:
        """Add a record, completely or not at all, and delete old records beyond the limits.

        Raises:
            OSError: the file cannot be written.
        """
        at = datetime.fromtimestamp(record.snapshot.observed_at_s, UTC)
        path = self._folder / f"decision-{at:%Y%m%dT%H%M%S.%f}.json"
        part = path.with_suffix(".part")
        try:
            part.write_bytes(encode_record(record))
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        older = sorted(self._folder.glob(RECORDS))[: -self._keep]
        first_of_hour = {_hour_of(record): record for record in reversed(older)}
        kept = set(sorted(first_of_hour.values(), reverse=True)[: self._hours])
        for old in older:
            if old not in kept:
                old.unlink(missing_ok=True)
        return path


def _hour_of(record: Path) -> str:
    """The part of the name of a record that all of an hour have in common."""
    return record.name[: len("decision-20260102T15")]
