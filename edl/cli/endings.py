"""Ends a command while a planner thread still runs, which cannot be stopped; the answer has been printed."""

from __future__ import annotations

import logging
import os
import sys
import threading

from edl.controller.planner_thread import THREAD


def end_beside_decision(code: str | int | None) -> None:
    """End the process with an exit code at once, if the planner thread still runs.

    Otherwise Python would end that thread when it asks for the interpreter again, in the middle of the solver. That
    is C++, which aborts the whole process then: the exit code would be 134.

    Args:
        code: what SystemExit has: None is 0; a text goes to stderr, and the exit code is 1.
    """
    if all(thread.name != THREAD for thread in threading.enumerate()):
        return
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
