"""Ways to get the accounts of the data wrong."""

from __future__ import annotations

from tests.planted import Bug

FILES = "master/test_datasets.py"
BATCHES = "worker/test_batches.py"
HOSTILE = "master/test_hostile.py"
MASTERS = "controller/test_master_monitor.py"
LEDGERS = "lifecycle/test_data_progress.py"
MEASURING = "lifecycle/test_measurement.py"

OF_DATA = (
    Bug(
        "a file that has changed read as if it had not",
        "worker/files.py",
        "if now != file:",
        "if now.size != file.size:",
        f"{FILES}::test_a_trainer_refuses_a_file_that_has_changed_and_blames_no_record",
    ),
    Bug(
        "a record blamed for a data set that cannot be read",
        "worker/job.py",
        'lease.fail(Fault(""))  # no record is to blame',
        'lease.fail(Fault("the data set"))',
        f"{FILES}::test_a_trainer_refuses_a_file_that_has_changed_and_blames_no_record",
    ),
    Bug(
        "a last line without an end not counted",
        "master/datasets.py",
        'if last != b"\\n":',
        'if last == b"\\r":',
        f"{FILES}::test_what_a_line_is",
    ),
    Bug(
        "a file that grows read for ever",
        "master/datasets.py",
        "while place <= size and (chunk := file.read(_CHUNK_BYTES)):",
        "while place <= 10**6 and (chunk := file.read(_CHUNK_BYTES)):",
        f"{FILES}::test_a_file_that_grows_while_it_is_read_is_refused",
    ),
    Bug(
        "a master that starts again with other files",
        "master/datasets.py",
        "if version_of(files) != dataset.version:",
        "if not files:",
        f"{FILES}::test_a_master_that_starts_again_refuses_other_files",
    ),
    Bug(
        "a damaged index believed",
        "master/dataset_index.py",
        "if magic != _MAGIC or hashlib.sha256(rest).digest() != digest:",
        "if magic != _MAGIC:",
        f"{FILES}::test_an_index_is_kept_over_a_restart_and_made_again_where_it_is_damaged",
    ),
    Bug(
        "a batch acknowledged when it is read ahead",
        "worker/session.py",
        "            lease.handed = end\n",
        "            lease.handed = lease.cursor = end\n",
        f"{BATCHES}::test_only_batches_that_the_loop_has_consumed_are_acknowledged",
    ),
    Bug(
        "a batch of a lost lease handed to the loop",
        "worker/lease.py",
        "all(not lease.is_gone and end <= lease.end for",
        "all(end <= lease.end for",
        f"{BATCHES}::test_what_was_read_ahead_for_a_lease_that_is_lost_never_reaches_the_loop",
    ),
    Bug(
        "what is only read ahead blamed for an error of the loop",
        "worker/session.py",
        "blamed = error if lease.shown > lease.cursor",
        "blamed = error if lease.handed > lease.cursor",
        f"{BATCHES}::test_a_batch_that_breaks_the_loop_is_blamed_and_what_was_read_ahead_is_not",
    ),
    Bug(
        "the last batch in hand cut off",
        "ledger/ledger.py",
        "max(item.cursor + 1, item.hand) >= lease.end",
        "item.cursor + 1 >= lease.end",
        f"{BATCHES}::test_a_straggler_with_its_last_batch_in_hand_keeps_it",
    ),
    Bug(
        "processes numbered by the clock on the wall",
        "worker/job.py",
        '"incarnation": uuid.uuid4().hex,',
        '"incarnation": __import__("time").time_ns(),',
        f"{HOSTILE}::test_a_trainer_that_starts_again_after_its_clock_was_set_back_is_served",
    ),
    Bug(
        "a roster that is published once and never again",
        "controller/master_monitor.py",
        "last[1] == roster and in_force == (last[0], len(roster))",
        "in_force is not None",
        f"{MASTERS}::test_the_leases_of_a_pod_that_is_gone_end_at_once",
    ),
    Bug(
        "a roster published again and again although nothing has changed",
        "controller/master_monitor.py",
        "if last is not None and last[1] == roster",
        "if last is not None and not roster and last[1] == roster",
        f"{MASTERS}::test_without_changes_nothing_is_published_and_nothing_is_written",
    ),
    Bug(
        "a roster older than what the master knows",
        "controller/master_monitor.py",
        "max(int(self._clock.now_s() * 1000), known + 1)",
        "int(self._clock.now_s() * 1000)",
        f"{MASTERS}::test_a_master_with_a_roster_newer_than_the_clock_gets_a_newer_one",
    ),
    Bug(
        "a trainer taken off the roster while it may still report",
        "lifecycle/data_progress.py",
        "not p.is_finished and p.uid not in lost",
        "p.is_live and p.uid not in lost",
        f"{LEDGERS}::test_the_roster_holds_whoever_may_still_report",
    ),
    Bug(
        "a zombie left on the roster",
        "lifecycle/data_progress.py",
        "not p.is_finished and p.uid not in lost",
        "not p.is_finished",
        f"{LEDGERS}::test_the_roster_holds_whoever_may_still_report",
    ),
    Bug(
        "training that goes on without a pserver",
        "lifecycle/data_progress.py",
        "return now not in {stored.model, restored} or not now",
        'return now not in {stored.model, restored, ""}',
        f"{MASTERS}::test_no_trainer_gets_a_lease_while_a_pserver_is_missing",
    ),
    Bug(
        "accounts that stay where the model is lost",
        "controller/master_monitor.py",
        "checkpoint = await self._client.restore(address)",
        "checkpoint = 0",
        f"{MASTERS}::test_the_master_goes_back_to_the_last_checkpoint_if_a_pserver_is_lost",
    ),
    Bug(
        "a new model taken for the one that the accounts belong to",
        "lifecycle/data_progress.py",
        "model = now if not (model and is_begun) or now == heard.restored else model",
        "model = now",
        "controller/test_master_monitor_crashes.py",
    ),
    Bug(
        "accounts taken back in memory and never stored as taken back",
        "lifecycle/data_progress.py",
        "model = now if not (model and is_begun) or now == heard.restored else model",
        "model = now if not (model and is_begun) else model",
        "controller/test_master_monitor_crashes.py",
    ),
    Bug(
        "a model that counts as kept although the whole job was taken down",
        "lifecycle/data_progress.py",
        'model = LOST_MODEL if is_begun else ""',
        "model = before.model",
        f"{LEDGERS}::test_accounts_of_a_job_that_was_taken_down_go_back_when_it_runs_again",
    ),
    Bug(
        "progress written each time it is heard",
        "lifecycle/data_progress.py",
        "return now.done == now.total or since_s >= TELL_S or (since_s >= TELL_SOON_S and is_much)",
        "return bool(is_much) or since_s >= 0",
        f"{MASTERS}::test_progress_reaches_the_status_at_once_and_then_at_a_bounded_rate",
    ),
    Bug(
        "a speed measured across a resize",
        "lifecycle/measurement.py",
        "if reading.trainers != last.trainers:",
        "if reading.trainers < 0:",
        f"{MEASURING}::test_speed_is_told_by_number_of_trainers",
    ),
    Bug(
        "a speed measured while new trainers do not work yet",
        "lifecycle/measurement.py",
        "is_whole = reading.working >= reading.trainers",
        "is_whole = reading.trainers >= 0",
        f"{MEASURING}::test_trainers_that_join_while_others_work_cost_what_they_do_not_do_yet",
    ),
    Bug(
        "a single odd window believed",
        "lifecycle/measurement.py",
        "seen = min(max(per_s, known.per_s / OUTLIER), known.per_s * OUTLIER)",
        "seen = per_s",
        f"{MEASURING}::test_one_window_that_is_far_off_moves_a_known_speed_by_a_bounded_part",
    ),
    Bug(
        "a resize that charges trainers which go on as if they had stopped",
        "lifecycle/measurement.py",
        "change.before.at_s - done / per_s)",
        "change.before.at_s - 0 * done)",
        f"{MEASURING}::test_trainers_that_join_while_others_work_cost_what_they_do_not_do_yet",
    ),
    Bug(
        "a declared speed replaced by a measured one",
        "lifecycle/measurement.py",
        "if not throughput and len(found.speeds) > 1:",
        "if len(found.speeds) > 1:",
        f"{MEASURING}::test_the_planner_uses_what_was_measured_only_where_nothing_is_declared",
    ),
    Bug(
        "a missing file of the data told nowhere but in a trainer's log",
        "worker/job.py",
        "if isinstance(error, EdlError):",
        "if error is self:",
        f"{FILES}::test_a_trainer_names_a_file_that_it_has_not",
    ),
    Bug(
        "a traceback of a master that begins on a full disk",
        "master/journal.py",
        "            self._open(begin)\n        except OSError as error:",
        "            self._open(begin)\n        except ValueError as error:",
        "master/test_journal.py::test_a_master_that_begins_on_a_full_disk_says_what_to_do",
    ),
    Bug(
        "a trainer that ends without a word where no record is left",
        "worker/job.py",
        "if self._order[0] < 0:",
        "if self._order[0] < -1:",
        "worker/test_worker.py::test_a_trainer_that_comes_when_all_is_done_says_so",
    ),
)
