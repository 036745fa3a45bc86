"""Known ways to get a job's life, its share or its data wrong, each with the test that must notice: `make planted`.

A test suite is worth what it catches. Each bug is planted alone in a copy of the package, and the test that is named
for it has to fail there. `test_planted` sees to it, in every run, that the places and the tests still exist.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Bug:
    """One bug.

    Attributes:
        what: what goes wrong.
        file: where, within edl.
        right, wrong: the code as it is, and with the bug in it.
        caught_by: the test, as pytest calls it.
    """

    what: str
    file: str
    right: str
    wrong: str
    caught_by: str


FILES, BATCHES, HOSTILE = "master/test_datasets.py", "master/test_batches.py", "master/test_hostile.py"
LIFE, MISHAPS = "core/test_life_of_a_job.py", "core/test_mishaps_of_a_job.py"
SPEC, POLICIES = "core/test_life_spec.py", "core/test_policies.py"
CRASH = "test_crashes.py::test_a_crash_at_any_effect_changes_nothing_in_the_end"
MACHINE = "test_life_machine.py"
CLUSTER = "adapters/test_cluster.py"
MASTERS, LEDGERS, MEASURING = "test_masters.py", "core/test_ledgers.py", "core/test_measuring.py"
MONITORING = "adapters/test_monitoring.py"
CHILD, PODS = "launch/test_child.py", "launch/test_pods.py"
REFLECTOR = "adapters/test_reflector.py"
SERVER = "e2e/faults/test_server.py"

BUGS = (
    Bug(
        "a deletion without the UID as its precondition",
        "adapters/writer.py",
        "delete(path, uid=action.pod_uid,",
        'delete(path, uid=answer["metadata"]["uid"] if (answer := msgspec.json.decode('
        "await self._session.get(path, timeout_s=WRITE_TIMEOUT_S))) else action.pod_uid,",
        f"{CLUSTER}::test_a_marked_pod_is_not_deleted_once_another_has_its_name",
    ),
    Bug(
        "a mark on whatever pod has the name now",
        "adapters/writer.py",
        '{"metadata": {"uid": action.pod_uid, "annotations"',
        '{"metadata": {"annotations"',
        f"{CLUSTER}::test_a_deletion_never_hits_another_pod_of_the_same_name",
    ),
    Bug(
        "a status written on another job of the same name",
        "adapters/writer.py",
        'if metadata.get("uid") != action.job_uid:',
        "if not metadata:",
        f"{CLUSTER}::test_a_status_is_never_written_on_another_job_of_the_same_name",
    ),
    Bug(
        "a file that has changed read as if it had not",
        "worker_files.py",
        "if now != file:",
        "if now.size != file.size:",
        f"{FILES}::test_a_trainer_refuses_a_file_that_has_changed_and_blames_no_record",
    ),
    Bug(
        "a record blamed for a data set that cannot be read",
        "worker.py",
        'lease.fail(Fault(""))  # no record is to blame',
        'lease.fail(Fault("the data set"))',
        f"{FILES}::test_a_trainer_refuses_a_file_that_has_changed_and_blames_no_record",
    ),
    Bug(
        "a last line without an end not counted",
        "adapters/datasets.py",
        'if last != b"\\n":',
        'if last == b"\\r":',
        f"{FILES}::test_what_a_line_is",
    ),
    Bug(
        "a file that grows read for ever",
        "adapters/datasets.py",
        "while place <= size and (chunk := file.read(_CHUNK_BYTES)):",
        "while place <= 10**6 and (chunk := file.read(_CHUNK_BYTES)):",
        f"{FILES}::test_a_file_that_grows_while_it_is_read_is_refused",
    ),
    Bug(
        "a master that starts again with other files",
        "adapters/datasets.py",
        "if version_of(files) != dataset.version:",
        "if not files:",
        f"{FILES}::test_a_master_that_starts_again_refuses_other_files",
    ),
    Bug(
        "a damaged index believed",
        "adapters/dataset_index.py",
        "if magic != _MAGIC or hashlib.sha256(rest).digest() != digest:",
        "if magic != _MAGIC:",
        f"{FILES}::test_an_index_is_kept_over_a_restart_and_made_again_where_it_is_damaged",
    ),
    Bug(
        "a batch acknowledged when it is read ahead",
        "worker_session.py",
        "            lease.handed = end\n",
        "            lease.handed = lease.cursor = end\n",
        f"{BATCHES}::test_only_batches_that_the_loop_has_consumed_are_acknowledged",
    ),
    Bug(
        "a batch of a lost lease handed to the loop",
        "worker_lease.py",
        "all(not lease.is_gone and end <= lease.end for",
        "all(end <= lease.end for",
        f"{BATCHES}::test_what_was_read_ahead_for_a_lease_that_is_lost_never_reaches_the_loop",
    ),
    Bug(
        "what is only read ahead blamed for an error of the loop",
        "worker_session.py",
        "blamed = error if lease.shown > lease.cursor",
        "blamed = error if lease.handed > lease.cursor",
        f"{BATCHES}::test_a_batch_that_breaks_the_loop_is_blamed_and_what_was_read_ahead_is_not",
    ),
    Bug(
        "the last batch in hand cut off",
        "core/ledger.py",
        "max(item.cursor + 1, item.hand) >= lease.end",
        "item.cursor + 1 >= lease.end",
        f"{BATCHES}::test_a_straggler_with_its_last_batch_in_hand_keeps_it",
    ),
    Bug(
        "processes numbered by the clock on the wall",
        "worker.py",
        '"incarnation": uuid.uuid4().hex,',
        '"incarnation": __import__("time").time_ns(),',
        f"{HOSTILE}::test_a_trainer_that_starts_again_after_its_clock_was_set_back_is_served",
    ),
    Bug(
        "leases that end by the clock on the wall",
        "adapters/clock.py",
        "return time.monotonic()",
        "return time.time()",
        f"{HOSTILE}::test_a_masters_clock_that_jumps_an_hour_expires_nothing",
    ),
    Bug(
        "an answer that the document does not tell of",
        "adapters/master_openapi.py",
        '    "409": "a replaced session, an old seq, or another data set",\n',
        "",
        "master/test_openapi.py",
    ),
    Bug(
        "a fault of the master for a strange record number",
        "adapters/master_http.py",
        "not record.isdecimal() or len(record) > 19:",
        "len(record) > 19:",
        f"{FILES}::test_the_api_tells_it_in_a_sentence_and_goes_on",
    ),
    Bug(
        "a status written without observedGeneration",
        "core/status.py",
        "observed_generation=job.generation,",
        "observed_generation=old.observed_generation,",
        f"{SPEC}::test_every_written_status_says_which_spec_it_answers",
    ),
    Bug(
        "a status written although nothing changed",
        "core/lifecycle.py",
        "if status != job.status else ()",
        "if status is not job.status else ()",
        "test_quiet.py::test_ten_quiet_minutes_see_no_write",
    ),
    Bug(
        "a new transition time for a condition that did not change",
        "core/status.py",
        "return before.since_s if before is not None and unchanged else stamp",
        "return before.since_s if before is not None and unchanged and stamp < before.since_s else stamp",
        f"{LIFE}::test_a_condition_keeps_its_time_until_it_flips",
    ),
    Bug(
        "a failure counted for an eviction",
        "core/happenings.py",
        "if pod.phase is PodPhase.FAILED and not pod.disruption and is_ours:",
        "if pod.phase is PodPhase.FAILED and is_ours:",
        f"{SPEC}::test_no_failure_is_counted_for_what_others_or_we_take_away",
    ),
    Bug(
        "a failure counted for a pod that a restart took down",
        "core/happenings.py",
        "for pod in () if is_restarting(job) else job.pods:",
        "for pod in job.pods:",
        f"{POLICIES}::test_pods_that_fail_because_their_job_restarts_are_not_counted",
    ),
    Bug(
        "one failure of a gang counted for each of its pods",
        "core/happenings.py",
        "number = together = together or number",
        "together = number",
        f"{POLICIES}::test_pods_of_a_gang_that_fail_together_are_one_failure_even_if_the_marks_came_apart",
    ),
    Bug(
        "a failed pod deleted before its failure is stored",
        "core/happenings.py",
        "job.status.failures >= failure_number(pod)",
        "job.status.failures >= 0",
        f"{MISHAPS}::test_a_failure_is_counted_once_even_if_the_status_is_lost_after_the_mark",
    ),
    Bug(
        "an expectation not awaited",
        "adapters/cache.py",
        "return self.problems() + lists + self.unmet()",
        "return self.problems() + lists",
        "adapters/test_cache.py::test_our_own_creation_is_expected_back",
    ),
    Bug(
        "pods deleted before the end of their job is stored",
        "core/lifecycle.py",
        "going = () if stays else job.pods",
        "going = job.pods",
        f"{SPEC}::test_the_end_is_stored_before_any_pod_goes",
    ),
    Bug(
        "a restart forgotten once the pod that caused it is gone",
        "core/lifecycle.py",
        "if is_restarting(job) or any(p.intent == Intent.RESTART for p in job.pods):",
        "if not job.pods:",
        f"{POLICIES}::test_every_policy_is_carried_out[fault-tolerant-pserver-PodFailed-RestartJob]",
    ),
    Bug(
        "a job that starts anew before the status has said that the old pods are gone",
        "core/lifecycle.py",
        "if is_restarting(job) or any(p.intent == Intent.RESTART for p in job.pods):",
        "if any(p.intent == Intent.RESTART or is_restarting(job) for p in job.pods):",
        f"{CRASH}[restart a gang]",
    ),
    Bug(
        "a role that runs again is forgotten halfway",
        "core/lifecycle.py",
        "return running_again(job) or next(asked, None)",
        "return next(asked, None)",
        f"{CRASH}[run again by policy]",
    ),
    Bug(
        "our own deletion taken for an eviction",
        "core/happenings.py",
        "(not word and (pod.disruption",
        "((pod.disruption",
        f"{POLICIES}::test_our_own_deletions_are_no_events",
    ),
    Bug(
        "a pserver that a new spec asks for taken for one that vanished",
        "core/happenings.py",
        'or running.status != "True" or status.observed_generation != job.generation:',
        'or running.status != "True":',
        f"{POLICIES}::test_a_pserver_that_a_new_spec_asks_for_has_not_vanished",
    ),
    Bug(
        "half a gang started",
        "core/moves.py",
        "if (job.gang or not job.fault_tolerant) and",
        "if not created and",
        f"{SPEC}::test_a_gang_starts_whole_or_not_at_all",
    ),
    Bug(
        "a gang that ignores that its trainers must make way",
        "core/lifecycle.py",
        "if case.decision is not None and case.decision.victims:",
        "if case.decision is None:",
        f"{SPEC}::test_a_gang_whose_trainers_must_make_way_starts_anew_whole",
    ),
    Bug(
        "a deletion that was stated and never carried out",
        "core/lifecycle.py",
        "if p.uid in case.around.lost or (p.intent and p.is_live)]",
        "if p.uid in case.around.lost]",
        f"{SPEC}::test_a_deletion_that_was_stated_but_not_carried_out_is_carried_out",
    ),
    Bug(
        "a new pod under a name that a terminating one still has",
        "core/moves.py",
        "used = {p.index for p in job.pods if p.role is Role.TRAINER}",
        "used = {p.index for p in job.pods if p.role is Role.TRAINER and p.is_live}",
        f"{MACHINE}::TestLife",
    ),
    Bug(
        "a forged phase believed",
        "core/status.py",
        "if sum(said) < 2 and",
        "if sum(said) < 1 and",
        f"{SPEC}::test_what_a_user_wrote_into_the_status_is_recomputed",
    ),
    Bug(
        "a deadline that counts the time of a pause",
        "core/status.py",
        "if step.stage is Stage.SUSPENDED:\n        return None",
        "if step.stage is Stage.SUSPENDED and not old.start_s:\n        return None",
        f"{SPEC}::test_a_pause_stops_the_clock_of_the_deadline",
    ),
    Bug(
        "a failure stored although its mark was put off",
        "controller.py",
        "isinstance(a, MarkPod) or self._memory.backoff.allows(job.uid, type(a), now_s)",
        "self._memory.backoff.allows(job.uid, type(a), now_s)",
        "test_living_jobs.py::test_a_failure_whose_mark_is_refused_is_told_and_counted_once_it_can_be_marked",
    ),
    Bug(
        "trainers started where their pservers could not be",
        "controller.py",
        "if all(outcome.is_ok for outcome in outcomes):",
        "if outcomes is not None:",
        "test_living_jobs.py::test_no_trainer_starts_where_a_pserver_could_not_be_created",
    ),
    Bug(
        "a refusal asked about again at once",
        "core/backoff.py",
        "return refusal is None or now_s >= refusal.until_s",
        "return True",
        "adapters/test_denials.py",
    ),
    Bug(
        "a webhook that is down taken for a server that is",
        "adapters/refusals.py",
        "if code == 500 and _WEBHOOK_DOWN in message:",
        "if code == 501 and _WEBHOOK_DOWN in message:",
        "adapters/test_denials.py",
    ),
    Bug(
        "a roster that is published once and never again",
        "masters.py",
        "last[1] == seats and now == (last[0], len(seats))",
        "now is not None",
        f"{MASTERS}::test_a_pod_that_is_gone_gives_its_leases_back_at_once",
    ),
    Bug(
        "a roster published again and again although nothing has changed",
        "masters.py",
        "if last is not None and last[1] == seats",
        "if last is not None and not seats and last[1] == seats",
        f"{MASTERS}::test_where_nothing_changes_nothing_is_published_and_nothing_written",
    ),
    Bug(
        "a roster older than what the master knows",
        "masters.py",
        "max(int(self._clock.now_s() * 1000), known + 1)",
        "int(self._clock.now_s() * 1000)",
        f"{MASTERS}::test_a_master_that_knows_a_newer_roster_than_our_clock_gets_a_newer_one",
    ),
    Bug(
        "a trainer taken off the roster while it may still report",
        "core/ledgers.py",
        "not p.is_finished and p.uid not in lost",
        "p.is_live and p.uid not in lost",
        f"{LEDGERS}::test_the_roster_holds_whoever_may_still_report",
    ),
    Bug(
        "a zombie left on the roster",
        "core/ledgers.py",
        "not p.is_finished and p.uid not in lost",
        "not p.is_finished",
        f"{LEDGERS}::test_the_roster_holds_whoever_may_still_report",
    ),
    Bug(
        "training that goes on without a pserver",
        "core/ledgers.py",
        "return now not in {stored.model, restored} or not now",
        'return now not in {stored.model, restored, ""}',
        f"{MASTERS}::test_nobody_works_while_a_pserver_is_missing",
    ),
    Bug(
        "accounts that stay where the model is lost",
        "masters.py",
        "checkpoint = await self._wire.restore(at)",
        "checkpoint = 0",
        f"{MASTERS}::test_accounts_go_back_to_the_last_checkpoint_when_a_pserver_is_lost",
    ),
    Bug(
        "a new model taken for the one that the accounts belong to",
        "core/ledgers.py",
        "model = now if not (model and is_begun) or now == heard.restored else model",
        "model = now",
        "test_masters_crashes.py",
    ),
    Bug(
        "accounts taken back in memory and never stored as taken back",
        "core/ledgers.py",
        "model = now if not (model and is_begun) or now == heard.restored else model",
        "model = now if not (model and is_begun) else model",
        "test_masters_crashes.py",
    ),
    Bug(
        "a model that counts as kept although the whole job was taken down",
        "core/ledgers.py",
        'model = LOST_MODEL if is_begun else ""',
        "model = before.model",
        f"{LEDGERS}::test_accounts_of_a_job_that_was_taken_down_go_back_when_it_runs_again",
    ),
    Bug(
        "a job that ends before its master was heard",
        "core/happenings.py",
        "is_told = heard is None or heard.is_current",
        "is_told = bool(done)",
        f"{MASTERS}::test_the_last_report_is_in_the_status_even_if_the_trainers_end_right_after_it",
    ),
    Bug(
        "a master that is not told what its journal must hold",
        "core/moves.py",
        "expected=expected_of(job)",
        "expected=None",
        "test_lost_ledgers.py::test_a_master_without_its_journal_ends_and_the_job_fails_with_its_words",
    ),
    Bug(
        "a lost ledger that fails nobody",
        "core/lifecycle.py",
        "if lost := loss(job):",
        "if (lost := loss(job)) and job.problem:",
        "test_lost_ledgers.py::test_a_master_without_its_journal_ends_and_the_job_fails_with_its_words",
    ),
    Bug(
        "progress written each time it is heard",
        "core/ledgers.py",
        "return now.done == now.total or since_s >= TELL_S or (since_s >= TELL_SOON_S and is_much)",
        "return bool(is_much) or since_s >= 0",
        f"{MASTERS}::test_progress_reaches_the_status_at_once_and_then_at_a_bounded_rate",
    ),
    Bug(
        "a speed measured across a resize",
        "core/measuring.py",
        "if reading.trainers != last.trainers:",
        "if reading.trainers < 0:",
        f"{MEASURING}::test_speed_is_told_by_number_of_trainers",
    ),
    Bug(
        "a speed measured while new trainers do not work yet",
        "core/measuring.py",
        "is_whole = reading.working >= reading.trainers",
        "is_whole = reading.trainers >= 0",
        f"{MEASURING}::test_trainers_that_join_while_others_work_cost_what_they_do_not_do_yet",
    ),
    Bug(
        "a single odd window believed",
        "core/measuring.py",
        "seen = min(max(per_s, known.per_s / OUTLIER), known.per_s * OUTLIER)",
        "seen = per_s",
        f"{MEASURING}::test_one_window_that_is_far_off_moves_a_known_speed_by_a_bounded_part",
    ),
    Bug(
        "a resize that charges trainers which go on as if they had stopped",
        "core/measuring.py",
        "change.before.at_s - done / per_s)",
        "change.before.at_s - 0 * done)",
        f"{MEASURING}::test_trainers_that_join_while_others_work_cost_what_they_do_not_do_yet",
    ),
    Bug(
        "a declared speed replaced by a measured one",
        "core/measuring.py",
        "if not throughput and len(found.speeds) > 1:",
        "if len(found.speeds) > 1:",
        f"{MEASURING}::test_the_planner_uses_what_was_measured_only_where_nothing_is_declared",
    ),
    Bug(
        "measured speeds that the planner never sees",
        "core/lifecycle.py",
        "job = with_measured(job)",
        "job = replace(with_measured(job), throughput=job.throughput)",
        f"{MASTERS}::test_of_two_jobs_the_one_that_does_not_scale_stops_being_given_trainers",
    ),
    Bug(
        "another replica's masters spoken to",
        "controller.py",
        "snapshot.jobs if leads and self._show is None else ()",
        "snapshot.jobs",
        f"{MASTERS}::test_only_the_leader_listens",
    ),
    Bug(
        "an alert that waits for a metric which nobody exports",
        "adapters/metrics.py",
        '"edl_rounds_total"',
        '"edl_round_total"',
        f"{MONITORING}::test_every_expression_names_what_is_exported",
    ),
    Bug(
        "a scrape that lets Prometheus rename the labels of jobs",
        "api/monitoring.py",
        '"honorLabels": True',
        '"honorLabels": False',
        f"{MONITORING}::test_monitors_select_what_is_there",
    ),
    Bug(
        "a metric that no dashboard shows",
        "api/dashboards.py",
        "max(edl_quarantined_objects)",
        "max(edl_leader)",
        f"{MONITORING}::test_every_metric_is_drawn_somewhere",
    ),
    Bug(
        "what cannot be promised to all given out by name",
        "core/packing.py",
        "return (-inf, room.fulfilment(j), claim.job.key)",
        "return (-inf, 0.0, claim.job.key)",
        "core/test_packing.py::test_what_does_not_suffice_for_all_promises_goes_to_the_worst_off_in_turn",
    ),
    Bug(
        "a gain for one that leaves somebody worse off than anybody was",
        "core/sharing.py",
        " and _worst(taken) >= _worst(grown)",
        "",
        "core/test_how_many.py::"
        "test_nobody_is_shrunk_for_another_where_that_leaves_somebody_worse_off_than_anybody_was",
    ),
    Bug(
        "a death for a share that room will do for which serving is leaving",
        "core/sharing.py",
        "later.free += room.world.leaving",
        "later.free += 0",
        "core/test_how_many.py::test_nobody_is_shrunk_for_another_where_room_that_serving_is_leaving_will_do",
    ),
    Bug(
        "less promised than could be had",
        "core/sharing.py",
        "if (tried := reach(steps[middle])) is None:",
        "if (tried := None) is None:",
        "core/test_how_many.py::test_as_little_less_is_promised_as_can_be_had_and_few_steps_are_tried",
    ),
    Bug(
        "limits of the controller that edl explain forgets",
        "cli.py",
        "return replace(settings.limits, serving_grace_s=0.0, quotas=quotas)",
        "return replace(type(settings)().limits, serving_grace_s=0.0, quotas=quotas)",
        "test_cli.py::test_plan_and_explain_keep_to_the_limits_of_the_controller",
    ),
    Bug(
        "pods sorted by their names as text",
        "launch_pods.py",
        "key=lambda pod: (pod.index or 0, _number(pod.ip)))",
        "key=lambda pod: pod.name)",
        f"{PODS}::test_pods_are_in_the_order_of_their_numbers_not_of_their_names",
    ),
    Bug(
        "addresses sorted as text",
        "launch_pods.py",
        "return sorted(running, key=lambda pod: _number(pod.ip))",
        "return sorted(running, key=lambda pod: pod.ip)",
        f"{PODS}::test_without_an_index_on_each_pod_the_addresses_count_as_numbers",
    ),
    Bug(
        "a terminating pod counted as running",
        "launch_pods.py",
        "return self.phase == RUNNING and not self.is_terminating",
        "return self.phase == RUNNING",
        f"{PODS}::test_only_those_that_run_and_stay_are_named",
    ),
    Bug(
        "failures of the time before a restart counted",
        "launch_tools.py",
        'pod.phase == "Failed" and not pod.is_terminating for',
        'pod.phase == "Failed" for',
        f"{PODS}::test_failed_pods_that_are_on_their_way_out_are_of_the_time_before",
    ),
    Bug(
        "a trainer with a high index not looked for by its name",
        "launch_pods.py",
        "if not hits and not missing:",
        "if not hits:",
        f"{PODS}::test_a_trainer_whose_index_is_far_up_is_found_by_the_address_that_is_left_over",
    ),
    Bug(
        "an error of the launcher that ends with 0",
        "launch.py",
        "FAILED, USAGE, KILLED = 1, 2, 128",
        "FAILED, USAGE, KILLED = 0, 2, 128",
        "launch/test_roles.py::test_wrong_usage_is_told_without_a_traceback",
    ),
    Bug(
        "a signal passed to the shell and not to the program behind it",
        "launch_child.py",
        "os.killpg(group, number)",
        "os.kill(group, number)",
        f"{CHILD}::test_sigterm_reaches_the_program_which_may_finish",
    ),
    Bug(
        "a program behind a shell cut off when the shell has died",
        "launch_child.py",
        "_await_group(child, waited_for, None)",
        "_await_group(child, waited_for, 0.0)",
        f"{CHILD}::test_sigterm_reaches_the_program_which_may_finish",
    ),
    Bug(
        "a death by a signal told as another exit code",
        "launch_child.py",
        "code >= 0 else _KILLED - code",
        "code >= 0 else -code",
        f"{CHILD}::test_the_exit_code_is_kept_and_its_meaning_told",
    ),
    Bug(
        "orphans left as zombies",
        "launch_child.py",
        "os.waitpid(-1, os.WNOHANG)",
        "os.waitpid(child, os.WNOHANG)",
        f"{CHILD}::test_orphans_are_reaped_while_the_entrypoint_runs",
    ),
    Bug(
        "a message of the program itself overwritten",
        "last_words.py",
        "os.O_WRONLY | os.O_APPEND",
        "os.O_WRONLY | os.O_TRUNC",
        f"{CHILD}::test_a_message_of_the_program_itself_is_not_overwritten",
    ),
    Bug(
        "a daemon of the entrypoint not ended with it",
        "launch_child.py",
        "for pid in _adopted():",
        "for pid in ():",
        f"{CHILD}::test_a_daemon_that_has_left_the_group_is_ended_too_and_the_log_says_so",
    ),
    Bug(
        "the words of the program behind those of its exit code",
        "core/happenings.py",
        "if line != _SAYS_NOTHING",
        "if line",
        f"{MISHAPS}::test_a_failure_is_told_with_the_words_that_say_most",
    ),
    Bug(
        "memory that ran out not told",
        "adapters/pods.py",
        'if ended.reason != "OOMKilled":',
        "if ended.reason:",
        "adapters/test_translate.py::test_that_the_memory_ran_out_is_read_behind_the_last_words",
    ),
    Bug(
        "a missing file of the data told nowhere but in a trainer's log",
        "worker.py",
        "if isinstance(error, EdlError):",
        "if error is self:",
        f"{FILES}::test_a_trainer_names_a_file_that_it_has_not",
    ),
    Bug(
        "a traceback of a master that begins on a full disk",
        "adapters/journal.py",
        "            self._open(begin)\n        except OSError as error:",
        "            self._open(begin)\n        except ValueError as error:",
        "adapters/test_journal.py::test_a_master_that_begins_on_a_full_disk_says_what_to_do",
    ),
    Bug(
        "output of Python kept back",
        "launch_child.py",
        '{**environment, "PYTHONUNBUFFERED": "1"}',
        "{**environment}",
        f"{CHILD}::test_lines_of_python_and_of_c_appear_at_once",
    ),
    Bug(
        "no end by SIGTERM before the entrypoint runs",
        "launch.py",
        "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):",
        "for number in (signal.SIGINT, signal.SIGHUP):",
        f"{CHILD}::test_sigterm_before_the_entrypoint_runs_ends_the_launcher_too",
    ),
    Bug(
        "an action that goes on although the lease was lost",
        "adapters/session.py",
        'if method != "GET" and is_fenced and not self._may_write():',
        'if method == "PUT" and is_fenced and not self._may_write():',
        f"{CLUSTER}::test_an_action_stops_between_its_requests_where_the_lease_is_lost_meanwhile",
    ),
    Bug(
        "a leader that was stopped past its lease and renews it",
        "adapters/elector.py",
        "if self.is_held():  # who was stopped",
        "if self._mine is not None:  # who was stopped",
        "adapters/test_elector.py::test_a_holder_that_was_stopped_past_its_lease_says_nothing_more_when_it_wakes_up",
    ),
    Bug(
        "a lease taken over before it has run out",
        "adapters/elector.py",
        "since_s >= found.duration_s",
        "since_s >= 2.0",
        "e2e/faults/test_election.py::test_a_leader_that_is_stopped_past_its_lease_writes_nothing_when_it_wakes_up",
    ),
    Bug(
        "failures that a watch which stood long does not end",
        "adapters/reflector.py",
        "self._failures = 0  # also where it broke",
        "self._failures += 0  # also where it broke",
        f"{REFLECTOR}::test_a_watch_that_stood_long_and_said_nothing_ends_the_failures_before_it",
    ),
    Bug(
        "a watch that says 410 taken for one that is well",
        "adapters/reflector.py",
        "                        self._take(line)\n                        self._failures = 0",
        "                        self._failures = 0\n                        self._take(line)",
        f"{REFLECTOR}::test_410_for_ever_in_the_stream_of_the_watch_is_not_answered_in_a_tight_loop_either",
    ),
    Bug(
        "a lagging cache that shortens the pauses after failures",
        "controller.py",
        "elif result is not RoundResult.SKIPPED:",
        "elif result is not None:",
        "test_controller.py::test_a_cache_that_lags_after_each_failure_does_not_quicken_the_next_attempt",
    ),
    Bug(
        "one job that is nested too deeply hides all others",
        "adapters/nesting.py",
        "except RecursionError:",
        "except ZeroDivisionError:",
        "adapters/test_nesting.py::test_one_object_that_is_too_deep_does_not_hide_the_others_in_a_list_or_a_watch",
    ),
    Bug(
        "a busy server asked again before the time that it named",
        "adapters/reflector.py",
        "await self._clock.sleep(asked_s *",
        "await self._clock.sleep(0.1 * asked_s *",
        f"{SERVER}::test_busy_says_when_to_come_back_and_nobody_comes_sooner",
    ),
    Bug(
        "a pod that exists taken for somebody else's although its reply was lost",
        "adapters/writer.py",
        'ref.get("uid") == action.job_uid for ref in metadata.get("ownerReferences")',
        'ref.get("uid") == action.pod_name for ref in metadata.get("ownerReferences")',
        f"{CLUSTER}::test_a_pod_that_exists_and_is_ours_is_success",
    ),
)


def is_caught(bug: Bug, copy: Path) -> bool:
    """Plant the bug in the copy, run its test there, and take it out again."""
    path = copy / "edl" / bug.file
    text = path.read_text()
    path.write_text(text.replace(bug.right, bug.wrong, 1))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{bug.caught_by}"]
    try:
        done = subprocess.run(
            command, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, check=False
        )
    finally:
        path.write_text(text)
    return done.returncode == 1


def main() -> int:
    """Plant every bug, or those that name one of the words given."""
    chosen = [b for b in BUGS if not sys.argv[1:] or any(word in b.what for word in sys.argv[1:])]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("edl", "tests", "deploy", "crds"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        missed = 0
        for bug in chosen:
            caught = is_caught(bug, copy)
            missed += not caught
            print(f"{'caught' if caught else 'MISSED'}  {bug.what}  ({bug.caught_by})", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
