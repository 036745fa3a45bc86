"""Ways to get the dealings with the API server wrong."""

from __future__ import annotations

from tests.planted import Bug

FILES = "master/test_datasets.py"
HOSTILE = "master/test_hostile.py"
CLUSTER = "kube/test_writer.py"
MASTERS = "controller/test_master_monitor.py"
MONITORING = "install/test_monitoring.py"
CHILD = "pod/test_entrypoint.py"
REFLECTOR = "kube/mirror/test_reflector.py"
SERVER = "e2e/faults/test_server.py"

OF_CLUSTER = (
    Bug(
        "a deletion without the UID as its precondition",
        "kube/writer.py",
        "delete(path, uid=action.pod_uid,",
        'delete(path, uid=answer["metadata"]["uid"] if (answer := msgspec.json.decode('
        "await self._session.get(path, timeout_s=WRITE_TIMEOUT_S))) else action.pod_uid,",
        f"{CLUSTER}::test_a_marked_pod_is_not_deleted_once_another_has_its_name",
    ),
    Bug(
        "a mark on whatever pod has the name now",
        "kube/writer.py",
        '{"metadata": {"uid": action.pod_uid, "annotations"',
        '{"metadata": {"annotations"',
        f"{CLUSTER}::test_a_deletion_never_hits_another_pod_of_the_same_name",
    ),
    Bug(
        "a status written on another job of the same name",
        "kube/writer.py",
        'if metadata.get("uid") != action.job_uid:',
        "if not metadata:",
        f"{CLUSTER}::test_a_status_is_never_written_on_another_job_of_the_same_name",
    ),
    Bug(
        "leases that end by the clock on the wall",
        "clock.py",
        "return time.monotonic()",
        "return time.time()",
        f"{HOSTILE}::test_a_masters_clock_that_jumps_an_hour_expires_nothing",
    ),
    Bug(
        "an answer that the document does not tell of",
        "master/openapi.py",
        '    "409": "a replaced session, an old seq, or another data set",\n',
        "",
        "master/test_openapi.py",
    ),
    Bug(
        "a fault of the master for a strange record number",
        "master/http_api.py",
        "not record.isdecimal() or len(record) > 19:",
        "len(record) > 19:",
        f"{FILES}::test_the_api_tells_it_in_a_sentence_and_goes_on",
    ),
    Bug(
        "an expectation not awaited",
        "kube/mirror/cache.py",
        "return self.problems() + lists + self.unmet()",
        "return self.problems() + lists",
        "kube/mirror/test_cache.py::test_our_own_creation_is_expected_back",
    ),
    Bug(
        "a failure stored although its mark was put off",
        "controller/executor.py",
        "isinstance(a, MarkPod) or self._backoff.allows(job.uid, type(a), now_s)",
        "self._backoff.allows(job.uid, type(a), now_s)",
        "controller/test_living_jobs.py::test_a_failure_whose_mark_is_refused_is_reported_and_counted_once_it_can_be_marked",
    ),
    Bug(
        "trainers started where their pservers could not be",
        "controller/executor.py",
        "if all(outcome.is_ok for outcome in outcomes):",
        "if outcomes is not None:",
        "controller/test_living_jobs.py::test_no_trainer_starts_if_a_pserver_could_not_be_created",
    ),
    Bug(
        "a webhook that is down taken for a server that is",
        "kube/client/api_errors.py",
        "if code == 500 and _WEBHOOK_DOWN in message:",
        "if code == 501 and _WEBHOOK_DOWN in message:",
        "kube/test_api_denials.py",
    ),
    Bug(
        "another replica's masters spoken to",
        "controller/loop.py",
        "snapshot.jobs if leads and self._show is None else ()",
        "snapshot.jobs",
        f"{MASTERS}::test_only_the_leader_monitors_masters",
    ),
    Bug(
        "an alert that waits for a metric which nobody exports",
        "observability/metric_groups/controllers.py",
        '"edl_rounds_total"',
        '"edl_round_total"',
        f"{MONITORING}::test_every_expression_names_exported_metrics",
    ),
    Bug(
        "a scrape that lets Prometheus rename the labels of jobs",
        "install/alerts.py",
        '"honorLabels": True',
        '"honorLabels": False',
        f"{MONITORING}::test_monitors_select_objects_that_exist",
    ),
    Bug(
        "a metric that no dashboard shows",
        "observability/metric_groups/controllers.py",
        "max(edl_quarantined_objects)",
        "max(edl_leader)",
        f"{MONITORING}::test_every_metric_has_a_panel",
    ),
    Bug(
        "limits of the controller that edl explain forgets",
        "cli/main.py",
        "return replace(settings.limits, serving_grace_s=0.0, quotas=quotas)",
        "return replace(type(settings)().limits, serving_grace_s=0.0, quotas=quotas)",
        "cli/test_cli.py::test_plan_and_explain_keep_to_the_limits_of_the_controller",
    ),
    Bug(
        "a message of the program itself overwritten",
        "termination_log.py",
        "os.O_WRONLY | os.O_APPEND",
        "os.O_WRONLY | os.O_TRUNC",
        f"{CHILD}::test_a_message_of_the_program_itself_is_not_overwritten",
    ),
    Bug(
        "memory that ran out not told",
        "kube/translate/pods.py",
        'if ended.reason != "OOMKilled":',
        "if ended.reason:",
        "kube/translate/test_snapshot.py::test_that_the_memory_ran_out_is_read_behind_the_last_words",
    ),
    Bug(
        "an action that goes on although the lease was lost",
        "kube/client/session.py",
        'if method != "GET" and is_fenced and not self._may_write():',
        'if method == "PUT" and is_fenced and not self._may_write():',
        f"{CLUSTER}::test_an_action_stops_between_its_requests_where_the_lease_is_lost_meanwhile",
    ),
    Bug(
        "a leader that was stopped past its lease and renews it",
        "kube/leader_election.py",
        "if self.is_held():  # who was stopped",
        "if self._mine is not None:  # who was stopped",
        "kube/test_leader_election.py::test_a_holder_that_was_stopped_past_its_lease_says_nothing_more_when_it_wakes_up",
    ),
    Bug(
        "a lease taken over before it has run out",
        "kube/leader_election.py",
        "since_s >= found.duration_s",
        "since_s >= 2.0",
        "e2e/faults/test_election.py::test_a_leader_that_is_stopped_past_its_lease_writes_nothing_when_it_wakes_up",
    ),
    Bug(
        "failures that a watch which stood long does not end",
        "kube/mirror/reflector.py",
        "self._failures = 0  # also where it broke",
        "self._failures += 0  # also where it broke",
        f"{REFLECTOR}::test_a_watch_that_stood_long_and_said_nothing_ends_the_failures_before_it",
    ),
    Bug(
        "a watch that says 410 taken for one that is well",
        "kube/mirror/reflector.py",
        "                        self._take(line)\n                        self._failures = 0",
        "                        self._failures = 0\n                        self._take(line)",
        f"{REFLECTOR}::test_410_for_ever_in_the_stream_of_the_watch_is_not_answered_in_a_tight_loop_either",
    ),
    Bug(
        "a lagging cache that shortens the pauses after failures",
        "controller/loop.py",
        "elif result is not RoundResult.SKIPPED:",
        "elif result is not None:",
        "controller/test_loop.py::test_a_skipped_round_after_a_failure_does_not_shorten_the_pause",
    ),
    Bug(
        "one job that is nested too deeply hides all others",
        "kube/client/json_depth.py",
        "except RecursionError:",
        "except ZeroDivisionError:",
        "kube/client/test_json_depth.py::test_one_object_that_is_too_deep_does_not_hide_the_others_in_a_list_or_a_watch",
    ),
    Bug(
        "a busy server asked again before the time that it named",
        "kube/mirror/reflector.py",
        "await self._clock.sleep(asked_s *",
        "await self._clock.sleep(0.1 * asked_s *",
        f"{SERVER}::test_busy_says_when_to_come_back_and_nobody_comes_sooner",
    ),
    Bug(
        "a pod that exists taken for somebody else's although its reply was lost",
        "kube/writer.py",
        'ref.get("uid") == action.job_uid for ref in metadata.get("ownerReferences")',
        'ref.get("uid") == action.pod_name for ref in metadata.get("ownerReferences")',
        f"{CLUSTER}::test_a_pod_that_exists_and_is_ours_is_success",
    ),
)
