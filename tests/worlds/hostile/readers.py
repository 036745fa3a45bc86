"""Everything of edl that decodes bytes which others have written, each with inputs that are valid.

A reader may refuse with an error that edl raises on purpose, and with nothing else.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from edl.errors import EdlError
from edl.kube.bounds.json_depth import UNREADABLE
from edl.kube.bounds.object_bounds import decode_object
from edl.kube.client import responses
from edl.kube.client.api_errors import error_of
from edl.kube.expected_nodes_file import read_expected_nodes
from edl.kube.queue_file import read_queues
from edl.kube.snapshot_files.saved_cluster import read_snapshot_texts
from edl.kube.tenants_file import read_tenants
from edl.kube.translate.decoders import Quarantined
from edl.kube.translate.snapshot import ClusterObjects, Translator
from edl.kube.workloads.registry import ADAPTERS
from edl.kube.yaml_files import read_text
from edl.ledger.dispatch import LedgerSettings
from edl.master.journal import FileLedgerStore
from edl.master.journal_audit import audit, audit_json, audit_text
from edl.master.journal_files import JournalFolder, frame, snapshot_bytes
from edl.master.master import Recovered, recover
from edl.master.status_client import status_text
from edl.observability.replay import Verdict, replay
from edl.sim.scenario_file import read_scenario
from tests.worlds import raw_objects

ROOT = Path(__file__).parents[3]
JOURNAL = ROOT / "tests/master/journals/before-the-move"
SNAPSHOT = JOURNAL / "snapshot-000000000000006"
RECORD = ROOT / "tests/observability/records/decision-before-the-move.json"
OBJECTS: tuple[raw_objects.Object, ...] = (
    raw_objects.node(),
    raw_objects.trainer(0, spec={"nodeName": "n1"}),
    raw_objects.job(),
    raw_objects.batch_job(),
    raw_objects.volcano_job(),
    raw_objects.ray_cluster(),
    {"kind": "Queue", "metadata": {"name": "q"}, "spec": {"nominalQuota": {"cpu": "3"}, "weight": 2}},
    raw_objects.DAEMON_SET,
)
_VERSIONS = {"Node": "v1", "Pod": "v1", "DaemonSet": "apps/v1", "Queue": "paddlepaddle.org/v1"}


@dataclass(frozen=True, slots=True)
class Reader:
    """One parser.

    Attributes:
        seeds: valid inputs.
        read: reads an input; the folder is empty and its own.
        refusals: what it may raise besides the errors of edl, because its caller expects it.
    """

    seeds: tuple[bytes, ...]
    read: Callable[[bytes, Path], object]
    refusals: tuple[type[Exception], ...] = ()


def _plan_file(name: str) -> Callable[[bytes, Path], object]:
    def read(data: bytes, _: Path) -> object:
        saved = read_snapshot_texts([(name, read_text(name, lambda: data))])
        saved.reject_broken_queues()
        return [*saved.dropped(), *saved.not_asked(), *saved.replaced_jobs(), saved.base, saved.snapshot()]

    return read


def _written(read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """A reader of a file."""

    def of_bytes(data: bytes, folder: Path) -> object:
        path = folder / "given"
        path.write_bytes(data)
        return read(path)

    return of_bytes


def _watched(data: bytes, _: Path) -> object:
    """Objects as a watch sends them, to the end: a snapshot of what could be decoded."""
    translator = Translator()
    event = responses.event_of(data)
    for decoder in raw_objects.DECODERS.values():
        one = decoder.from_bytes(event.object)
        if not isinstance(one, Quarantined):
            _translated(translator, decoder.kind, one)
    return decode_object(bytes(event.object))


def _translated(translator: Translator, kind: str, one: Any) -> None:
    workloads = [(adapter, one) for adapter in ADAPTERS.values() if adapter.decoder.kind == kind]
    translator.snapshot(
        now_s=1000.0,
        objects=ClusterObjects(
            nodes=[one] if kind == "Node" else [],
            pods=[one] if kind == "Pod" else [],
            jobs=[one] if kind == "TrainingJob" else [],
            workloads=workloads,
            daemonsets=[one] if kind == "DaemonSet" else [],
            queues=[one] if kind == "Queue" else [],
        ),
    )


def _replayed(path: Path) -> object:
    found = replay(path)
    bug = found.verdict is Verdict.FAILED and found.record is None
    assert not bug, found.problem
    return found


def _journal(data: bytes, folder: Path, name: str) -> object:
    """A journal of which one file was changed: audited, and read as a master that starts reads it."""
    path = folder / "journal"
    shutil.copytree(JOURNAL, path)
    (path / name).write_bytes(data)
    with suppress(EdlError):
        _recovered(path)
    report = audit(path)
    return audit_text(report), audit_json(report)


def _recovered(path: Path) -> Recovered:
    store = FileLedgerStore(path)
    try:
        return recover(store, LedgerSettings(ttl_s=30.0), 0.0, expected=None, restarts_epoch=False)
    finally:
        asyncio.run(store.close())


def _of_journal(name: str) -> Reader:
    return Reader(((JOURNAL / name).read_bytes(),), lambda data, folder: _journal(data, folder, name))


def _forged(data: bytes, folder: Path) -> object:
    """Records that no ledger has written, after some that one has, with a right checksum."""
    records = [*_of_folder(), data.replace(b"\n", b" ")]
    path = folder / "forged"
    path.mkdir()
    (path / JournalFolder(path).journal(0).name).write_bytes(frame(0, records))
    with suppress(EdlError):
        _recovered(path)
    return audit_text(audit(path))


def _of_folder() -> list[bytes]:
    """The records of the journal that is here."""
    folder = JournalFolder(JOURNAL)
    return [record for number, file in folder.journals() for record in folder.records(file, number, [])]


def _forged_snapshot(data: bytes, folder: Path) -> object:
    path = folder / "forged"
    shutil.copytree(JOURNAL, path)
    (path / SNAPSHOT.name).write_bytes(snapshot_bytes(data))
    (path / "journal-000000000000000").unlink()
    with suppress(EdlError):
        _recovered(path)
    return audit_text(audit(path))


def _status(data: bytes, _: Path) -> object:
    return status_text(json.loads(data))


def _events() -> tuple[bytes, ...]:
    with_version = ({"apiVersion": _VERSIONS.get(one["kind"], "v1"), **one} for one in OBJECTS)
    return tuple(msgspec.json.encode({"type": "ADDED", "object": one}) for one in with_version)


def _list() -> dict[str, object]:
    items = [{"apiVersion": _VERSIONS.get(one["kind"], "v1"), **one} for one in OBJECTS]
    return {"apiVersion": "v1", "kind": "List", "items": items}


_QUEUES = b"blue: {cpu: 4, memory: 8Gi}\nred: {nvidia.com/gpu: 2, bestEffort: Allowed}\n"
_TENANTS = b'unknown-queues: refuse\nnamespaces:\n  "*": {max-priority: 0, queues: [default]}\n'
_EXPECTED = (
    b"groups: [{name: a, allocatable: {cpu: 4, memory: 8Gi}, labels: {pool: a}, limit: 2, seconds-to-come: 60}]"
)
_STATUS = {
    "state": "running",
    "epoch": 0,
    "dataset": {"source": "index:100", "epochs": 2},
    **dict.fromkeys(("total", "todo", "leased", "reported", "committed", "quarantined"), 3),
    "sessions": {"live": 2, "holding": 1},
    "blocked": None,
    "holders": [{"name": "a", "leases": 1, "positions": 3, "done": 4, "rate": 1.5}],
    "group": {
        "members": ["a"],
        "waiting": ["b"],
        "generation": 3,
        "hung": [{"name": "a", "seconds": 3.0, "reason": "x"}],
    },
}
_FAILURE = (
    b'{"kind": "Status", "code": 429, "reason": "TooMany", "details": {"retryAfterSeconds": 3}, "message": "x"}'
)

READERS: dict[str, Reader] = {
    "plan file, YAML": Reader(
        (
            yaml.safe_dump(_list()).encode(),
            *(path.read_bytes() for path in sorted((ROOT / "example").glob("*.yaml"))),
        ),
        _plan_file("given.yaml"),
    ),
    "plan file, JSON": Reader((json.dumps(_list()).encode(),), _plan_file("given.json")),
    "line of a watch": Reader(_events(), _watched, UNREADABLE),
    "error of the API server": Reader(
        (_FAILURE,), lambda data, _: error_of(500, data, "x", data.decode(errors="replace"))
    ),
    "queue file": Reader((_QUEUES,), _written(read_queues)),
    "tenants file": Reader((_TENANTS,), _written(read_tenants)),
    "expected nodes": Reader((_EXPECTED,), _written(read_expected_nodes)),
    "scenario": Reader(((ROOT / "example/scenarios/day-and-night.yaml").read_bytes(),), _written(read_scenario)),
    "decision record": Reader((RECORD.read_bytes(),), _written(_replayed)),
    **{f"journal: {path.name}": _of_journal(path.name) for path in sorted(JOURNAL.iterdir())},
    "journal: forged record": Reader(tuple(_of_folder()), _forged),
    "journal: forged snapshot": Reader((JournalFolder(JOURNAL).read_snapshot(SNAPSHOT),), _forged_snapshot),
    "status of a master": Reader((json.dumps(_STATUS).encode(),), _status, (ValueError, RecursionError)),
}
