"""Ways to get the life of a job, or its share, wrong."""

from __future__ import annotations

from tests.planted import Bug

LIFE = "lifecycle/test_desired_state.py"
MISHAPS = "lifecycle/test_pod_events.py"
SPEC = "lifecycle/test_desired_state_by_spec.py"
POLICIES = "lifecycle/test_job_policies.py"
CRASH = "controller/test_crashes.py::test_a_crash_at_any_write_does_not_change_the_final_state"
MACHINE = "controller/test_life_machine.py"
MASTERS = "controller/test_master_monitor.py"

OF_LIFE = (
    Bug(
        "a status written without observedGeneration",
        "lifecycle/status.py",
        "observed_generation=job.generation,",
        "observed_generation=old.observed_generation,",
        f"{SPEC}::test_every_written_status_says_which_spec_it_answers",
    ),
    Bug(
        "a status written although nothing changed",
        "lifecycle/desired_state.py",
        "if status != job.status else ()",
        "if status is not job.status else ()",
        "controller/test_quiet.py::test_nothing_is_written_in_ten_quiet_minutes",
    ),
    Bug(
        "a new transition time for a condition that did not change",
        "lifecycle/status.py",
        "return before.since_s if before is not None and unchanged else stamp",
        "return before.since_s if before is not None and unchanged and stamp < before.since_s else stamp",
        f"{LIFE}::test_a_condition_keeps_its_time_until_it_flips",
    ),
    Bug(
        "a failure counted for an eviction",
        "lifecycle/pod_events.py",
        "if pod.phase is PodPhase.FAILED and not pod.disruption and is_ours:",
        "if pod.phase is PodPhase.FAILED and is_ours:",
        f"{SPEC}::test_no_failure_is_counted_for_what_others_or_we_take_away",
    ),
    Bug(
        "a failure counted for a pod that a restart took down",
        "lifecycle/pod_events.py",
        "for pod in () if is_restarting(job) else job.pods:",
        "for pod in job.pods:",
        f"{POLICIES}::test_pods_that_fail_because_their_job_restarts_are_not_counted",
    ),
    Bug(
        "one failure of a gang counted for each of its pods",
        "lifecycle/pod_events.py",
        "number = together = together or number",
        "together = number",
        f"{POLICIES}::test_pods_of_a_gang_that_fail_together_are_one_failure_even_if_the_marks_came_apart",
    ),
    Bug(
        "a failed pod deleted before its failure is stored",
        "lifecycle/pod_events.py",
        "job.status.failures >= failure_number(pod)",
        "job.status.failures >= 0",
        f"{MISHAPS}::test_a_failure_is_counted_once_even_if_the_status_is_lost_after_the_mark",
    ),
    Bug(
        "pods deleted before the end of their job is stored",
        "lifecycle/desired_state.py",
        "going = () if stays else job.pods",
        "going = job.pods",
        f"{SPEC}::test_the_end_is_stored_before_any_pod_goes",
    ),
    Bug(
        "a restart forgotten once the pod that caused it is gone",
        "lifecycle/desired_state.py",
        "if is_restarting(job) or any(p.intent == Intent.RESTART for p in job.pods):",
        "if not job.pods:",
        f"{POLICIES}::test_every_policy_is_carried_out[fault-tolerant-pserver-PodFailed-RestartJob]",
    ),
    Bug(
        "a job that starts anew before the status has said that the old pods are gone",
        "lifecycle/desired_state.py",
        "if is_restarting(job) or any(p.intent == Intent.RESTART for p in job.pods):",
        "if any(p.intent == Intent.RESTART or is_restarting(job) for p in job.pods):",
        f"{CRASH}[restart a gang]",
    ),
    Bug(
        "a role that runs again is forgotten halfway",
        "lifecycle/desired_state.py",
        "return running_again(job) or next(asked, None)",
        "return next(asked, None)",
        f"{CRASH}[run again by policy]",
    ),
    Bug(
        "our own deletion taken for an eviction",
        "lifecycle/pod_events.py",
        "(not word and (pod.disruption",
        "((pod.disruption",
        f"{POLICIES}::test_our_own_deletions_are_no_events",
    ),
    Bug(
        "a pserver that a new spec asks for taken for one that vanished",
        "lifecycle/pod_events.py",
        'or running.status != "True" or status.observed_generation != job.generation:',
        'or running.status != "True":',
        f"{POLICIES}::test_a_pserver_that_a_new_spec_asks_for_has_not_vanished",
    ),
    Bug(
        "half a gang started",
        "lifecycle/pod_actions.py",
        "if (job.gang or not job.fault_tolerant) and",
        "if not created and",
        f"{SPEC}::test_a_gang_starts_whole_or_not_at_all",
    ),
    Bug(
        "a gang that ignores that its trainers must make way",
        "lifecycle/desired_state.py",
        "if case.decision is not None and case.decision.victims:",
        "if case.decision is None:",
        f"{SPEC}::test_a_gang_whose_trainers_must_make_way_starts_anew_whole",
    ),
    Bug(
        "a deletion that was stated and never carried out",
        "lifecycle/desired_state.py",
        "if p.uid in case.around.lost or (p.intent and p.is_live)]",
        "if p.uid in case.around.lost]",
        f"{SPEC}::test_a_deletion_that_was_stated_but_not_carried_out_is_carried_out",
    ),
    Bug(
        "a new pod under a name that a terminating one still has",
        "lifecycle/pod_actions.py",
        "used = {p.index for p in job.pods if p.role is Role.TRAINER}",
        "used = {p.index for p in job.pods if p.role is Role.TRAINER and p.is_live}",
        f"{MACHINE}::TestLife",
    ),
    Bug(
        "a forged phase believed",
        "lifecycle/status.py",
        "if sum(said) < 2 and",
        "if sum(said) < 1 and",
        f"{SPEC}::test_what_a_user_wrote_into_the_status_is_recomputed",
    ),
    Bug(
        "a deadline that counts the time of a pause",
        "lifecycle/status.py",
        "if step.stage is Stage.SUSPENDED:\n        return None",
        "if step.stage is Stage.SUSPENDED and not old.start_s:\n        return None",
        f"{SPEC}::test_a_pause_stops_the_clock_of_the_deadline",
    ),
    Bug(
        "a refusal asked about again at once",
        "controller/backoff.py",
        "return refusal is None or now_s >= refusal.until_s",
        "return True",
        "kube/test_api_denials.py",
    ),
    Bug(
        "a job that ends before its master was heard",
        "lifecycle/pod_events.py",
        "is_told = heard is None or heard.is_current",
        "is_told = bool(done)",
        f"{MASTERS}::test_the_last_report_reaches_the_status_even_if_the_trainers_end_right_after_it",
    ),
    Bug(
        "a master that is not told what its journal must hold",
        "lifecycle/pod_actions.py",
        "expected=expected_of(job)",
        "expected=None",
        "controller/test_lost_ledgers.py::test_a_master_without_its_journal_exits_and_the_job_fails_with_its_message",
    ),
    Bug(
        "a lost ledger that fails nobody",
        "lifecycle/desired_state.py",
        "if lost := loss(job):",
        "if (lost := loss(job)) and job.problem:",
        "controller/test_lost_ledgers.py::test_a_master_without_its_journal_exits_and_the_job_fails_with_its_message",
    ),
    Bug(
        "measured speeds that the planner never sees",
        "lifecycle/desired_state.py",
        "job = with_measured(job)",
        "job = replace(with_measured(job), throughput=job.throughput)",
        f"{MASTERS}::test_a_job_that_does_not_scale_gets_no_more_trainers",
    ),
    Bug(
        "what cannot be promised to all given out by name",
        "planner/packing.py",
        "return (-inf, room.fulfilment(j), claim.job.key)",
        "return (-inf, 0.0, claim.job.key)",
        "planner/test_packing.py::test_what_does_not_suffice_for_all_promises_goes_to_the_worst_off_in_turn",
    ),
    Bug(
        "a gain for one that leaves somebody worse off than anybody was",
        "planner/sharing.py",
        " and _worst(taken) >= _worst(grown)",
        "",
        "planner/test_sharing.py::"
        "test_nobody_is_shrunk_for_another_where_that_leaves_somebody_worse_off_than_anybody_was",
    ),
    Bug(
        "a death for a share that room will do for which serving is leaving",
        "planner/sharing.py",
        "later.free += room.world.leaving",
        "later.free += 0",
        "planner/test_sharing.py::test_nobody_is_shrunk_for_another_where_room_that_serving_is_leaving_will_do",
    ),
    Bug(
        "less promised than could be had",
        "planner/sharing.py",
        "if (tried := reach(steps[middle])) is None:",
        "if (tried := None) is None:",
        "planner/test_sharing.py::test_as_little_less_is_promised_as_can_be_had_and_few_steps_are_tried",
    ),
    Bug(
        "the words of the program behind those of its exit code",
        "lifecycle/pod_events.py",
        "if line != _SAYS_NOTHING",
        "if line",
        f"{MISHAPS}::test_a_failure_is_told_with_the_words_that_say_most",
    ),
    Bug(
        "a growth that ends earlier taken for a shrink",
        "lifecycle/status.py",
        "not step.shrink_reason and max(was, live) <= step.target",
        "not step.shrink_reason and max(was, live) < 0",
        f"{LIFE}::test_less_wanted_than_is_on_its_way_is_no_shrink_where_nobody_dies",
    ),
    Bug(
        "a cooldown from trainers that never had a node",
        "lifecycle/status.py",
        "reason in VOLUNTARY_SHRINKS and not step.never_ran",
        "reason in VOLUNTARY_SHRINKS",
        f"{LIFE}::test_trainers_that_never_reached_a_node_start_no_cooldown",
    ),
)
