"""Ways to get the first process of a pod wrong."""

from __future__ import annotations

from tests.planted import Bug

CHILD = "pod/test_entrypoint.py"
PODS = "pod/test_pods.py"

OF_LAUNCH = (
    Bug(
        "pods sorted by their names as text",
        "pod/pods.py",
        "key=lambda pod: (pod.index or 0, _number(pod.ip)))",
        "key=lambda pod: pod.name)",
        f"{PODS}::test_pods_are_sorted_by_index_and_not_by_name",
    ),
    Bug(
        "addresses sorted as text",
        "pod/pods.py",
        "return sorted(running, key=lambda pod: _number(pod.ip))",
        "return sorted(running, key=lambda pod: pod.ip)",
        f"{PODS}::test_pods_without_an_index_are_sorted_by_numeric_address",
    ),
    Bug(
        "a terminating pod counted as running",
        "pod/pods.py",
        "return self.phase == RUNNING and not self.is_terminating",
        "return self.phase == RUNNING",
        f"{PODS}::test_only_running_pods_that_are_not_terminating_are_listed",
    ),
    Bug(
        "failures of the time before a restart counted",
        "pod/tools.py",
        'pod.phase == "Failed" and not pod.is_terminating for',
        'pod.phase == "Failed" for',
        f"{PODS}::test_terminating_pods_do_not_count_as_failed",
    ),
    Bug(
        "a trainer with a high index not looked for by its name",
        "pod/pods.py",
        "if not hits and not missing:",
        "if not hits:",
        f"{PODS}::test_a_trainer_with_a_high_index_is_found_by_its_address",
    ),
    Bug(
        "an error of the launcher that ends with 0",
        "pod/roles.py",
        "FAILED, USAGE, SIGNALLED = 1, 2, 128",
        "FAILED, USAGE, SIGNALLED = 0, 2, 128",
        "pod/test_roles.py::test_wrong_usage_is_refused_without_a_traceback",
    ),
    Bug(
        "a signal passed to the shell and not to the program behind it",
        "pod/entrypoint.py",
        "os.killpg(group, number)",
        "os.kill(group, number)",
        f"{CHILD}::test_sigterm_reaches_the_program_and_lets_it_finish",
    ),
    Bug(
        "a program behind a shell cut off when the shell has died",
        "pod/entrypoint.py",
        "_await_group(child, None)",
        "_await_group(child, 0.0)",
        f"{CHILD}::test_sigterm_reaches_the_program_and_lets_it_finish",
    ),
    Bug(
        "a death by a signal told as another exit code",
        "pod/entrypoint.py",
        "code >= 0 else _SIGNALLED - code",
        "code >= 0 else -code",
        f"{CHILD}::test_the_exit_code_is_kept_and_explained",
    ),
    Bug(
        "orphans left as zombies",
        "pod/entrypoint.py",
        "os.waitpid(-1, os.WNOHANG)",
        "os.waitpid(child, os.WNOHANG)",
        f"{CHILD}::test_orphans_are_reaped_while_the_entrypoint_runs",
    ),
    Bug(
        "a daemon of the entrypoint not ended with it",
        "pod/entrypoint.py",
        "for pid in _adopted():",
        "for pid in ():",
        f"{CHILD}::test_a_daemon_outside_the_process_group_ends_too_and_the_log_names_it",
    ),
    Bug(
        "output of Python kept back",
        "pod/entrypoint.py",
        '{**environment, "PYTHONUNBUFFERED": "1"}',
        "{**environment}",
        f"{CHILD}::test_lines_of_python_and_of_c_are_not_buffered",
    ),
    Bug(
        "no end by SIGTERM before the entrypoint runs",
        "pod/roles.py",
        "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):",
        "for number in (signal.SIGINT, signal.SIGHUP):",
        f"{CHILD}::test_sigterm_before_the_entrypoint_runs_ends_the_launcher",
    ),
    Bug(
        "threads that take the signal of the entrypoint's end",
        "pod/dns.py",
        "initializer=_block_signals",
        "initializer=None",
        f"{PODS}::test_the_threads_that_resolve_names_block_all_signals",
    ),
    Bug(
        "an end that is seen only by its signal",
        "pod/entrypoint.py",
        "_forward_signal(child, _POLL_ENTRYPOINT_S)",
        "_forward_signal(child, 3600.0)",
        f"{CHILD}::test_the_end_of_the_entrypoint_is_noticed_if_another_thread_takes_the_signal",
    ),
)
