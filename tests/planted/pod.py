"""Bugs in the first process of a pod."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from edl.pod.pods import PeerPod
from tests.planted import Right, bug, targets

ENTRYPOINT = "pod/test_entrypoint.py"
PODS = "pod/test_pods.py"

# --- the other pods of the job


@bug(
    "pods are sorted by name",
    at=targets.RUNNING_IN_ORDER,
    caught_by=f"{PODS}::test_pods_are_sorted_by_index_and_not_by_name",
)
def pods_sorted_by_name(right: Right) -> Right:
    return lambda pods: sorted(right(pods), key=lambda pod: pod.name)


@bug(
    "addresses are sorted as text",
    at=targets.RUNNING_IN_ORDER,
    caught_by=f"{PODS}::test_pods_without_an_index_are_sorted_by_numeric_address",
)
def addresses_sorted_as_text(right: Right) -> Right:
    return lambda pods: sorted(right(pods), key=lambda pod: pod.ip)


@bug(
    "a terminating pod counts as running",
    at=targets.POD_IS_RUNNING,
    caught_by=f"{PODS}::test_only_running_pods_that_are_not_terminating_are_listed",
)
def terminating_pod_runs(_: property) -> property:
    return property(lambda self: self.phase == "Running")


@bug(
    "failures before a restart count",
    at=targets.TOO_MANY_FAILED,
    caught_by=f"{PODS}::test_terminating_pods_do_not_count_as_failed",
)
def old_failures_counted(_: Right) -> Right:
    def wrong(self: Any, selector: str, most: int) -> bool:
        failed = [pod for pod in self._source.pods(selector) if pod.phase == "Failed"]
        return len(failed) > most

    return wrong


@bug(
    "a trainer with a high index is not found",
    at=targets.DNS_PODS,
    caught_by=f"{PODS}::test_a_trainer_with_a_high_index_is_found_by_its_address",
)
def high_index_not_found(right: Right) -> Right:
    def wrong(self: Any, selector: str) -> list[PeerPod]:
        return [pod for pod in right(self, selector) if (pod.index or 0) < 64]

    return wrong


@bug(
    "threads that resolve names take the signal of the entrypoint's end",
    at=targets.BLOCK_SIGNALS,
    caught_by=f"{PODS}::test_the_threads_that_resolve_names_block_all_signals",
)
def threads_take_signals(_: Right) -> Right:
    return lambda: None


# --- the entrypoint


@bug(
    "an error of the launcher exits with 0",
    at=targets.EXIT_FAILED,
    caught_by="pod/test_roles.py::test_wrong_usage_is_refused_without_a_traceback",
)
def launcher_error_exits_0(_: int) -> int:
    return 0


@bug(
    "a signal reaches the shell but not the program",
    at=targets.SIGNAL_GROUP,
    caught_by=f"{ENTRYPOINT}::test_sigterm_reaches_the_program_and_lets_it_finish",
)
def signal_to_the_shell_only(right: Right) -> Right:
    def wrong(group: int, number: int) -> bool:
        if not number:
            return bool(right(group, number))
        with suppress(ProcessLookupError):
            os.kill(group, number)
        return True

    return wrong


@bug(
    "a program is not waited for once its shell has ended",
    at=targets.AWAIT_GROUP,
    caught_by=f"{ENTRYPOINT}::test_sigterm_reaches_the_program_and_lets_it_finish",
)
def program_not_waited_for(right: Right) -> Right:
    return lambda group, _: right(group, 0.0)


@bug(
    "the exit code of a killed process is wrong",
    at=targets.REAP,
    caught_by=f"{ENTRYPOINT}::test_the_exit_code_is_kept_and_explained",
)
def wrong_exit_code(right: Right) -> Right:
    def wrong(child: int) -> int | None:
        code: int | None = right(child)
        return code if code is None or code <= 128 else code - 128

    return wrong


@bug(
    "orphans stay as zombies",
    at=targets.REAP,
    caught_by=f"{ENTRYPOINT}::test_orphans_are_reaped_while_the_entrypoint_runs",
)
def orphans_not_reaped(_: Right) -> Right:
    def wrong(child: int) -> int | None:
        with suppress(ChildProcessError):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        return None

    return wrong


@bug(
    "a daemon outlives the entrypoint",
    at=targets.ADOPTED,
    caught_by=f"{ENTRYPOINT}::test_a_daemon_outside_the_process_group_ends_too_and_the_log_names_it",
)
def daemon_left_running(_: Right) -> Right:
    return list


@bug(
    "the output of Python is buffered",
    at=targets.RUN_ENTRY,
    caught_by=f"{ENTRYPOINT}::test_lines_of_python_and_of_c_are_not_buffered",
)
def output_buffered(right: Right) -> Right:
    def wrong(entry: str, environment: Mapping[str, str]) -> int:
        kept = {name: value for name, value in environment.items() if name != "PYTHONUNBUFFERED"}
        return int(right(entry, kept))

    return wrong


@bug(
    "SIGTERM before the entrypoint runs does not end the launcher cleanly",
    at=targets.RUN_ROLE,
    caught_by=f"{ENTRYPOINT}::test_sigterm_before_the_entrypoint_runs_ends_the_launcher",
)
def sigterm_not_handled(right: Right) -> Right:
    def wrong(work: Callable[[], int], name: str) -> Any:
        def unprotected() -> int:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            return work()

        return right(unprotected, name)

    return wrong


@bug(
    "the end of the entrypoint is noticed only by its signal",
    at=targets.POLL_ENTRYPOINT_S,
    caught_by=f"{ENTRYPOINT}::test_the_end_of_the_entrypoint_is_noticed_if_another_thread_takes_the_signal",
)
def end_seen_by_signal_only(right: float) -> float:
    return right * 3600


@bug(
    "the termination log of the program is overwritten",
    at=targets.WRITE_TERMINATION_LOG,
    caught_by=f"{ENTRYPOINT}::test_a_termination_message_of_the_program_is_not_overwritten",
)
def termination_log_overwritten(right: Right) -> Right:
    def wrong(text: str, environment: Mapping[str, str]) -> None:
        path = Path(environment.get("EDL_TERMINATION_LOG", ""))
        if path.is_file():
            path.write_text("")
        right(text, environment)

    return wrong
