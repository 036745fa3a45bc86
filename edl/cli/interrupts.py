"""Lets SIGINT end the process without a message while a command is still loading.

Python raises KeyboardInterrupt wherever it is. pydantic builds its models while a module is imported, and turns a
KeyboardInterrupt in there into a SchemaError, which would reach the user as a traceback. A command that only loads
has nothing to put in order, so ending at once is safe.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT


def end_at_once_on_interrupt() -> None:
    """Let SIGINT end the process with code 130; a SIGINT that the parent process ignored stays ignored."""
    _replace(signal.default_int_handler, _end)


def raise_on_interrupt() -> None:
    """Let SIGINT raise KeyboardInterrupt again, as a command expects."""
    _replace(_end, signal.default_int_handler)


def _replace(old: object, new: signal._HANDLER) -> None:
    # Only the main thread may set a handler. A handler that somebody else has set stays.
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is old:
        signal.signal(signal.SIGINT, new)


def _end(*_: object) -> NoReturn:
    os._exit(INTERRUPTED)
