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
CHILD, PODS = "launch/test_child.py", "launch/test_pods.py"

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
        "launch_child.py",
        "os.O_WRONLY | os.O_APPEND",
        "os.O_WRONLY | os.O_TRUNC",
        f"{CHILD}::test_a_message_of_the_program_itself_is_not_overwritten",
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
        for name in ("edl", "tests"):
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
