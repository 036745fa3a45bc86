"""Bugs in the data sets, the leases and the journal: in the ledger, the master and the trainers' library."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from edl.errors import EdlError
from edl.ledger.permutation import WINDOW
from edl.worker.files import DatasetError, SourceFile
from edl.worker.lease import PositionBatch
from tests.planted import Right, bug, targets

DATASETS = "master/test_datasets.py"
REFUSED = "master/test_datasets_refused.py"
BATCHES = "worker/test_job_batches.py"
STEPS = "worker/test_steps.py"
BAD_INPUT = "master/test_http_api_bad_input.py"

# --- the order of an epoch


@bug(
    "records that cross the border of a window come from the window before",
    at=targets.RECORDS_OF_ORDER,
    caught_by="ledger/test_permutation.py::test_every_record_has_exactly_one_position",
)
def window_border_ignored(_: Right) -> Right:
    def wrong(self: Any, start: int, end: int) -> Iterator[int]:
        window = self._records_of(start // WINDOW)
        return (window[position % WINDOW % len(window)] for position in range(start, end))

    return wrong


@bug(
    "the order forgets that the last block of a data set may be short",
    at=targets.UNSHUFFLED,
    caught_by="ledger/test_permutation.py::test_odd_sizes_lose_no_record",
)
def short_block_forgotten(_: Right) -> Right:
    def wrong(self: Any, start: int, end: int) -> list[int]:
        places = (divmod(position, self._block) for position in range(start, end))
        return [self._blocks.image(place) * self._block + offset for place, offset in places]

    return wrong


# --- files


@bug(
    "a file that has changed is read",
    at=targets.CHECK_FILE,
    caught_by=f"{DATASETS}::test_a_trainer_refuses_a_file_that_has_changed_and_blames_no_record",
)
def changed_file_read(right: Right) -> Right:
    def wrong(self: Any, file: SourceFile) -> None:
        if Path(file.path).stat().st_size != file.size:
            right(self, file)

    return wrong


@bug(
    "a record is blamed for a data set that cannot be read",
    at=targets.GIVE_BACK,
    caught_by=f"{DATASETS}::test_a_trainer_refuses_a_file_that_has_changed_and_blames_no_record",
)
def record_blamed_for_the_dataset(_: Right) -> Right:
    return lambda self: self.session.end_lease(self, "the data set")


@bug(
    "a last line without an end does not count",
    at=targets.SCAN_LINES,
    caught_by=f"{DATASETS}::test_what_a_line_is",
)
def last_line_not_counted(right: Right) -> Right:
    def wrong(store: Any, index: Any, number: int) -> None:
        pieces: list[list[int]] = []
        right(store, SimpleNamespace(files=index.files, add=lambda *piece: pieces.append([*piece])), number)
        if pieces and not Path(index.files[number].path).read_bytes().endswith(b"\n"):
            pieces[-1][-1] -= 1
        for piece in pieces:
            if piece[-1]:
                index.add(*piece)

    return wrong


@bug(
    "a file that grows is read on and on",
    at=targets.SCAN_LINES,
    caught_by=f"{REFUSED}::test_a_file_that_grows_while_it_is_read_is_refused",
)
def growing_file_read_on(right: Right) -> Right:
    def wrong(store: Any, index: Any, number: int) -> None:
        files = [file._replace(size=10**6) for file in index.files]
        right(store, SimpleNamespace(files=files, add=index.add), number)

    return wrong


@bug(
    "a master that restarts accepts other files",
    at=targets.REOPEN_DATASET,
    caught_by=f"{REFUSED}::test_a_restarted_master_refuses_changed_files",
)
def other_files_accepted(right: Right) -> Right:
    def wrong(self: Any, dataset: Any) -> None:
        with suppress(DatasetError):
            right(self, dataset)

    return wrong


@bug(
    "a damaged index is believed",
    at=targets.LOAD_INDEX,
    caught_by=f"{DATASETS}::test_an_index_survives_a_restart_and_a_damaged_one_is_built_again",
)
def damaged_index_believed(right: Right) -> Right:
    def wrong(folder: Path, version: str) -> Any:
        path = folder / f"dataset-{version}"
        if path.exists():
            data = path.read_bytes()
            path.write_bytes(data[:4] + hashlib.sha256(data[36:]).digest() + data[36:])
        return right(folder, version)

    return wrong


# --- leases and batches


@bug(
    "a batch is acknowledged when it is read ahead",
    at=targets.TAKE_POSITIONS,
    caught_by=f"{BATCHES}::test_only_consumed_batches_are_acknowledged",
)
def batch_acknowledged_too_soon(right: Right) -> Right:
    def wrong(self: Any, *args: Any, **options: Any) -> PositionBatch | None:
        handed: PositionBatch | None = right(self, *args, **options)
        for lease, _, end in handed.parts if handed is not None else ():
            lease.cursor = end
        return handed

    return wrong


@bug(
    "a batch of a lost lease reaches the loop",
    at=targets.BATCH_IS_VALID,
    caught_by=f"{BATCHES}::test_a_batch_of_a_lost_lease_never_reaches_the_loop",
)
def batch_of_a_lost_lease(_: property) -> property:
    return property(lambda self: all(end <= lease.end for lease, _, end in self.parts))


@bug(
    "a trainer with the only state leaves between two worlds",
    at=targets.LAST_WORLD_WAIT,
    caught_by=f"{STEPS}::test_the_last_trainer_saves_the_model_if_it_is_told_to_leave_a_step_after_the_others",
)
def leaves_between_worlds(right: float) -> float:
    return right - right


@bug(
    "the last trainer to leave does not save the model",
    at=targets.REPORT_STEP,
    caught_by=f"{STEPS}::test_the_model_is_saved_and_the_next_trainer_continues_from_it",
)
def last_trainer_does_not_save(right: Right) -> Right:
    def wrong(self: Any, world: Any, *, must_save: bool) -> None:
        right(self, world, must_save=must_save and world.size > 1)

    return wrong


@bug(
    "records that are only read ahead are blamed for an error of the loop",
    at=targets.GIVE_BACK_ALL,
    caught_by=f"{BATCHES}::test_an_error_in_the_loop_blames_the_current_batch_but_not_what_was_read_ahead",
)
def read_ahead_is_blamed(right: Right) -> Right:
    def wrong(self: Any, error: str = "") -> None:
        for lease in self.held.values():
            lease.delivered = lease.handed_out
        right(self, error)

    return wrong


@bug(
    "a slow trainer loses the last batch that it has in hand",
    at=targets.APPLY_TRUNCATES,
    caught_by=f"{BATCHES}::test_a_slow_trainer_keeps_the_last_batch_that_its_loop_already_has",
)
def batch_in_hand_cut_off(right: Right) -> Right:
    def wrong(self: Any, session: Any, request: Any) -> None:
        items = [
            SimpleNamespace(epoch=x.epoch, start=x.start, end=x.end, fence=x.fence, cursor=x.cursor, hand=0)
            for x in request.progress
        ]
        right(self, session, SimpleNamespace(done=request.done, failed=request.failed, progress=items))

    return wrong


@bug(
    "trainers' processes are numbered by the wall clock",
    at=targets.CONNECT,
    caught_by=f"{BAD_INPUT}::test_a_trainer_that_restarts_after_its_clock_was_set_back_is_served",
)
def incarnation_from_the_clock(right: Right) -> Right:
    def wrong(*args: Any, **options: Any) -> Any:
        job = right(*args, **options)
        job._session.identity["incarnation"] = time.time_ns()
        return job

    return wrong


@bug(
    "leases expire by the wall clock",
    at=targets.MONOTONIC,
    caught_by=f"{BAD_INPUT}::test_no_lease_expires_if_the_masters_clock_jumps_an_hour",
)
def leases_by_the_wall_clock(_: Right) -> Right:
    return lambda _: time.time()


# --- messages and the API


@bug(
    "a missing file is named only in a trainer's log",
    at=targets.WRITE_TERMINATION_LOG,
    caught_by=f"{DATASETS}::test_a_trainer_names_a_missing_file",
)
def termination_log_not_written(_: Right) -> Right:
    return lambda *_: None


@bug(
    "a trainer for which no record is left ends without a message",
    at=targets.CHECK_RESULT,
    caught_by="worker/test_worker.py::test_a_trainer_that_gets_no_record_logs_a_warning",
)
def no_record_left_not_logged(right: Right) -> Right:
    def wrong(self: Any) -> None:
        self._records.epoch = max(0, self._records.epoch)
        right(self)

    return wrong


@bug(
    "a master that starts on a full disk ends with a traceback",
    at=targets.READ_JOURNAL,
    caught_by="master/test_journal.py::test_a_master_that_starts_on_a_full_disk_names_the_remedy",
)
def full_disk_traceback(right: Right) -> Right:
    def wrong(self: Any, number: int) -> Iterator[bytes]:
        try:
            yield from right(self, number)
        except EdlError as error:
            raise error.__cause__ or error from None

    return wrong


@bug(
    "the OpenAPI document omits a response",
    at=targets.OPENAPI,
    caught_by="master/test_openapi.py",
)
def response_not_documented(right: Right) -> Right:
    def wrong() -> dict[str, Any]:
        document: dict[str, Any] = right()
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("409", None)
        return document

    return wrong


@bug(
    "a malformed record number is a fault of the master",
    at=targets.PIECE_ROUTE,
    caught_by=f"{REFUSED}::test_the_api_explains_a_refused_data_set_and_accepts_the_next_one",
)
def malformed_record_is_internal(right: Right) -> Right:
    async def wrong(self: Any, request: Any) -> Any:
        int(request.query.get("record", ""))
        return await right(self, request)

    return wrong
