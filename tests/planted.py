"""Known ways to get the life of a job wrong, each with the test that must notice: `make planted`.

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


LIFE, MISHAPS = "core/test_life_of_a_job.py", "core/test_mishaps_of_a_job.py"
SPEC, POLICIES = "core/test_life_spec.py", "core/test_policies.py"
CRASH = "test_crashes.py::test_a_crash_at_any_effect_changes_nothing_in_the_end"
MACHINE = "test_life_machine.py"
CLUSTER = "adapters/test_cluster.py"
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
